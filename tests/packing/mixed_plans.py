"""Plans of a mixture."""

from typing import Any

from lake import Lake
from packing.make_plan import make_plan
from packing.mixture import Mixture
from packing.plan import Plan
from packing.window_spans import WindowSpans

EVEN_AND_ODD = Mixture(weights={"even": 0.75, "odd": 0.25})


def plan_of(lake: Lake, mixture: Mixture | None, episodes: Any = None, **changes: Any) -> Plan:
    """A small plan of windows over four epochs."""
    options: dict[str, Any] = {
        "spans": WindowSpans(horizon=4),
        "budget_tokens": 256,
        "slots_per_step": 3,
        "epochs": 4,
        "run_length": 2,
        **changes,
    }
    return make_plan(lake, episodes, mixture=mixture, **options)
