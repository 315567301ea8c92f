"""`headrace sql`, `select` and `label` as a user or a script meets them."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from catalog import CatalogError, LabelError, SelectionError
from lake import Episode, EpisodeWriter, Lake
from tools.commands import label, select, sql, tabular

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs the command line; expected errors are raised, as `tools.cli.main` gets them."""
    app = typer.Typer()
    for module in (sql, select, label):
        module.register(app)

    def call(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return call


@pytest.fixture
def uri(lake: Lake, make_episode: Callable[..., Episode]) -> str:
    with EpisodeWriter(lake) as writer:
        for number in range(4):
            writer.add(make_episode(number, steps=5 + number))
    return lake.uri


def test_json_is_all_there_is_on_stdout(run: Run, uri: str) -> None:
    query = "SELECT num_steps, success, tags, NULL AS n FROM episodes ORDER BY 1 LIMIT 2"
    result = run("sql", uri, query, "--json")
    assert json.loads(result.stdout) == [
        {"num_steps": 5, "success": False, "tags": ["synthetic"], "n": None},
        {"num_steps": 6, "success": True, "tags": ["synthetic"], "n": None},
    ]
    assert json.loads(run("sql", uri, "FROM episodes WHERE false", "--json").stdout) == []


def test_json_of_odd_values(run: Run, uri: str) -> None:
    query = (
        "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS f, sum(num_steps) AS s, 1.50::DECIMAL(4,2) AS d,"
        " TIMESTAMP '2024-05-06 07:08:09' AS t, {'x': [1]} AS o, '\\x01'::BLOB AS b FROM episodes"
    )
    assert json.loads(run("sql", uri, "-", "--json", stdin=query).stdout) == [
        {
            "a": 1,
            "a_1": 2,
            "f": None,
            "s": 26,
            "d": 1.5,
            "t": "2024-05-06T07:08:09",
            "o": {"x": [1]},
            "b": "01",
        }
    ]


def test_csv_reads_back(run: Run, uri: str) -> None:
    result = run("sql", uri, "SELECT episode_id, tags, task FROM episodes ORDER BY 1", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 4
    assert json.loads(rows[0]["tags"]) == ["synthetic"]


def test_a_table_counts_what_it_leaves_out(run: Run, uri: str) -> None:
    result = run("sql", uri, "SELECT episode_id FROM episodes", "--rows", "3")
    assert result.stdout.count("synthetic/episode_") == 3
    assert "1 more of 4 rows" in result.stdout
    assert run("sql", uri, "SELECT episode_id FROM episodes", "--rows", "0").stdout.count("/") == 4


def test_without_sql_the_tables_are_listed(run: Run, uri: str) -> None:
    text = run("sql", uri).stdout
    for table in ("episodes", "cameras", "lineage", "steps('EPISODE_ID')"):
        assert table in text
    rows = json.loads(run("sql", uri, "--json").stdout)
    assert {"table": "tasks", "column": "judged", "type": "BIGINT"} in rows


def test_no_refresh_shows_the_last_catalog(
    run: Run, uri: str, lake: Lake, make_episode: Callable[..., Episode]
) -> None:
    count = ("SELECT count(*) AS n FROM episodes", "--json")
    with pytest.raises(CatalogError, match="no catalog yet"):
        run("sql", uri, *count, "--no-refresh")
    run("sql", uri, *count)
    with EpisodeWriter(lake) as writer:
        writer.add(make_episode(90))
    assert json.loads(run("sql", uri, *count, "--no-refresh").stdout) == [{"n": 4}]
    assert json.loads(run("sql", uri, *count).stdout) == [{"n": 5}]


def test_json_and_csv_exclude_each_other(run: Run, uri: str) -> None:
    with pytest.raises(sql.UsageError):
        run("sql", uri, "SELECT 1", "--json", "--csv")


def test_select_freezes_shows_and_lists(run: Run, uri: str) -> None:
    assert json.loads(run("select", uri, "--json").stdout) == []
    made = json.loads(run("select", uri, "good", "success", "--json").stdout)
    assert (made["name"], made["num_episodes"]) == ("good", 2)
    assert json.loads(run("select", uri, "good", "--json").stdout) == made
    assert run("select", uri, "good", "--ids").stdout.split() == made["episode_ids"]
    assert "good: 2 episodes, hash " + made["hash"][:16] in run("select", uri, "good").stdout
    listed = json.loads(run("select", uri, "--json").stdout)
    assert [(row["name"], row["episodes"]) for row in listed] == [("good", 2)]
    assert "good" in run("select", uri).stdout
    with pytest.raises(SelectionError, match="is taken"):
        run("select", uri, "good", "true")


def test_label_sets_and_clears(run: Run, uri: str) -> None:
    result = run(
        "label", uri, "num_steps < 7", "success=true", "tags=a, b", "split=", "quality=.5", "--json"
    )
    assert json.loads(result.stdout) == {
        "labelled": 2,
        "labels": {"success": True, "tags": ["a", "b"], "split": None, "quality": 0.5},
    }
    query = "SELECT success, tags, split, quality FROM episodes WHERE label_version = 1"
    assert (
        json.loads(run("sql", uri, query, "--json").stdout)
        == [{"success": True, "tags": ["a", "b"], "split": None, "quality": 0.5}] * 2
    )
    assert run("label", uri, "true", "task=a=b").stdout == "4 episodes labelled\n"


@pytest.mark.parametrize("text", ["task", "success=yes", "quality=good", "colour=red"])
def test_a_wrong_label_is_refused(run: Run, uri: str, text: str) -> None:
    with pytest.raises(LabelError):
        run("label", uri, "true", text)


def test_a_row_wider_than_the_terminal_stands_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    wide: dict[str, Any] = {f"column_{n}": ["x" * 20] for n in range(6)}
    tabular.print_rows(pa.table(wide))
    lines = capsys.readouterr().out.splitlines()
    assert sum("column_" in line for line in lines) == 6
    tabular.print_rows(pa.table({"a": [1], "long": [list(range(20))]}))
    assert "[0, 1, 2, 3, 4, 5, 6, 7, ... 20]" in capsys.readouterr().out


def test_names_in_brackets_are_printed_as_they_are(run: Run, uri: str) -> None:
    result = run("sql", uri, "SELECT '[red]x[/b]' AS \"[/b]\"")
    assert "[/b]" in result.stdout
    assert "[red]x[/b]" in result.stdout


def test_a_long_document_is_cut_for_people_only(run: Run, uri: str) -> None:
    query = "SELECT repeat('x', 1000) AS document"
    assert "x... 1000 characters" in run("sql", uri, query).stdout
    assert json.loads(run("sql", uri, query, "--json").stdout) == [{"document": "x" * 1000}]


def test_a_label_given_twice_is_refused(run: Run, uri: str) -> None:
    with pytest.raises(LabelError, match="split is given twice"):
        run("label", uri, "true", "split=a", "split=b")


def test_bytes_that_are_no_text_are_refused(run: Run, uri: str) -> None:
    for command in ("sql", "label"):
        with pytest.raises(CatalogError, match="not Unicode"):
            run(command, uri, "\udcff", *(["split=a"] if command == "label" else []))
