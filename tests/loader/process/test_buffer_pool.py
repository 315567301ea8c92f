"""The buffer pool: bounded, reused, given back."""

import os
import threading
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from loader.process.buffer_pool import BufferPool


def test_a_released_buffer_is_used_again() -> None:
    pool = BufferPool(1 << 20, shared=False)
    first = pool.acquire(100_000)
    pool.taken(first.number)
    pool.release(first.number)
    assert pool.acquire(90_000).number == first.number


def test_a_buffer_in_the_consumer_s_hands_is_not_used_again() -> None:
    pool = BufferPool(1 << 20, shared=False)
    first = pool.acquire(100_000)
    pool.taken(first.number)
    assert pool.acquire(100_000).number != first.number


def test_the_limit_counts_what_is_ahead_and_waits() -> None:
    pool = BufferPool(300_000, shared=False)
    first = pool.acquire(200_000)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(pool.acquire(200_000).number))
    waiting.start()
    assert not got
    pool.taken(first.number)  # handed out: no longer ahead
    waiting.join(10)
    assert got == [1]


def test_one_buffer_passes_however_large() -> None:
    pool = BufferPool(1000, shared=False)
    assert pool.acquire(5_000_000).capacity >= 5_000_000


@given(
    sizes=st.lists(st.integers(1, 1 << 19), min_size=1, max_size=30),
    held=st.integers(0, 3),
)
def test_free_memory_stays_below_the_limit(sizes: list[int], held: int) -> None:
    limit = 1 << 20
    pool = BufferPool(limit, shared=False)
    hands: list[int] = []
    made: dict[int, int] = {}
    for size in sizes:
        buffer = pool.acquire(size)
        assert buffer.capacity >= size
        assert buffer.number not in hands
        made[buffer.number] = max(size, made.get(buffer.number, 0))
        assert pool.ahead_bytes == size
        pool.taken(buffer.number)
        hands.append(buffer.number)
        while len(hands) > held:
            pool.release(hands.pop(0))
        for number in pool.take_dropped():
            del made[number]
        free = sum(used for number, used in made.items() if number not in hands)
        assert free <= limit


def test_shared_buffers_are_memfds_and_dropping_closes_them(open_fds: Callable[[], int]) -> None:
    pool = BufferPool(1 << 20, shared=True)
    small = pool.acquire(1000)
    small.memory()[:4] = [1, 2, 3, 4]
    assert os.pread(small.fd, 4, 0) == bytes([1, 2, 3, 4])
    before = open_fds()
    pool.taken(small.number)
    pool.release(small.number)
    number = small.number
    del small  # the mapping goes with its last user
    large = pool.acquire(1 << 19)  # nothing free is large enough: the small one makes room
    assert pool.take_dropped() == [number]
    assert open_fds() <= before
    os.close(large.fd)
