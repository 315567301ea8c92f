"""Queries read the newest catalog, only read, and fail with one line that helps."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import Catalog, CatalogError, refresh_catalog
from lake import Episode, Lake
from tests.catalog.views import VIEWS, write


def test_a_query_gives_arrow_and_takes_parameters(still_lake: Lake) -> None:
    with Catalog(still_lake) as catalog:
        result = catalog.query(
            "SELECT num_steps FROM episodes WHERE num_steps > ? AND split = ? ORDER BY 1",
            [7, "train"],
        )
    assert result.equals(pa.table({"num_steps": pa.array([8, 9, 10], pa.int32())}))


def test_an_open_catalog_sees_what_any_process_publishes(
    small_lake: Lake, make_episode: Callable[..., Episode]
) -> None:
    count = "SELECT count(*) AS n FROM episodes"
    with Catalog(small_lake) as catalog, Catalog(small_lake) as other:
        versions = catalog.versions
        write(small_lake, [make_episode(70)])
        assert catalog.query(count)["n"].to_pylist() == [6]
        other.refresh()
        assert catalog.query(count)["n"].to_pylist() == [7]
        assert catalog.versions["commits"] == versions["commits"] + 1

        write(small_lake, [make_episode(71)])
        code = (
            "import sys; from catalog import refresh_catalog; from lake import open_lake;"
            "refresh_catalog(open_lake(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", code, small_lake.uri], check=True)
        assert catalog.query(count)["n"].to_pylist() == [8]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW episodes",
        "INSERT INTO mirror.specs VALUES (1, 1, 'a', 'b')",
        "UPDATE mirror.episodes SET task = 'x'",
        "CREATE TABLE t AS SELECT 1",
        "COPY episodes TO 'stolen.csv'",
        "ATTACH 'other.duckdb'",
        "DETACH catalog",
        "USE memory",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CHECKPOINT",
        "BEGIN",
        "SELECT 1; DROP VIEW episodes",
        "",
        "-- nothing",
    ],
)
def test_only_one_reading_statement_runs(still_lake: Lake, sql: str) -> None:
    with Catalog(still_lake) as catalog:
        with pytest.raises(CatalogError, match=r"only read|one SQL statement"):
            catalog.query(sql)
        assert catalog.query("SELECT count(*) AS n FROM episodes")["n"].to_pylist() == [6]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_csv('{file}')",
        "FROM read_text('{file}')",
        "FROM glob('/*')",
        "FROM '{file}'",
        "FROM secret_frame",
        "SELECT getenv('HOME')",
    ],
)
def test_a_query_reaches_no_file_and_no_python_variable(
    still_lake: Lake, tmp_path: Path, sql: str
) -> None:
    secret_frame = pa.table({"a": [1]})
    assert secret_frame.num_rows == 1
    file = tmp_path / "secret.csv"
    file.write_text("a\n1\n", encoding="utf-8")
    with Catalog(still_lake) as catalog, pytest.raises(CatalogError):
        catalog.query(sql.format(file=file))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT task FROM episodes LIMIT 1",
        "FROM episodes LIMIT 1",
        "WITH e AS (FROM episodes) SELECT task FROM e LIMIT 1",
        "DESCRIBE episodes",
        "SUMMARIZE episodes",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM episodes",
        "VALUES (1)",
        "PIVOT episodes ON success USING count(*) GROUP BY task",
    ],
)
def test_every_reading_form_works(still_lake: Lake, sql: str) -> None:
    with Catalog(still_lake) as catalog:
        assert catalog.query(sql).num_rows > 0


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT tsk FROM episodes", 'Referenced column "tsk" not found'),
        ("FROM episode", 'Did you mean "episodes"?'),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 1 +", "syntax error"),
        ("SELECT 'a'::INTEGER", "Could not convert string 'a' to INT32"),
        ("SELECT error('boom')", "boom"),
    ],
)
def test_an_error_is_one_line_with_the_tables(still_lake: Lake, sql: str, told: str) -> None:
    with Catalog(still_lake) as catalog:
        with pytest.raises(CatalogError) as raised:
            catalog.query(sql)
        text = str(raised.value)
        assert told in text
        assert "\n" not in text
        assert "Tables: cameras, datasets, edits, episodes" in text
        assert catalog.query("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_missing_and_unreadable_catalogs_say_what_to_do(small_lake: Lake) -> None:
    with pytest.raises(CatalogError, match="no catalog yet; refresh it"):
        Catalog(small_lake, refresh=False)
    path = refresh_catalog(small_lake).path
    path.write_bytes(b"\xa5" * 20_000)
    with pytest.raises(CatalogError, match=r"cannot be read .*refresh it"):
        Catalog(small_lake, refresh=False)


def test_columns_lists_every_view(still_lake: Lake) -> None:
    with Catalog(still_lake) as catalog:
        rows = catalog.columns().to_pylist()
    assert {row["table"] for row in rows} == set(VIEWS)
    assert {"table": "episodes", "column": "success", "type": "BOOLEAN"} in rows


def test_reading_needs_no_torch_hdf5_or_video_library() -> None:
    code = (
        "import sys, catalog.reader, catalog.selection, catalog.labels, tools.commands.sql;"
        "print([m for m in ('torch', 'h5py', 'av', 'mujoco') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
