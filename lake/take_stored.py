"""Rows of `trajectories` that were written, by address, in one request."""

from collections.abc import Sequence

import pyarrow as pa

from lake.errors import EpisodeNotFoundError, LakeError
from lake.store import Lake
from lake.transient import is_transient


def take_stored_rows(lake: Lake, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """The rows in the order of `addresses` (repeats allowed), as single-chunk columns.

    Raises:
        EpisodeNotFoundError: an address that was never written, or whose row was deleted.
    """
    dataset = lake.dataset("trajectories")
    names = list(columns)
    if not addresses:
        return dataset.schema.empty_table().select(names)
    try:
        with lake.errors_named("read rows"):
            rows = dataset._take_rows(list(addresses), columns=names)  # noqa: SLF001 - no public take by address
    except LakeError as error:
        raise missing_address(lake, addresses, error) from error
    # Lance leaves deleted rows out without a word.
    if rows.num_rows != len(addresses):
        raise missing_address(lake, addresses, None)
    return rows.combine_chunks()


def missing_address(lake: Lake, addresses: Sequence[int], error: LakeError | None) -> LakeError:
    """The error to raise after a read by address failed: names the missing row if that is why."""
    if error is not None and is_transient(lake.uri, error):
        return error
    dataset = lake.dataset("trajectories")
    rows_of = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    for address in dict.fromkeys(addresses):
        fragment = rows_of.get(address >> 32)
        exists = fragment is not None and (address & 0xFFFFFFFF) < fragment.physical_rows
        try:
            with lake.errors_named("look for a row"):
                if exists and dataset._take_rows([address], columns=["episode_id"]).num_rows:  # noqa: SLF001
                    continue
        except LakeError as failed:
            return error or failed
        return EpisodeNotFoundError(
            f"{lake.uri}: no row at address {address} in version {dataset.version}: it was deleted"
            " or belongs to another lake; plan again, or open the version the plan pins"
        )
    return error or LakeError(f"{lake.uri}: rows could not be read")
