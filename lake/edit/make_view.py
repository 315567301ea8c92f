"""Make an episode of parts of others: its facts and statistics."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from lake.edit.cut_video import Cut, join_cuts
from lake.edit.view import Part, View, facts_of
from lake.episode import CameraVideo, Episode
from lake.episode_row import EpisodeRows, episode_rows
from lake.errors import EditError, VideoError
from lake.pixels import PixelConverter
from lake.video_decode import FrameDecoder
from lake.video_runs import decode_runs

COMMIT_ID = "edit"
"""What stands for the commit in the row of a view, which no commit holds."""


def make_view(
    parts: Sequence[Part], stored: Sequence[Episode], episode_id: str, locator: str
) -> tuple[View, EpisodeRows]:
    """The view that consists of `parts`, and its rows, with the labels of the first of them.

    Args:
        parts: what it consists of.
        stored: the stored episode of each part.
        episode_id: its id.
        locator: what it is, for its provenance.

    Raises:
        EditError: the episodes differ in what one episode can have only one of.
    """
    first = stored[0]
    for other in stored[1:]:
        for name in ("spec", "dataset", "embodiment", "fps"):
            if getattr(first, name) != getattr(other, name):
                raise EditError(
                    f"episodes {first.episode_id} and {other.episode_id} differ in {name}; only"
                    " episodes that were recorded alike can be one"
                )
        if first.features.keys() != other.features.keys():
            raise EditError(
                f"episodes {first.episode_id} and {other.episode_id} have different features"
            )
    pairs = list(zip(parts, stored, strict=True))
    provenance = first.provenance
    files = dict.fromkeys(name for episode in stored for name in episode.provenance.files)
    findings = dict.fromkeys(text for episode in stored for text in episode.provenance.findings)
    episode = replace(
        first,
        episode_id=episode_id,
        ingest_key=ingest_key_of(parts),
        timestamps_ns=np.concatenate(
            [e.timestamps_ns[p.start : p.stop] + np.int64(p.shift_ns) for p, e in pairs]
        ),
        features={
            name: np.concatenate([e.features[name][p.start : p.stop] for p, e in pairs])
            for name in first.features
        },
        valid={
            name: np.concatenate(
                [
                    e.valid[name][p.start : p.stop]
                    if name in e.valid
                    else np.ones(p.stop - p.start, np.bool_)
                    for p, e in pairs
                ]
            )
            for name in first.features
            if any(name in e.valid for e in stored)
        },
        cameras=_cameras(episode_id, pairs),
        provenance=replace(
            provenance, files=tuple(files), locator=locator, findings=tuple(findings)
        ),
    )
    rows = episode_rows(episode, COMMIT_ID)
    row = rows.trajectory.drop_columns(["video"]).to_pylist()[0]
    return View(tuple(parts), facts_of(row)), rows


def ingest_key_of(parts: Sequence[Part]) -> str:
    """SHA-256 (hex) of what an episode consists of."""
    text = "\0".join(f"{p.ingest_key} {p.commit_id} {p.start} {p.stop} {p.shift_ns}" for p in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _cameras(episode_id: str, pairs: Sequence[tuple[Part, Episode]]) -> dict[str, CameraVideo]:
    """The cameras of the parts; one that a part lacks has no picture at its steps."""
    cameras: dict[str, CameraVideo] = {}
    for name in dict.fromkeys(camera for _, episode in pairs for camera in episode.cameras):
        videos = [episode.cameras.get(name) for _, episode in pairs]
        cuts = [
            Cut(None if video is None else video.index, part.start, part.stop)
            for (part, _), video in zip(pairs, videos, strict=True)
        ]
        try:
            joined = join_cuts(cuts)
            if joined is None:
                continue  # the camera shows nothing at these steps
            index, pieces = joined
            sources = [(piece, videos[piece.cut]) for piece in pieces]
            payload = b"".join(
                memoryview(video.payload)[piece.offset : piece.offset + piece.length]
                for piece, video in sources
                if video is not None
            )
            cameras[name] = CameraVideo(index=index, payload=payload)
            if len(pieces) > 1:
                _require_same_pictures(cameras[name], cuts, videos)
        except EditError as error:
            raise EditError(f"episode {episode_id}, camera {name}: {error}") from error
    return cameras


def _require_same_pictures(
    joined: CameraVideo, cuts: Sequence[Cut], videos: Sequence[CameraVideo | None]
) -> None:
    """Decode the joined camera over its seams, and each of its sources alone.

    Raises:
        EditError: a picture differs: a decoder does not take the one stream after the other.
    """
    if joined.index.packet_key.all():
        return  # every picture is decoded by itself
    frames = joined.index.step_to_frame
    try:
        found = _digests(joined, frames)
    except VideoError as error:
        raise EditError(f"the videos cannot be decoded as one: {error}") from error
    start = 0
    for cut, video in zip(cuts, videos, strict=True):
        stop = start + cut.stop - cut.start
        if video is not None:
            theirs = video.index.step_to_frame[cut.start : cut.stop]
            expected = _digests(video, theirs)
            pairs = zip(frames[start:stop].tolist(), theirs.tolist(), strict=True)
            if any(found.get(ours) != expected.get(its) for ours, its in pairs):
                raise EditError(
                    "the videos cannot be decoded as one: pictures change where one ends and the"
                    " next begins"
                )
        start = stop


def _digests(video: CameraVideo, frames: NDArray[np.int32]) -> dict[int, int]:
    """Display ordinal -> XXH3-64 of the picture, for those of `frames` that are pictures."""
    offsets = video.index.packet_offsets()
    decoder, converter = FrameDecoder(), PixelConverter()
    found: dict[int, int] = {}
    wanted = np.unique(frames[frames >= 0])
    for run in decode_runs(video.index, wanted) if len(wanted) else ():
        begin, end = int(offsets[run.first_packet]), int(offsets[run.stop_packet])
        data = memoryview(video.payload)[begin:end]
        for ordinal, frame in decoder.decode(video.index, run, data):
            picture = np.empty((3, *converter.output_size(frame)), np.uint8)
            converter.rgb(frame, picture)
            found[ordinal] = xxhash.xxh3_64_intdigest(picture.data)
    return found
