"""Rows of `trajectories` by address, in one request."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lake.edit.read_views import view_rows
from lake.edit.view import is_view
from lake.store import Lake
from lake.take_stored import take_stored_rows


def take_rows(lake: Lake, addresses: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """The rows in the order of `addresses` (repeats allowed), as single-chunk columns.

    Raises:
        EpisodeNotFoundError: an address that was never written, or whose row was deleted.
    """
    views = [number for number, address in enumerate(addresses) if is_view(address)]
    if not views:
        return take_stored_rows(lake, addresses, columns)
    made = view_rows(lake, [addresses[number] for number in views], columns)
    if len(views) == len(addresses):
        return made
    others = [number for number, address in enumerate(addresses) if not is_view(address)]
    stored = take_stored_rows(lake, [addresses[number] for number in others], columns)
    order = np.argsort([*others, *views])
    return pa.concat_tables([stored, made]).take(pa.array(order)).combine_chunks()
