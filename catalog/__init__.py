"""SQL over a lake: a rebuildable DuckDB view of it, selections, labels, lineage.

```python
from catalog import Catalog, freeze_selection, set_labels
from lake import open_lake

robots = open_lake("robots.lake")
with Catalog(robots) as catalog:  # refreshed first
    per_task = catalog.query("SELECT task, count(*) AS n FROM episodes GROUP BY task")
chosen = freeze_selection(robots, "success and num_steps > 30", name="good")
set_labels(robots, chosen, split="train")
```

Names are imported when first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.errors import CatalogError as CatalogError
    from catalog.errors import LabelError as LabelError
    from catalog.errors import SelectionError as SelectionError
    from catalog.labels import set_labels as set_labels
    from catalog.location import catalog_path as catalog_path
    from catalog.reader import Catalog as Catalog
    from catalog.refresh import CatalogRefresh as CatalogRefresh
    from catalog.refresh import refresh_catalog as refresh_catalog
    from catalog.selection import Selection as Selection
    from catalog.selection import answer_selection as answer_selection
    from catalog.selection import freeze_selection as freeze_selection
    from catalog.selection import load_selection as load_selection

_HOMES = {
    "catalog.errors": ("CatalogError", "LabelError", "SelectionError"),
    "catalog.labels": ("set_labels",),
    "catalog.location": ("catalog_path",),
    "catalog.reader": ("Catalog",),
    "catalog.refresh": ("CatalogRefresh", "refresh_catalog"),
    "catalog.selection": ("Selection", "answer_selection", "freeze_selection", "load_selection"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - one list, not two that can differ


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
