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
    A buffer goes: acquire -> (filled, queued) -> taken -> released -> acquire. Bytes are counted
    as used: a buffer is made as large as the largest one so far, so that all of them serve any
    pack, and its pages cost nothing until they are written.
    """

    def __init__(self, limit_bytes: int, *, shared: bool) -> None:
        self._limit = limit_bytes
        self._shared = shared
        self._changed = threading.Condition()
        self._buffers: dict[int, Buffer] = {}
        self._ahead: dict[int, int] = {}  # number -> bytes in use
        self._free: dict[int, None] = {}  # the longest free first
        self._touched: dict[int, int] = {}  # number -> bytes ever written
        self._made = 0
        self._dropped: list[int] = []

    @property
    def ahead_bytes(self) -> int:
        """Bytes filled or being filled, and not yet taken."""
        with self._changed:
            return sum(self._ahead.values())

    def acquire(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`; waits while the limit is reached."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(nbytes))
            # The one given back last: its pages are the likeliest to be in the caches.
            fitting = [n for n in self._free if self._buffers[n].capacity >= nbytes]
            buffer = self._buffers[fitting[-1]] if fitting else self._make(nbytes)
            self._free.pop(buffer.number, None)
            self._ahead[buffer.number] = nbytes
            self._touched[buffer.number] = max(nbytes, self._touched.get(buffer.number, 0))
            return buffer

    def taken(self, number: int) -> None:
        """The consumer has been handed this buffer."""
        with self._changed:
            del self._ahead[number]
            self._changed.notify_all()

    def release(self, number: int) -> None:
        """The consumer has let go of this buffer."""
        with self._changed:
            self._free[number] = None
            while sum(self._touched[n] for n in self._free) > self._limit:
                self._drop(next(iter(self._free)))

    def take_dropped(self) -> list[int]:
        """Numbers of buffers given up since the last call, to be unmapped by the consumer."""
        with self._changed:
            dropped, self._dropped = self._dropped, []
            return dropped

    def _fits(self, nbytes: int) -> bool:
        return not self._ahead or sum(self._ahead.values()) + nbytes <= self._limit

    def _make(self, nbytes: int) -> Buffer:
        while self._free:  # all too small, now and from now on
            self._drop(next(iter(self._free)))
        largest = max((b.capacity for b in self._buffers.values()), default=0)
        step = max(_SMALLEST, (1 << max(nbytes - 1, 1).bit_length()) >> 3)
        capacity = max(-(-nbytes // step) * step, largest)
        number, self._made = self._made, self._made + 1
        if self._shared:
            fd = os.memfd_create("headrace-batch", os.MFD_CLOEXEC)
            os.ftruncate(fd, capacity)
            pages = mmap.mmap(fd, capacity)
        else:
            fd, pages = -1, mmap.mmap(-1, capacity)
        self._buffers[number] = Buffer(number=number, pages=pages, fd=fd)
        return self._buffers[number]

    def _drop(self, number: int) -> None:
        del self._free[number], self._touched[number]
        buffer = self._buffers.pop(number)
        if buffer.fd >= 0:
            os.close(buffer.fd)
        self._dropped.append(number)
