"""What the catalog's tests share: writing a lake, and reading all that a catalog shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog import Catalog, refresh_catalog
from lake import Episode, EpisodeWriter, Lake

VIEWS = (
    *("episodes", "cameras", "features", "tasks", "datasets", "specs", "quarantine"),
    *("selections", "plans", "runs", "evaluations", "lineage", "edits", "hidden_episodes"),
)


def write(lake: Lake, episodes: Sequence[Episode]) -> None:
    """Commit episodes."""
    with EpisodeWriter(lake) as writer:
        for episode in episodes:
            writer.add(episode)


def contents(catalog: Catalog) -> dict[str, list[dict[str, Any]]]:
    """Every row of every view, in an order of their own."""
    return {view: sorted(catalog.query(f"FROM {view}").to_pylist(), key=repr) for view in VIEWS}


def rebuilt_contents(lake: Lake, path: Path) -> dict[str, list[dict[str, Any]]]:
    """What a catalog made from nothing at `path` holds."""
    path.unlink(missing_ok=True)
    assert refresh_catalog(lake, path).rebuilt == "there was none"
    with Catalog(lake, path, refresh=False) as catalog:
        return contents(catalog)
