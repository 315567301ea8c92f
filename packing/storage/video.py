"""Which groups of pictures are decoded when, what is read for them and what is kept."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from packing.plan import Plan
from packing.seeded import STREAM_SAMPLE, random_words
from packing.spans import Int64s
from packing.storage.columns import Reads, column_reads
from packing.storage.facts import StorageFacts
from packing.storage.packs import WINDOW_PACKS, ReadPacks, spans_of

_DESCRIPTOR_BYTES: Final = 29


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Pictures that packs show, int64 [n] each.

    Attributes:
        pack: row of the replayed packs.
        stream: episode * C + camera.
        frame: display ordinal.
    """

    pack: Int64s
    stream: Int64s
    frame: Int64s

    def take(self, rows: NDArray[np.generic]) -> "Shown":
        """Those at `rows`, in that order."""
        return Shown(pack=self.pack[rows], stream=self.stream[rows], frame=self.frame[rows])


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Groups of pictures as they are decoded, n times.

    Attributes:
        pack: int64 [n], the pack that needs it.
        read_pack: int64 [n], the pack that reads it: packets that lie back to back are read by the
            first pack that needs some of them, for all packs that it knows to come.
        stream: int64 [n], episode * C + camera.
        begin: float64 [n], first byte among the packets of the episode.
        size: float64 [n], bytes read.
        frames: int64 [n], frames decoded, up to the last that is wanted.
        wanted: int64 [n], of them, those that are shown.
        kept_frames, kept_bytes: int64 [P], what a reader keeps at each pack.
    """

    pack: Int64s
    read_pack: Int64s
    stream: Int64s
    begin: NDArray[np.float64]
    size: NDArray[np.float64]
    frames: Int64s
    wanted: Int64s
    kept_frames: Int64s
    kept_bytes: Int64s


def shown_pictures(plan: Plan, facts: StorageFacts, packs: ReadPacks) -> Shown:
    """The pictures of the replayed packs, each camera of the episode at each observed step."""
    pack, (episode, start, stop, stride) = spans_of(
        plan, packs, "episode", "start", "stop", "stride"
    )
    observed = -((start - stop) // stride)
    span = np.repeat(np.arange(len(pack)), observed)
    nth = np.arange(len(span)) - np.repeat(np.cumsum(observed) - observed, observed)
    step, of, pack = start[span] + nth * stride[span], episode[span], pack[span]
    cameras = facts.frames.shape[1]
    parts = [np.zeros((3, 0), np.int64)]
    for camera in range(cameras):
        frames = facts.frames[of, camera]
        there = frames > 0
        frame = step[there] * frames[there] // facts.num_steps[of[there]]
        parts.append(np.stack([pack[there], of[there] * cameras + camera, frame]))
    pack, stream, frame = np.concatenate(parts, axis=1)
    return Shown(pack=pack, stream=stream, frame=frame)


def decode_groups(
    shown: Shown,
    facts: StorageFacts,
    packs: ReadPacks,
    *,
    ahead: int,
    keep_share: NDArray[np.float64],
) -> Decoding:
    """Decode each group whenever it shows a picture that is not kept.

    Args:
        shown: the pictures.
        facts: of the episodes.
        packs: that show them.
        ahead: packs that are known beyond those of the window.
        keep_share: float64 [P], of the decodings of a pack those that find room for what coming
            packs show; the others show their own pack's pictures alone.
    """
    room = random_words(len(shown.pack), STREAM_SAMPLE) < keep_share[shown.pack] * 2.0**64
    known = np.where(room, _known(packs, ahead)[shown.pack], 0)
    shown, known, last_use = _not_kept(shown, facts, packs, known)
    gop = facts.gop_frames.ravel()[shown.stream]
    group, nth = shown.frame // gop, shown.frame % gop
    key = _keys(packs.reader[shown.pack], shown.stream, facts.frames.size)
    key = _keys(key, group, int(group.max(initial=0)) + 1)
    order = np.lexsort((shown.pack, key))
    key, group, nth, last_use = key[order], group[order], nth[order], last_use[order]
    shown, known = shown.take(order), known[order]
    begins = _decode_begins(key, packs.position[shown.pack], known)
    at = np.flatnonzero(begins)
    last = np.maximum.reduceat(nth, at) if len(at) else at
    stream, pack = shown.stream[at], shown.pack[at]
    mean = facts.video_bytes.ravel()[stream] / np.maximum(facts.frames.ravel()[stream], 1)
    wanted = np.diff(np.append(at, len(key)))
    ends = np.flatnonzero(nth + 1 >= facts.gop_frames.ravel()[shown.stream])
    complete = np.full(len(at), np.iinfo(np.int64).max)
    complete[np.searchsorted(at, ends, side="right") - 1] = packs.position[shown.pack[ends]]
    read_pack = _read_together(packs, pack, stream, group[at], complete, ahead=ahead)
    begin, size = np.repeat(pack, wanted), facts.frame_bytes.ravel()[shown.stream]
    return Decoding(
        pack=pack,
        read_pack=read_pack,
        stream=stream,
        begin=facts.video_offset.ravel()[stream]
        + mean * group[at] * facts.gop_frames.ravel()[stream],
        size=mean * _frames_to(facts, stream, last),
        frames=last + 1,
        wanted=wanted,
        kept_frames=_kept_over(begin, last_use, np.ones_like(size), len(packs.row)),
        kept_bytes=_kept_over(begin, last_use, size, len(packs.row)),
    )


def read_packets(
    decoding: Decoding, facts: StorageFacts, packs: ReadPacks, window_packs: int
) -> Reads:
    """Reads of each pack: ranges of a window in one call, and the descriptors of their blobs."""
    count, (episodes, cameras) = len(packs.row), facts.frames.shape
    window, first = packs.windows(window_packs, first_alone=True)
    key = window[decoding.read_pack] * episodes + decoding.stream // max(cameras, 1)
    order = np.lexsort((decoding.begin, key))
    begin, size, key = decoding.begin[order], decoding.size[order], key[order]
    pack = decoding.read_pack[order]
    gap = begin - np.concatenate([[0.0], (begin + size)[:-1]])
    apart = (np.diff(key, prepend=-1) != 0) | (gap > facts.fetch_block_bytes)
    pairs = np.unique(key)
    call, address = pairs // episodes, facts.address[pairs % episodes]
    order = np.lexsort((address, call))
    call, address = call[order], address[order]
    opened, described = column_reads(
        call,
        address,
        np.full(len(address), _DESCRIPTOR_BYTES),
        column_bytes=float(_DESCRIPTOR_BYTES * episodes),
        rows=episodes,
        block_bytes=facts.fetch_block_bytes,
    )
    calls = np.zeros(count, np.int64)
    calls[first[call]] = 1
    return Reads(
        calls=calls,
        requests=np.bincount(pack[apart], minlength=count)
        + np.bincount(first[call], opened, count),
        read_bytes=np.bincount(pack, size + np.where(apart, 0.0, gap), count)
        + np.bincount(first[call], described, count),
    )


def _keys(high: Int64s, low: Int64s, lows: int) -> Int64s:
    """One key for two; the high part is made dense where the product would pass int64."""
    if len(high) and int(high.max()) >= (1 << 62) // max(lows, 1):
        high = np.unique(high, return_inverse=True)[1].astype(np.int64)
    return high * lows + low


def _known(packs: ReadPacks, ahead: int) -> Int64s:
    """int64 [P]: the position up to which packs are known when the window of a pack is read.

    The loader looks ahead by nothing in its first window, then by one window, then twice as far
    each time; packs become known 8 at a time.
    """
    window = packs.position // WINDOW_PACKS
    looked = np.full(len(window), ahead, np.int64)
    if packs.cold:
        grown = WINDOW_PACKS << np.clip(window - 1, 0, 30)
        looked = np.minimum(looked, np.where(window > 0, grown, 0))
    known = (window + 1) * WINDOW_PACKS + looked
    return -(-known // WINDOW_PACKS) * WINDOW_PACKS


def _not_kept(
    shown: Shown, facts: StorageFacts, packs: ReadPacks, known: Int64s
) -> tuple[Shown, Int64s, Int64s]:
    """Pictures whose frame is not in memory from showing it before.

    A frame is kept from one showing to the next where the next is known by then.

    Args:
        shown: n pictures.
        facts: of the episodes.
        packs: that show them.
        known: int64 [n], position up to which packs are known when each is shown; 0 where there is
            no room to keep it.

    Returns:
        The pictures, the position known at each, and the pack that drops the frame.
    """
    key = _keys(packs.reader[shown.pack], shown.stream, facts.frames.size)
    key = _keys(key, shown.frame, int(shown.frame.max(initial=0)) + 1)
    order = np.lexsort((shown.pack, key))
    key, pack = key[order], shown.pack[order]
    kept = np.zeros(len(key), np.bool_)
    kept[1:] = (np.diff(key) == 0) & (packs.position[pack[1:]] < known[order[:-1]])
    kept[1:] |= (np.diff(key) == 0) & (np.diff(pack) == 0)
    heads = np.flatnonzero(~kept)
    last = np.append(heads[1:], len(key)) - 1
    return shown.take(order[heads]), known[order[heads]], pack[last] if len(heads) else heads


def _decode_begins(key: Int64s, position: Int64s, known: Int64s) -> NDArray[np.bool_]:
    """Where a group is decoded: at its first picture, then at the first not known at the last time.

    Args:
        key: int64 [n], ascending, one per reader and group of pictures.
        position: int64 [n], ascending for each key.
        known: int64 [n], the position up to which pictures were known.
    """
    begins: NDArray[np.bool_] = np.diff(key, prepend=-1) != 0
    dense = np.cumsum(begins) - 1
    span = int(position.max(initial=0)) + 1
    place = dense * span + position
    front = np.flatnonzero(begins)
    while len(front):
        begins[front] = True
        # At least what its own pack shows.
        beyond = np.clip(known[front], position[front] + 1, span)
        wanted = dense[front] * span + beyond
        following = np.searchsorted(place, wanted)
        inside = following < len(key)
        front, following = front[inside], following[inside]
        front = following[dense[following] == dense[front]]
    return begins


def _read_together(
    packs: ReadPacks,
    pack: Int64s,
    stream: Int64s,
    group: Int64s,
    complete: Int64s,
    *,
    ahead: int,
) -> Int64s:
    """Which pack reads each decoding (see `Decoding.read_pack`).

    Args:
        packs: that are replayed.
        pack: int64 [n], that needs each decoding; decodings ascend by reader, stream, group, pack.
        stream: int64 [n], of each.
        group: int64 [n], likewise.
        complete: int64 [n], position of the pack that shows the last frame of its group, behind
            which the next group lies; beyond all positions where none does.
        ahead: packs that are known beyond those of the window.
    """
    if not len(pack):
        return pack
    position = packs.position[pack]
    known = _known(packs, ahead)[pack]
    if packs.cold:
        known[position < WINDOW_PACKS] = 0  # the first window reads what it needs itself
    row = _keys(packs.reader[pack], stream, int(stream.max()) + 1)
    read_pack = pack.copy()
    left = np.arange(len(pack))
    while len(left):
        # The first decoding that is left of each camera reads those that lie back to back with it.
        begins = np.flatnonzero(np.diff(row[left], prepend=-1))
        counts = np.diff(np.append(begins, len(left)))
        here, of = position[left], np.repeat(np.arange(len(begins)), counts)
        earliest = np.minimum.reduceat(here, begins)[of] == here
        heads = np.flatnonzero(earliest)[np.unique(of[earliest], return_index=True)[1]]
        until = np.maximum(known[left[heads]], here[heads] + 1)[of]
        mine = here < until
        # A group that is decoded again is read again.
        mine[1:] &= (np.diff(group[left]) != 0) | (np.diff(of) != 0)
        mine[heads] = True
        taken = np.flatnonzero(mine)
        joined = complete[left[taken]] < until[taken]
        apart = (np.diff(of[taken]) != 0) | (np.diff(group[left[taken]]) > joined[:-1])
        part = np.concatenate([[0], np.cumsum(apart)])
        part_of = np.full(len(left), -1)
        part_of[taken] = part
        read = part_of == part_of[heads][of]
        read_pack[left[read]] = pack[left[heads]][of[read]]
        left = left[~read]
    return read_pack


def _frames_to(facts: StorageFacts, stream: Int64s, last: Int64s) -> NDArray[np.float64]:
    """Bytes up to the last frame of each decoding, in mean frames of its camera."""
    profile = facts.profile.ravel()[stream]
    to = np.zeros(len(stream))
    for number in np.unique(profile).tolist():
        ours = profile == number
        known = facts.profiles[number].frames_to
        beyond = np.maximum(last[ours] - (len(known) - 1), 0)
        to[ours] = known[np.minimum(last[ours], len(known) - 1)] + beyond
    return to


def _kept_over(begin: Int64s, end: Int64s, size: Int64s, packs: int) -> Int64s:
    """int64 [packs]: what is kept at each pack, from the one that decodes to the last that shows.

    Args:
        begin: int64 [n], the pack that decodes each frame.
        end: int64 [n], the last pack that shows it; it is kept where this is another.
        size: int64 [n], what each counts.
        packs: number of packs.
    """
    later = end > begin
    change = np.bincount(begin[later], size[later], packs)
    change -= np.bincount(end[later], size[later], packs)
    return np.cumsum(change).astype(np.int64)
