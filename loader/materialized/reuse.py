"""Sharing decoded frames between materialised packs, whose packets are copies of each other.

Packs that show frames of one group of pictures all hold its packets from the key frame on. What is
read ahead is known, so a group is decoded once, from the pack that holds most of it, for all packs
that are here; frames that coming ones show are kept until their last use. `loader.fetch.reuse` does
the same where every pack reads the one copy in the lake.
"""

from collections import Counter

import numpy as np

from lake.video_runs import DecodeRun
from loader.fetch.episodes import CameraStream
from loader.fetch.fetched import FetchedRun
from loader.fetch.reuse import PackPictures
from loader.materialized.pack import PackContent

_Group = tuple[CameraStream, int]  # and the frame of the packet at which decoding starts


class SharedRuns:
    """Plans the decoding of packs, in their order, with at most `limit_bytes` of kept frames."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._runs: dict[_Group, list[FetchedRun]] = {}  # of coming packs, in their order
        self._uses: dict[CameraStream, Counter[int]] = {}  # frame -> coming packs that show it
        self._kept: dict[CameraStream, set[int]] = {}
        self._kept_bytes = 0

    def enter(self, pack: PackContent) -> None:
        """The next coming pack is here."""
        for run in pack.runs:
            self._runs.setdefault(_group(run), []).append(run)
            self._uses.setdefault(run.stream, Counter()).update(run.run.frames.tolist())

    def plan(self, pack: PackContent) -> tuple[PackPictures, tuple[FetchedRun, ...]]:
        """What the first pack that was entered and not yet planned keeps and drops, and decodes."""
        runs: list[FetchedRun] = []
        keep: dict[CameraStream, list[int]] = {}
        drop: dict[CameraStream, list[int]] = {}
        reused = 0
        for run in pack.runs:
            stream, frames = run.stream, run.run.frames.tolist()
            self._leave(run)
            kept = self._kept.get(stream, set())
            missing = [frame for frame in frames if frame not in kept]
            reused += len(frames) - len(missing)
            if gone := self._gone(stream, frames):
                drop.setdefault(stream, []).extend(gone)
            if missing:
                coming = self._keep_of(run, missing)
                if coming:
                    keep.setdefault(stream, []).extend(coming)
                runs.append(self._longest(run, sorted({*missing, *coming})))
        pictures = PackPictures(decode={}, keep=keep, drop=drop, reused=reused)
        return pictures, tuple(runs)

    def _leave(self, run: FetchedRun) -> None:
        """Strike out the uses of the pack that is planned."""
        group, uses = _group(run), self._uses[run.stream]
        del self._runs[group][0]
        if not self._runs[group]:
            del self._runs[group]
        for frame in run.run.frames.tolist():
            uses[frame] -= 1
            if not uses[frame]:
                del uses[frame]
        if not uses:
            del self._uses[run.stream]

    def _gone(self, stream: CameraStream, frames: list[int]) -> list[int]:
        """Of a pack's kept frames, those that no coming pack shows; no longer counted as kept."""
        kept, uses = self._kept.get(stream), self._uses.get(stream, Counter())
        if kept is None:
            return []
        gone = [frame for frame in frames if frame in kept and frame not in uses]
        kept.difference_update(gone)
        self._kept_bytes -= len(gone) * stream.frame_bytes
        if not kept:
            del self._kept[stream]
        return gone

    def _keep_of(self, run: FetchedRun, missing: list[int]) -> list[int]:
        """Frames of the group that coming packs show, as far as they fit; now counted as kept."""
        stream = run.stream
        uses, kept = self._uses.get(stream, Counter()), self._kept.setdefault(stream, set())
        shown = [frame for frame in missing if frame in uses]
        for other in self._runs.get(_group(run), ()):
            shown += other.run.frames.tolist()
        coming = []
        for frame in dict.fromkeys(shown):
            if frame in kept:
                continue
            if self._kept_bytes + stream.frame_bytes > self._limit:
                break
            kept.add(frame)
            self._kept_bytes += stream.frame_bytes
            coming.append(frame)
        if not kept:
            del self._kept[stream]
        return coming

    def _longest(self, run: FetchedRun, frames: list[int]) -> FetchedRun:
        """The copy of a group with the most packets, to decode frames of it."""
        longest = max([run, *self._runs.get(_group(run), ())], key=_num_packets)
        return FetchedRun(
            stream=run.stream,
            index=longest.index,
            run=DecodeRun(
                first_packet=longest.run.first_packet,
                stop_packet=longest.run.stop_packet,
                frames=np.asarray(frames, np.int32),
            ),
            data=longest.data,
        )


def _group(run: FetchedRun) -> _Group:
    return run.stream, int(run.index.packet_frame[run.run.first_packet])


def _num_packets(run: FetchedRun) -> int:
    return run.run.stop_packet - run.run.first_packet
