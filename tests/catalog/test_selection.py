"""A selection is what the query gave then, whatever happens later."""

import hashlib
import json
from collections.abc import Callable

import pytest

from catalog import (
    Catalog,
    CatalogError,
    Selection,
    SelectionError,
    answer_selection,
    freeze_selection,
    load_selection,
    set_labels,
)
from catalog.selection import as_query
from lake import Episode, Lake
from tests.catalog.views import write

MakeEpisode = Callable[..., Episode]


def test_a_condition_and_its_query_choose_the_same(small_lake: Lake) -> None:
    with Catalog(small_lake) as catalog:
        expected = sorted(
            row["episode_id"]
            for row in catalog.query("FROM episodes").to_pylist()
            if row["num_steps"] > 7
        )
        for text in (
            "num_steps > 7",
            "num_steps > 7 -- long ones",
            " num_steps > 7 ; ",
            "SELECT episode_id FROM episodes WHERE num_steps > 7",
            "FROM episodes WHERE num_steps > 7",
            "SELECT episode_id FROM features WHERE count > 7",  # three rows per episode
            "SELECT e.episode_id FROM episodes e JOIN datasets USING (dataset) WHERE num_steps > 7",
        ):
            assert list(answer_selection(catalog, text).episode_ids) == expected, text


def test_what_is_frozen_stays(small_lake: Lake, make_episode: MakeEpisode) -> None:
    frozen = freeze_selection(small_lake, "success", name="good")
    assert len(frozen.episode_ids) == 3
    text = json.dumps([list(frozen.episode_ids), dict(sorted(frozen.versions.items()))])
    assert frozen.hash == hashlib.sha256(text.encode()).hexdigest()

    write(small_lake, [make_episode(51)])
    set_labels(small_lake, frozen.episode_ids[:1], success=False)
    for key in ("good", frozen.hash, frozen.hash[:8]):
        assert load_selection(small_lake, key) == frozen
    with Catalog(small_lake) as catalog:
        row = catalog.query("SELECT * EXCLUDE created_at FROM selections").to_pylist()[0]
    assert row["episode_ids"] == list(frozen.episode_ids)
    assert row["sql"] == "SELECT episode_id FROM episodes WHERE (success)"
    assert (row["name"], row["num_episodes"]) == ("good", 3)


def test_the_same_answer_is_frozen_once(small_lake: Lake) -> None:
    first = freeze_selection(small_lake, "num_steps > 7")
    assert first.name == first.hash[:12]
    assert freeze_selection(small_lake, "num_steps > 7") == first
    assert freeze_selection(small_lake, "num_steps >= 8").sql == first.sql
    with pytest.raises(SelectionError, match=f"frozen as '{first.name}' already"):
        freeze_selection(small_lake, "num_steps > 7", name="long")
    with Catalog(small_lake) as catalog:
        assert catalog.query("FROM selections").num_rows == 1


def test_a_name_belongs_to_one_answer(small_lake: Lake) -> None:
    first = freeze_selection(small_lake, "num_steps > 7", name="long")
    assert freeze_selection(small_lake, "num_steps > 7", name="long") == first
    with pytest.raises(SelectionError, match=r"'long' is taken: it has 3 .* this one 2"):
        freeze_selection(small_lake, "num_steps > 8", name="long")
    set_labels(small_lake, first.episode_ids[:1], quality=1.0)
    with pytest.raises(SelectionError, match="labels or episodes changed"):
        freeze_selection(small_lake, "num_steps > 7", name="long")


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "a/b", "\u00e9"])
def test_bad_names_are_refused(still_lake: Lake, name: str) -> None:
    with pytest.raises(SelectionError, match="use letters, digits"):
        freeze_selection(still_lake, "true", name=name)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("num_steps > 1000", "none of 6 episodes matches"),
        ("quality > 0.5 and success", "quality is NULL in every episode"),
        ("SELECT task FROM episodes", r"needs a column episode_id; the query gives: task"),
        ("SELECT NULL::VARCHAR AS episode_id", "episode_id NULL"),
        ("SELECT 'ghost' AS episode_id", "1 of 1 ids are not episodes of the lake, first ghost"),
        ("SELECT 7 AS episode_id", "1 of 1 ids are not episodes"),
        ("  ", "an empty condition"),
        (";", "an empty condition"),
    ],
)
def test_what_cannot_be_a_selection_says_why(still_lake: Lake, query: str, told: str) -> None:
    with Catalog(still_lake) as catalog, pytest.raises(SelectionError, match=told):
        answer_selection(catalog, query)


@pytest.mark.parametrize(
    "query", ["nope > 1", "num_steps >", "true) OR (nope", "DROP VIEW episodes"]
)
def test_wrong_sql_is_an_error_of_the_catalog(still_lake: Lake, query: str) -> None:
    with Catalog(still_lake) as catalog, pytest.raises(CatalogError):
        answer_selection(catalog, query)


def test_an_empty_lake_says_so(lake: Lake) -> None:
    with pytest.raises(SelectionError, match="the lake has no episodes"):
        freeze_selection(lake, "true")


def test_unknown_and_ambiguous_selections(small_lake: Lake) -> None:
    with pytest.raises(SelectionError, match="no selection 'x'; there are: none"):
        load_selection(small_lake, "x")
    frozen = freeze_selection(small_lake, "true", name="all")
    with pytest.raises(SelectionError, match="there are: all"):
        load_selection(small_lake, frozen.hash[:7])


def test_two_writers_of_one_name_are_told_apart_by_hash(small_lake: Lake) -> None:
    from catalog.selection import _insert

    with Catalog(small_lake) as catalog:
        one = answer_selection(catalog, "success", name="same")
        two = answer_selection(catalog, "not success", name="same")
    _insert(small_lake, one)
    _insert(small_lake, two)  # a race: each looked before the other wrote
    with pytest.raises(SelectionError, match="names 2 selections; use a hash"):
        load_selection(small_lake, "same")
    assert load_selection(small_lake, two.hash) == two


def test_a_changed_row_is_noticed(small_lake: Lake) -> None:
    from dataclasses import replace

    from catalog.selection import _insert

    with Catalog(small_lake) as catalog:
        selection = answer_selection(catalog, "true", name="all")
    forged = replace(selection, episode_ids=selection.episode_ids[1:])
    object.__setattr__(forged, "hash", selection.hash)
    _insert(small_lake, forged)
    with pytest.raises(SelectionError, match="does not match its hash"):
        load_selection(small_lake, "all")


@pytest.mark.parametrize("ids", [(), ("b", "a"), ("a", "a")])
def test_ids_are_sorted_distinct_and_some(ids: tuple[str, ...]) -> None:
    with pytest.raises(SelectionError, match="sorted, distinct"):
        Selection(name="x", sql="", episode_ids=ids, versions={})


def test_a_statement_stays_a_statement() -> None:
    assert as_query("FROM episodes;") == "FROM episodes"
    assert as_query("success") == "SELECT episode_id FROM episodes WHERE (success)"
