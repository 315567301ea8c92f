"""A plan handed to another process: its header as JSON and its tables as Arrow IPC, in a memfd.

The other process maps it, so a plan is in memory once however many processes stream it.
"""

import mmap
import os
import struct
from typing import Final

import pyarrow as pa

from loader.errors import LoaderError
from packing.plan import TABLE_SCHEMAS, Plan
from packing.plan_header import PlanHeader

_LENGTH: Final = struct.Struct("<Q")


def plan_to_memfd(plan: Plan) -> int:
    """Write a plan; returns the descriptor, which the caller closes."""
    fd = os.memfd_create("headrace-plan", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            header = plan.header.to_json().encode()
            header += b" " * (-(len(header) + _LENGTH.size) % 64)  # the tables want alignment
            file.write(_LENGTH.pack(len(header)) + header)
            for name in TABLE_SCHEMAS:
                table: pa.Table = getattr(plan, name)
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table)
    except BaseException:
        os.close(fd)
        raise
    return fd


def plan_from_memfd(fd: int) -> Plan:
    """Map a plan that `plan_to_memfd` wrote; the descriptor may be closed afterwards.

    Raises:
        LoaderError: the memory does not hold a plan.
    """
    try:
        reader = pa.BufferReader(pa.py_buffer(mmap.mmap(fd, 0, prot=mmap.PROT_READ)))
        (length,) = _LENGTH.unpack(reader.read(_LENGTH.size))
        header = PlanHeader.from_json(reader.read(length).decode())
        tables = {name: pa.ipc.open_stream(reader).read_all() for name in TABLE_SCHEMAS}
        return Plan(header=header, **tables)
    except (OSError, ValueError, struct.error, pa.ArrowException) as error:
        raise LoaderError(f"the plan could not be handed over ({error})") from error
