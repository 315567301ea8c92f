"""Rows of a Lance dataset through the node's cache.

A row is known by the data files that hold it and its place in them. Lance never changes a file and
names it by chance, so that stays right for every lake, URI and version; unlike the hash of an
episode's content, which says nothing of its id or spec.
"""

from collections.abc import Callable, Sequence

import lance
import pyarrow as pa

from loader.storage.node_cache import CacheCounts, NodeCache, entry_name


class RowNames:
    """Names of the cache's entries for rows of one dataset; safe to use from several threads.

    Args:
        dataset: gives the dataset, at the version that is read.
    """

    def __init__(self, dataset: Callable[[], lance.LanceDataset]) -> None:
        self._dataset = dataset
        self._columns: dict[tuple[str, ...], str] = {}
        self._files: dict[int, str] = {}

    def of(self, address: int, columns: Sequence[str]) -> str:
        """The name of some columns of a row, whether it is there or not."""
        key = tuple(columns)
        if key not in self._columns:
            schema = self._dataset().schema
            types = [f"{name} {schema.field(name)}" for name in columns]
            self._columns[key] = "\n".join(types)
        fragment = address >> 32
        if fragment not in self._files:
            found = self._dataset().get_fragment(fragment)
            files = [] if found is None else [file.path for file in found.data_files()]
            # An episode made by an edit has no file; its address is a hash of what it is.
            self._files[fragment] = "\n".join(files) or f"{self._dataset().uri} {fragment}"
        row = address & 0xFFFFFFFF
        return entry_name("row", self._files[fragment], str(row), self._columns[key])


def read_rows(
    cache: NodeCache,
    names: Sequence[str],
    load: Callable[[Sequence[int]], pa.Table],
    *,
    renew: bool = False,
) -> tuple[pa.Table, CacheCounts]:
    """Rows by the names of their entries, in their order, repeats allowed.

    Args:
        cache: of the node.
        names: as `RowNames.of` gives them, at least one.
        load: the rows with these indexes, in their order.
        renew: load all of them, whatever is cached.

    Returns:
        The rows as single-chunk columns, and what came from the cache.
    """
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        first.setdefault(name, number)
    distinct = list(first)

    def missing(numbers: Sequence[int]) -> list[memoryview]:
        rows = load([first[distinct[number]] for number in numbers])
        return [_to_bytes(rows, row) for row in range(rows.num_rows)]

    found: dict[str, pa.Table] = {}
    counts = CacheCounts()
    for number, payload, hit in cache.read(distinct, [0] * len(distinct), missing, renew=renew):
        found[distinct[number]] = pa.ipc.open_stream(pa.py_buffer(payload)).read_all()
        counts.add(hit, len(payload))
    return pa.concat_tables([found[name] for name in names]).combine_chunks(), counts


def _to_bytes(rows: pa.Table, row: int) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.slice(row, 1))
    return memoryview(sink.getvalue())
