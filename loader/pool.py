"""Buffers that batches are decoded into, used again and again.

A fresh page costs a fault and a clearing: for a pack of pictures that is a tenth of its decode.
So a buffer that the consumer has let go of is filled again. The bound counts what runs ahead of
the consumer; a batch that the consumer keeps is the consumer's memory.
"""

import mmap
import os
import threading
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SMALLEST: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Memory of one batch.

    Attributes:
        number: names it towards the consumer's process.
        pages: the memory.
        fd: its memfd where another process is to map it, else -1.
    """

    number: int
    pages: mmap.mmap
    fd: int

    @property
    def capacity(self) -> int:
        """Bytes it can hold."""
        return len(self.pages)

    def memory(self) -> NDArray[np.uint8]:
        """uint8 [capacity]: a new array on the memory, whose life tells that of one hand-out.

        Views of it refer to it and not to the buffer, so it lives as long as any of them.
        """
        return np.frombuffer(self.pages, np.uint8)


class BufferPool:
    """Buffers with at most `limit_bytes` filled ahead of the consumer; safe to use from threads.

    One buffer is always granted, however large, so that a pack above the limit still passes.
    A buffer goes: acquire -> (filled, queued) -> taken -> released -> acquire.
    """

    def __init__(self, limit_bytes: int, *, shared: bool) -> None:
        self._limit = limit_bytes
        self._shared = shared
        self._changed = threading.Condition()
        self._ahead: dict[int, Buffer] = {}
        self._taken: dict[int, Buffer] = {}
        self._free: dict[int, Buffer] = {}
        self._next = 0
        self._dropped: list[int] = []

    @property
    def ahead_bytes(self) -> int:
        """Bytes filled or being filled, and not yet taken."""
        with self._changed:
            return sum(buffer.capacity for buffer in self._ahead.values())

    def acquire(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`; waits while the limit is reached."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(nbytes))
            fitting = [b for b in self._free.values() if b.capacity >= nbytes]
            if fitting:
                buffer = min(fitting, key=lambda b: b.capacity)
                del self._free[buffer.number]
            else:
                buffer = self._create(nbytes)
            self._ahead[buffer.number] = buffer
            return buffer

    def taken(self, number: int) -> None:
        """The consumer has been handed this buffer."""
        with self._changed:
            self._taken[number] = self._ahead.pop(number)
            self._changed.notify_all()

    def release(self, number: int) -> None:
        """The consumer has let go of this buffer."""
        with self._changed:
            self._free[number] = self._taken.pop(number)
            # Free buffers beyond the limit go, the ones free for the longest time first.
            while sum(b.capacity for b in self._free.values()) > self._limit:
                self._drop(next(iter(self._free)))
            self._changed.notify_all()

    def take_dropped(self) -> list[int]:
        """Numbers of buffers given up since the last call, to be unmapped by the consumer."""
        with self._changed:
            dropped, self._dropped = self._dropped, []
            return dropped

    def _fits(self, nbytes: int) -> bool:
        ahead = sum(buffer.capacity for buffer in self._ahead.values())
        return ahead == 0 or ahead + nbytes <= self._limit

    def _create(self, nbytes: int) -> Buffer:
        # Packs differ a little in size; an eighth of slack lets a buffer serve most of them.
        step = max(_SMALLEST, (1 << max(nbytes - 1, 1).bit_length()) >> 4)
        capacity = -(-nbytes // step) * step
        if self._free:
            # None of the free ones is large enough: the smallest makes room for this one.
            self._drop(min(self._free.values(), key=lambda b: b.capacity).number)
        number, self._next = self._next, self._next + 1
        if not self._shared:
            return Buffer(number=number, pages=mmap.mmap(-1, capacity), fd=-1)
        fd = os.memfd_create("headrace-batch", os.MFD_CLOEXEC)
        os.ftruncate(fd, capacity)
        return Buffer(number=number, pages=mmap.mmap(fd, capacity), fd=fd)

    def _drop(self, number: int) -> None:
        buffer = self._free.pop(number)
        if buffer.fd >= 0:
            os.close(buffer.fd)
        self._dropped.append(number)
