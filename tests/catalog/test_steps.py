"""`steps('id')` shows the values of the lake, a row per step."""

from collections.abc import Callable

import numpy as np
import pytest

from catalog import Catalog, CatalogError
from catalog.steps import named_episodes
from lake import Episode, FeatureSpec, Lake, Spec
from lake.errors import EpisodeNotFoundError
from tests.catalog.views import write

MakeEpisode = Callable[..., Episode]


def test_values_equal_the_episode(lake: Lake, make_episode: MakeEpisode) -> None:
    episode = make_episode(3, dtype="float64", steps=7, timestamps_ns=np.arange(7) * 5 + 10**15)
    write(lake, [make_episode(2), episode])
    with Catalog(lake) as catalog:
        table = catalog.query(f"FROM steps('{episode.episode_id}')")
    assert table.column_names == ["step", "time_s", "timestamp_ns", "state", "action", "note"]
    assert table["step"].to_pylist() == list(range(7))
    assert table["timestamp_ns"].to_pylist() == episode.timestamps_ns.tolist()
    np.testing.assert_allclose(table["time_s"].to_numpy(), np.arange(7) * 5e-9)
    for name in ("state", "action"):
        assert table[name].to_pylist() == episode.features[name].tolist()
    assert table["note"].to_pylist() == episode.features["note"].tolist()


def test_all_dtypes_shapes_and_invalid_steps(lake: Lake, make_episode: MakeEpisode) -> None:
    steps = 4
    arrays = {
        name: np.arange(steps * 4).reshape(steps, 2, 2).astype(dtype)
        for name, dtype in [("h", "float16"), ("b", "bool"), ("u", "uint64"), ("i", "int8")]
    }
    arrays["step"] = np.array([1.5, np.nan, 2.5, np.inf], np.float32)
    arrays["width"] = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.int32)
    valid = {name: np.array([True, False, True, True]) for name in ("step", "width")}
    spec = Spec(
        features=tuple(
            FeatureSpec(name=n, source_name=n, dtype=a.dtype.name, shape=a.shape[1:])
            for n, a in arrays.items()
        )
    )
    episode = make_episode(0, steps=steps, spec=spec, features=arrays, valid=valid)
    write(lake, [episode])
    with Catalog(lake) as catalog:
        table = catalog.query(f"FROM steps('{episode.episode_id}')")
    for name in ("h", "b", "u", "i"):
        assert table[name].to_pylist() == arrays[name].reshape(steps, 4).tolist()
    assert table["step"].to_pylist() == [0, 1, 2, 3]
    assert table["step_feature"].to_pylist() == [1.5, None, 2.5, np.inf]
    assert table["width"].to_pylist() == [[1, 2], None, [5, 6], [7, 8]]


def test_joins_parameters_and_odd_ids(lake: Lake, make_episode: MakeEpisode) -> None:
    odd = 'a.b/"it\'s" \u00e9; --'
    write(lake, [make_episode(1, steps=3, episode_id=odd), make_episode(2, steps=5)])
    plain = make_episode(2, steps=5).episode_id
    with Catalog(lake) as catalog:
        quoted = odd.replace("'", "''")
        both = catalog.query(
            f"SELECT a.step FROM steps('{quoted}') a JOIN Steps ( '{plain}' ) b USING (step)"
        )
        assert both["step"].to_pylist() == [0, 1, 2]
        for sql in ("SELECT count(*) AS n FROM steps(?)", "SELECT count(*) AS n FROM steps($1)"):
            assert catalog.query(sql, [plain])["n"].to_pylist() == [5]
        total = "SELECT count(*) AS n FROM steps(?) WHERE (SELECT count(*) FROM episodes) = ?"
        assert catalog.query(total, [odd, 2])["n"].to_pylist() == [3]
        assert "steps" not in str(catalog.query("SHOW TABLES").to_pylist())


def test_the_signals_are_of_the_version_the_catalog_shows(
    lake: Lake, make_episode: MakeEpisode
) -> None:
    episode = make_episode(1)
    write(lake, [episode])
    with Catalog(lake) as catalog:
        lake.latest("trajectories").delete("true")
        assert catalog.query(f"FROM steps('{episode.episode_id}')").num_rows == 12
        catalog.refresh()
        with pytest.raises(EpisodeNotFoundError, match="no visible episode"):
            catalog.query(f"FROM steps('{episode.episode_id}')")


@pytest.mark.parametrize(
    ("sql", "params"),
    [("FROM steps('nope')", []), ("FROM steps(?)", ["nope"]), ("FROM steps('')", [])],
)
def test_an_unknown_episode_is_named(still_lake: Lake, sql: str, params: list[str]) -> None:
    with Catalog(still_lake) as catalog:
        wanted = params[0] if params else sql.split("'")[1]
        with pytest.raises(EpisodeNotFoundError, match=rf"steps\('{wanted}'\)"):
            catalog.query(sql, params)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM steps('a' || 'b')",
        "FROM episodes e, steps(e.episode_id)",
        "FROM steps((SELECT episode_id FROM episodes LIMIT 1))",
        "FROM steps()",
        "FROM steps(1)",
    ],
)
def test_other_arguments_are_refused(still_lake: Lake, sql: str) -> None:
    with Catalog(still_lake) as catalog, pytest.raises(CatalogError) as raised:
        catalog.query(sql)
    assert "\n" not in str(raised.value)


def test_only_calls_count_as_calls() -> None:
    sql = "SELECT 'steps(''x'')', steps FROM steps('a''b') -- steps('c')\n, steps(/* s */ 'd')"
    assert named_episodes(sql, []) == ["a'b", "d"]
    assert named_episodes("SELECT num_steps FROM episodes WHERE steps IN ('a')", ["p"]) == []


def test_numbered_steps_have_no_seconds(lake: Lake, make_episode: MakeEpisode) -> None:
    numbered = make_episode(1, steps=4, timestamps_ns=np.arange(4), fps=None)
    single = make_episode(2, steps=1, timestamps_ns=np.array([7]))
    write(lake, [numbered, single])
    with Catalog(lake) as catalog:
        shown = catalog.query(f"FROM steps('{numbered.episode_id}')")
        assert shown["time_s"].to_pylist() == [None] * 4
        assert shown["timestamp_ns"].to_pylist() == [0, 1, 2, 3]
        assert catalog.query(f"FROM steps('{single.episode_id}')")["time_s"].to_pylist() == [0.0]
        durations = catalog.query("SELECT duration_s FROM episodes ORDER BY num_steps")
        assert durations["duration_s"].to_pylist() == [0.0, None]
        assert catalog.query("SELECT hours FROM datasets")["hours"].to_pylist() == [0.0]
