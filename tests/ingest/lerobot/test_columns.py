from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ingest.errors import EpisodeError
from ingest.lerobot.columns import read_column

VECTORS = [[0.1, -2.5, 1e300], [3.0, float("nan"), -0.0]]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 3)],
)
def test_every_list_type_gives_the_same_vectors(kind: pa.DataType) -> None:
    column = read_column("v", pa.chunked_array([pa.array(VECTORS, kind)]))
    assert column.values.shape == (2, 3)
    assert column.values.tobytes() == np.array(VECTORS).tobytes()
    assert column.valid is None


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]
)
def test_dtypes_are_kept(dtype: str) -> None:
    values = np.array([0, 1, 1], dtype=dtype)
    column = read_column("v", pa.chunked_array([pa.array(values)]))
    assert column.values.dtype == values.dtype
    assert column.values.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.float32())),
        pa.list_(pa.list_(pa.float32(), 2)),
        pa.list_(pa.list_(pa.float32(), 2), 3),
    ],
)
def test_nested_lists_are_matrices(kind: pa.DataType) -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    column = read_column("chunk", pa.chunked_array([pa.array(values.tolist(), kind)]))
    assert column.values.shape == (2, 3, 2)
    assert column.values.tobytes() == values.tobytes()


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.list_(pa.int32(), 2)])
def test_a_slice_over_chunks_reads_its_own_rows(kind: pa.DataType) -> None:
    chunks = [pa.array([[i, i + 1] for i in range(n, n + 4)], kind) for n in (0, 4)]
    column = read_column("v", pa.chunked_array(chunks).slice(3, 3))
    assert column.values.tolist() == [[3, 4], [4, 5], [5, 6]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_null_vectors_are_masked_not_filled(kind: pa.DataType) -> None:
    column = read_column("v", pa.chunked_array([pa.array([[1, 2], None, [3, 4]], kind)]))
    assert column.valid is not None
    assert column.valid.tolist() == [True, False, True]
    assert np.isnan(column.values[1]).all()
    assert column.values[[0, 2]].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("kind", "filler"),
    [(pa.float32(), np.nan), (pa.int64(), 0), (pa.bool_(), False), (pa.string(), "")],
)
def test_null_scalars_are_masked(kind: pa.DataType, filler: Any) -> None:
    good = {pa.string(): "a", pa.bool_(): True}.get(kind, 1)
    column = read_column("v", pa.chunked_array([pa.array([good, None], kind)]))
    assert column.valid is not None
    assert column.valid.tolist() == [True, False]
    np.testing.assert_array_equal(column.values[1], filler)


@pytest.mark.parametrize(
    ("values", "kind", "reason"),
    [
        ([[1.0], [1.0, 2.0]], pa.list_(pa.float32()), "ragged-feature"),
        ([[[1.0], [1.0, 2.0]]], pa.list_(pa.list_(pa.float32())), "ragged-feature"),
        ([[[1.0], None]], pa.list_(pa.list_(pa.float32())), "ragged-feature"),
        ([[1, None]], pa.list_(pa.int32()), "null-elements"),
        ([None, None], pa.null(), "unsupported-type"),
        ([b"\xff"], pa.binary(), "unsupported-type"),
    ],
)
def test_what_has_no_array_is_an_error(values: list[Any], kind: pa.DataType, reason: str) -> None:
    with pytest.raises(EpisodeError) as raised:
        read_column("feature.x", pa.chunked_array([pa.array(values, kind)]))
    assert raised.value.reason == reason
    assert raised.value.stream == "feature.x"
    assert "feature.x" in str(raised.value)


def test_nested_text_becomes_json() -> None:
    kind = pa.list_(pa.struct([("role", pa.string()), ("t", pa.float64())]))
    rows = [[{"role": "user", "t": 0.5}], []]
    column = read_column("language_events", pa.chunked_array([pa.array(rows, kind)]))
    assert column.as_json
    assert column.values.tolist() == ['[{"role":"user","t":0.5}]', "[]"]


def test_text_is_kept() -> None:
    column = read_column("note", pa.chunked_array([pa.array(["a", "é"])]))
    assert column.values.tolist() == ["a", "é"]
    assert not column.as_json


def test_text_that_is_not_utf8_is_an_error() -> None:
    text = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())
    for column in (text, pa.ListArray.from_arrays([0, 1, 2], text)):
        with pytest.raises(EpisodeError, match="not UTF-8") as raised:
            read_column("note", pa.chunked_array([column]))
        assert raised.value.reason == "bad-text"
