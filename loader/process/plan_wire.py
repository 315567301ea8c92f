"""A plan handed to another process in a memfd: its header, and how to come by its tables.

Of a stored plan the other process gets the digests and reads the rest from the lake as it goes. A
plan in memory has its tables there too, as Arrow IPC; the other process maps them, so they are in
memory once however many processes stream it.
"""

import mmap
import os
import struct
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from lake.store import Lake
from loader.errors import LoaderError
from packing.plan import TABLE_SCHEMAS, Plan
from packing.plan_header import PlanHeader
from packing.stored_plan import AnyPlan, StoredPlan

_PREFACE: Final = struct.Struct("<QQ")  # bytes of the header, 1 where the plan is stored


def plan_to_memfd(plan: AnyPlan) -> int:
    """Write a plan; returns the descriptor, which the caller closes."""
    tables: Mapping[str, pa.Table] = (
        {"digests": plan.digests}
        if isinstance(plan, StoredPlan)
        else {name: getattr(plan, name) for name in TABLE_SCHEMAS}
    )
    fd = os.memfd_create("headrace-plan", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            header = plan.header.to_json().encode()
            header += b" " * (-(len(header) + _PREFACE.size) % 64)  # the tables want alignment
            file.write(_PREFACE.pack(len(header), isinstance(plan, StoredPlan)) + header)
            for table in tables.values():
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table)
    except BaseException:
        os.close(fd)
        raise
    return fd


def plan_from_memfd(fd: int, lake: Lake) -> AnyPlan:
    """Map a plan that `plan_to_memfd` wrote; the descriptor may be closed afterwards.

    Args:
        fd: the memory.
        lake: that holds the plan, where it is a stored one.

    Raises:
        LoaderError: the memory does not hold a plan.
    """
    try:
        reader = pa.BufferReader(pa.py_buffer(mmap.mmap(fd, 0, prot=mmap.PROT_READ)))
        length, stored = _PREFACE.unpack(reader.read(_PREFACE.size))
        header = PlanHeader.from_json(reader.read(length).decode())
        names = ("digests",) if stored else tuple(TABLE_SCHEMAS)
        tables = {name: pa.ipc.open_stream(reader).read_all() for name in names}
        return StoredPlan(lake, header, **tables) if stored else Plan(header=header, **tables)
    except (OSError, ValueError, struct.error, pa.ArrowException) as error:
        raise LoaderError(f"the plan could not be handed over ({error})") from error
