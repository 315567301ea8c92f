"""Reading ahead changes no pack: order, equality, room, overlap, errors, and the end of threads."""

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from lake import EpisodeWriter, Lake, create_lake
from lake.errors import LakeError
from lake.read_video import ByteRange, read_ranges
from lake.take import take_rows
from loader.cursor import Cursor
from loader.fetch import read_ahead
from loader.fetch.fetched import FetchedPack
from loader.fetch.fetcher import WINDOW_PACKS, Fetcher, FetchLimits
from loader.fetch.plan_rows import PlanRows
from loader.fetch.planned_pack import Inspect
from loader.observe.metrics import LoaderMetrics
from loader.storage.tiers import Tiers
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.episodes import make_episode
from tests.loader.scenes import coded_video, scene_plan

_WAIT_S = 30.0  # a broken test ends
_ROOM = FetchLimits(packet_bytes=1 << 28, kept_frame_bytes=1 << 16, episode_bytes=1 << 28)


T = TypeVar("T")


class PlainTiers(Tiers):
    """Reads the lake; `before` is called with `rows` or `ranges` and what is asked for."""

    def __init__(self, lake: Lake, before: Callable[[str, Sequence[Any]], None]) -> None:
        self.lake = lake
        self.before = before

    def read(self, what: str, read: Callable[[], T]) -> T:  # noqa: ARG002 - as in `Tiers`
        return read()

    def rows(
        self, addresses: Sequence[int], columns: Sequence[str], *, past_caches: bool = False
    ) -> pa.Table:
        assert not past_caches
        self.before("rows", addresses)
        return take_rows(self.lake, addresses, columns)

    def ranges(self, ranges: Sequence[ByteRange], *, past_caches: bool = False) -> list[bytes]:
        assert not past_caches
        self.before("ranges", ranges)
        return read_ranges(self.lake, ranges)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """More episodes than a window of packs touches."""
    lake = create_lake(tmp_path_factory.mktemp("many") / "many.lake")
    video = [coded_video(seed, 14) for seed in range(3)]
    with EpisodeWriter(lake) as writer:
        for number in range(36):
            cameras = {"top": video[number % 3], "wrist": video[number % 2]}
            writer.add(make_episode(number, steps=14, cameras=cameras))
    lake.refresh()
    return lake


@pytest.fixture(scope="module")
def long(many: Lake) -> Plan:
    """Many small packs, of a few episodes at a time."""
    settings: dict[str, Any] = {"budget_tokens": 128, "slots_per_step": 1, "open_runs": 6}
    return scene_plan(many, spans=WindowSpans(horizon=3), **settings)


Packs = Generator[FetchedPack]


def _fetch(
    many: Lake,
    plan: Plan,
    before: Callable[[str, Sequence[Any]], None] = lambda *_: None,
    *,
    limits: FetchLimits = _ROOM,
    metrics: LoaderMetrics | None = None,
    inspect: Inspect = lambda pack: pack,
) -> tuple[Fetcher, Packs]:
    rows = PlanRows(plan)
    cursor = Cursor(
        plan_hash=plan.plan_hash, num_steps=plan.num_steps, slots_per_step=1, rank=0, world_size=1
    )
    tiers = PlainTiers(many.at(plan.header.versions), before)
    fetcher = Fetcher(tiers, rows, cursor, limits, metrics or LoaderMetrics(), inspect)
    return fetcher, fetcher.packs(cursor.blocks(0, WINDOW_PACKS))


def _packs(*args: Any, **options: Any) -> Packs:
    return _fetch(*args, **options)[1]


def _next_when_rows_are_here(fetcher: Fetcher, packs: Packs) -> FetchedPack:
    """The next pack, with all rows that were asked for read before it is."""
    wait([read for read, _ in fetcher._loads._reads], _WAIT_S)
    return next(packs)


def _digest(pack: FetchedPack) -> str:
    """Of all that a pack decodes, shows, keeps and drops."""
    digest = hashlib.sha256(f"{pack.row.place} {pack.pictures.reused}".encode())
    for frames in (pack.pictures.decode, pack.pictures.keep, pack.pictures.drop):
        digest.update(repr({stream.label: each for stream, each in frames.items()}).encode())
    for run in pack.runs:
        digest.update(f"{run.stream.label} {run.run.first_packet} {run.run.frames}".encode())
        digest.update(run.data)
    for array in (pack.signals.state, pack.signals.action, pack.images.frame, pack.images.step):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _names() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("headrace ")]


class Lottery:
    """Lets one of the reads that wait go on, drawn by a seed, over and over."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, *_: object) -> None:
        """Until it is our turn."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: ticket not in self._waiting, _WAIT_S)

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._thread.join(_WAIT_S)

    def _run(self) -> None:
        with self._changed:
            while self._changed.wait_for(lambda: self._waiting or self._over) and not self._over:
                self._waiting.remove(self._draw.choice(self._waiting))
                self._changed.notify_all()


@pytest.fixture(scope="module")
def expected(many: Lake, long: Plan) -> tuple[list[str], Counter[str]]:
    """Digests and counts where no read has to wait."""
    metrics = LoaderMetrics()
    digests = [_digest(pack) for pack in _packs(many, long, metrics=metrics)]
    assert len(digests) == long.packs.num_rows > 4 * WINDOW_PACKS
    return digests, metrics.counts


@pytest.mark.parametrize("seed", range(4))
def test_reads_that_end_in_any_order_give_the_same_packs(
    many: Lake, long: Plan, expected: tuple[list[str], Counter[str]], seed: int
) -> None:
    metrics = LoaderMetrics()
    with closing(Lottery(seed)) as lottery:
        found = [_digest(pack) for pack in _packs(many, long, lottery.wait, metrics=metrics)]
    assert (found, metrics.counts) == expected


def _pack_bytes(pack: FetchedPack) -> int:
    return sum(len(run.data) for run in pack.runs)


@pytest.mark.parametrize("packs", [0, 2, 12, 40])
def test_packets_under_way_stay_within_their_bytes(many: Lake, long: Plan, packs: int) -> None:
    sizes = [_pack_bytes(pack) for pack in _packs(many, long)]
    signals = max(
        pack.signals.state.nbytes + pack.signals.action.nbytes for pack in _packs(many, long)
    )
    limit = packs * (max(sizes) + signals)
    lock, held, most, calls = threading.Lock(), 0, 0, 0

    def before(kind: str, wanted: Sequence[Any]) -> None:
        nonlocal held, most, calls
        if kind == "ranges":
            with lock:
                calls += bool(wanted)
                held += sum(part.length for part in wanted)
                most = max(most, held)

    limits = replace(_ROOM, packet_bytes=limit)
    for pack, size in zip(_packs(many, long, before, limits=limits), sizes, strict=True):
        assert _pack_bytes(pack) == size
        with lock:
            held -= size  # its owner is done with it
    assert most <= max(limit, *sizes)
    if packs == 0:
        assert calls == sum(size > 0 for size in sizes)  # one by one
    if packs == 40:
        assert most > sum(sizes[: 2 * WINDOW_PACKS])  # several windows


def test_later_reads_begin_while_a_pack_is_in_use(many: Lake, long: Plan) -> None:
    begun = {"rows": threading.Semaphore(0), "ranges": threading.Semaphore(0)}
    fetcher, packs = _fetch(many, long, lambda kind, _: begun[kind].release())
    with closing(packs):
        pack = None
        for _ in range(WINDOW_PACKS):
            pack = _next_when_rows_are_here(fetcher, packs)
        assert pack is not None
        assert pack.row.place.position < WINDOW_PACKS  # of the first window
        for kind in ("rows", "ranges"):
            for _ in range(3):  # two of the first window at the most, and one ahead
                assert begun[kind].acquire(timeout=_WAIT_S), kind


def test_the_first_pack_waits_for_its_own_packets_alone(many: Lake, long: Plan) -> None:
    asked: list[int] = []
    sizes = [_pack_bytes(pack) for pack in _packs(many, long)]

    def before(kind: str, wanted: Sequence[Any]) -> None:
        if kind == "ranges":
            asked.append(sum(part.length for part in wanted))

    assert len(list(_packs(many, long, before))) == len(sizes)
    assert {sizes[0], sum(sizes[1:WINDOW_PACKS])} <= set(asked)


class AfterFirstWindow:
    """Tells reads of packets apart: those of the first window, and later ones."""

    def __init__(self) -> None:
        self._left = threading.Semaphore(2)  # of the first pack, and of the others

    def __call__(self, kind: str) -> bool:
        return kind == "ranges" and not self._left.acquire(blocking=False)


def test_several_windows_are_read_at_once(many: Lake, long: Plan) -> None:
    later, together, passed = AfterFirstWindow(), threading.Barrier(2), threading.Semaphore(0)

    def before(kind: str, _: Sequence[Any]) -> None:
        if later(kind):
            together.wait(_WAIT_S)  # none passes alone
            passed.release()

    fetcher, packs = _fetch(many, long, before)
    with closing(packs):
        for _ in range(WINDOW_PACKS):
            _next_when_rows_are_here(fetcher, packs)
        assert passed.acquire(timeout=_WAIT_S)
        together.abort()


class StoreDownError(LakeError):
    """The store cannot be read."""


@pytest.mark.parametrize("position", [0, 2 * WINDOW_PACKS + 1, 9 * WINDOW_PACKS - 1])
@pytest.mark.parametrize("kind", ["rows", "ranges"])
def test_an_error_comes_behind_all_packs_before_it(
    many: Lake, long: Plan, kind: str, position: int
) -> None:
    packs = list(_packs(many, long))
    at, episode = next(
        (pack.row.place.position, episode)
        for number, pack in enumerate(packs[position:], position)
        for episode in pack.row.episode.tolist()
        if not any(episode in before.row.episode for before in packs[:number])
    )
    address = int(PlanRows(long).address[episode])

    def before(asked: str, wanted: Sequence[Any]) -> None:
        here = wanted if asked == "rows" else [part.address for part in wanted]
        if asked == kind and address in here:
            raise StoreDownError("the store is down")

    found: list[int] = []
    with pytest.raises(StoreDownError, match="the store is down"):
        found.extend(pack.row.place.position for pack in _packs(many, long, before))
    assert found == list(range(at // WINDOW_PACKS * WINDOW_PACKS))
    assert not _names()


def test_a_damaged_plan_fails_behind_all_packs_before_it(
    many: Lake, long: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = PlanRows.read
    bad = 2 * WINDOW_PACKS

    def fail(self: PlanRows, places: Sequence[Any]) -> Any:
        if any(place.position == bad for place in places):
            raise StoreDownError("no such pack")
        return read(self, places)

    monkeypatch.setattr(PlanRows, "read", fail)
    found: list[int] = []
    with pytest.raises(StoreDownError, match="no such pack"):
        found.extend(pack.row.place.position for pack in _packs(many, long))
    assert found == list(range(bad))


def test_packs_are_inspected_where_they_were_read(many: Lake, long: Plan) -> None:
    threads: set[str] = set()

    def inspect(pack: FetchedPack) -> FetchedPack:
        threads.add(threading.current_thread().name)
        if pack.row.place.position == WINDOW_PACKS + 3:
            raise StoreDownError("bad packet")
        return replace(pack, runs=())

    found: list[FetchedPack] = []
    with pytest.raises(StoreDownError, match="bad packet"):
        found.extend(_packs(many, long, inspect=inspect))
    assert [pack.row.place.position for pack in found] == list(range(WINDOW_PACKS))
    assert all(pack.runs == () for pack in found)
    assert threads == {"headrace video"}


@pytest.mark.parametrize("taken", [0, 1, WINDOW_PACKS + 2, None])
def test_no_thread_is_left(many: Lake, long: Plan, taken: int | None) -> None:
    packs = _packs(many, long)
    if taken is None:
        assert len(list(packs)) == long.packs.num_rows
    else:
        for _ in range(taken):
            next(packs)
        del packs
    assert not _names()


def test_closing_does_not_wait_for_a_read_that_hangs(
    many: Lake, long: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_END_S", 0.0)
    later, hanging, go_on = AfterFirstWindow(), threading.Semaphore(0), threading.Event()

    def before(kind: str, _: Sequence[Any]) -> None:
        if later(kind):
            hanging.release()
            assert go_on.wait(_WAIT_S)

    fetcher, packs = _fetch(many, long, before)
    for _ in range(WINDOW_PACKS):
        _next_when_rows_are_here(fetcher, packs)
    assert hanging.acquire(timeout=_WAIT_S)
    packs.close()
    assert not go_on.is_set()
    go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("headrace "):
            thread.join(_WAIT_S)
    assert not _names()
