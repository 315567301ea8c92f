"""Schemas: names, keys, and how features become columns."""

import pyarrow as pa
import pytest

from lake.spec import DTYPES, RESERVED_COLUMNS, FeatureSpec
from lake.tables import FACTS, TABLES, equals, feature_fields, primary_key


def test_reserved_columns_are_those_of_trajectories() -> None:
    assert frozenset(TABLES["trajectories"].names) == RESERVED_COLUMNS
    assert set(FACTS) < RESERVED_COLUMNS


def test_every_table_but_trajectories_has_a_key() -> None:
    keys = {table: primary_key(table) for table in TABLES}
    assert keys.pop("trajectories") == []
    assert keys["stats"] == ["episode_id", "feature"]
    assert keys["commits"] == ["ingest_key"]
    assert all(keys.values())


def test_the_ledger_is_created_last() -> None:
    assert list(TABLES)[-1] == "commits"


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_column_per_name_and_dtype(dtype: str) -> None:
    feature = FeatureSpec(name="state", source_name="s", dtype=dtype, shape=(2,))
    values, valid = feature_fields(feature)
    assert values.name == ("state" if dtype == "float32" else f"state:{dtype}")
    assert valid.name == f"{values.name}:valid"
    assert pa.types.is_large_list(values.type)
    assert valid.type == pa.large_list(pa.bool_())


@pytest.mark.parametrize("name", ["fps", "source", "video", "features"])
def test_a_feature_called_like_a_column_of_the_table(name: str) -> None:
    feature = FeatureSpec(name=name, source_name=name, dtype="float32", shape=())
    assert feature.column == f"{name}:float32"


@pytest.mark.parametrize("text", ["plain", "it's", "'' OR 1=1 --", "tab\t"])
def test_a_filter_quotes_its_text(text: str) -> None:
    assert equals("a", text) == "a = '" + text.replace("'", "''") + "'"
