"""How fast the catalog follows its lake, and answers."""

import itertools
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from catalog import Catalog, catalog_path, refresh_catalog, set_labels
from lake import create_lake
from tools.bench.catalog_rows import add_episodes
from tools.bench.framework import BenchResult, Timing, measure, spread

_REPETITIONS: Final = 5
_PER_COMMIT: Final = 20_000
_QUERIES: Final = {
    "query: count": "SELECT count(*) FROM episodes",
    "query: group by task": "SELECT task, avg(num_steps) FROM episodes WHERE success GROUP BY 1",
    "query: one episode": "FROM episodes WHERE locator = 'episode 7'",
    "query: cameras": "SELECT camera, sum(bytes) FROM cameras GROUP BY 1",
}


def run(quick: bool) -> BenchResult:  # noqa: FBT001 - what every bench takes
    """Refresh and query a lake of 20,000 (`quick`) or 200,000 episodes."""
    episodes = 20_000 if quick else 200_000
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        lake = create_lake(Path(folder) / "bench.lake")
        for first in range(0, episodes, _PER_COMMIT):
            add_episodes(lake, first, min(_PER_COMMIT, episodes - first))
        timings: dict[str, list[Timing]] = {}
        timings["rebuild"] = [
            measure(partial(refresh_catalog, lake, Path(folder) / "rebuilt" / f"{n}.duckdb"))
            for n in range(_REPETITIONS)
        ]
        refresh_catalog(lake)
        number = itertools.count(episodes, 1000)
        with Catalog(lake) as catalog:
            ids = catalog.query("SELECT episode_id FROM episodes LIMIT 100")["episode_id"]

            def timed(change: Callable[[], object]) -> Timing:
                change()
                return measure(lambda: refresh_catalog(lake))

            changes: dict[str, Callable[[], object]] = {
                "refresh: nothing new": lambda: None,
                "refresh: 1 episode appended": lambda: add_episodes(lake, next(number), 1),
                "refresh: 1,000 episodes appended": lambda: add_episodes(lake, next(number), 1000),
                "refresh: 100 episodes labelled": lambda: set_labels(
                    lake, ids.to_pylist(), quality=0.5
                ),
            }
            for _ in range(_REPETITIONS):
                for name, change in changes.items():
                    timings.setdefault(name, []).append(timed(change))
                for name, sql in _QUERIES.items():
                    timings.setdefault(name, []).append(measure(partial(catalog.query, sql)))
        size = catalog_path(lake).stat().st_size
    rows = [
        {
            "operation": name,
            "wall ms": spread([1e3 * t.wall_s for t in measured]),
            "CPU ms": spread([1e3 * t.cpu_s for t in measured]),
        }
        for name, measured in timings.items()
    ]

    def cpu_ms(name: str) -> float:
        return 1e3 * statistics.median(t.cpu_s for t in timings[name])

    return BenchResult(
        name="catalog",
        rows=rows,
        ratios={
            "rebuild_us_per_episode": 1e3 * cpu_ms("rebuild") / episodes,
            "append_refresh_cpu_ms": cpu_ms("refresh: 1 episode appended"),
            "bytes_per_episode": size / episodes,
        },
        notes=(
            f"{episodes:,} episodes of 2 cameras and 2 features, without signals or video",
            "a refresh lists fragments, copies the catalog, changes the copy and publishes it",
            "each kind of refresh follows one such change; the first query opens the new catalog",
            f"{_REPETITIONS} interleaved repetitions (rebuilds first), median [least, most]",
        ),
    )
