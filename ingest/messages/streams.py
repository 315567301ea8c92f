"""The messages of one topic and type, on their way to streams."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.errors import EpisodeError
from ingest.messages.decode import Decoder, Gathered, decoder_of
from ingest.messages.log import Channel, Message
from ingest.messages.pictures import Images, Track, VideoTrack, track_of
from ingest.messages.time_order import as_recorded
from ingest.messages.transforms import Transforms, is_tf
from ingest.messages.values import ChannelValues, channel_values, header_stamps
from ingest.timed import TimedCamera, TimedValues
from lake.errors import VideoError
from lake.spec import canonical_name

_Stream = TypeVar("_Stream", TimedValues, TimedCamera)
_STAMPS: Final = ("header.stamp", "stamp", "timestamp")


@dataclass(frozen=True, kw_only=True)
class Note:
    """What was met in a topic: as a finding, whose place the source knows."""

    severity: Literal["error", "warning", "info"]
    reason: str
    stream: str
    detail: str


@dataclass(kw_only=True)
class TopicStreams:
    """What a topic gives."""

    values: list[TimedValues] = field(default_factory=list)
    cameras: list[TimedCamera] = field(default_factory=list)
    conventions: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


class TopicReader:
    """Takes the messages of one topic and type, in their order.

    How they are decoded is chosen by the first. What cannot be read is left out and told; it never
    raises, except MissingReaderError.
    """

    def __init__(self, channel: Channel, images: Images) -> None:
        self._channel = channel
        self._images: Images = images
        self._name = canonical_name(channel.topic.strip("/"))
        self._count = 0
        self._log, self._publish = array("q"), array("q")
        self._decoder: Decoder | None = None
        self._refused: EpisodeError | None = None
        self._gathered: Gathered | None = None
        self._pictures: _Pictures | None = None
        self._transforms: Transforms | None = None
        self._bad, self._first_bad = 0, ""
        try:
            self._decoder = decoder_of(channel)
        except EpisodeError as error:
            self._refused = error

    def add(self, message: Message) -> None:
        """Take the next message."""
        self._count += 1
        self._log.append(message.log_time_ns)
        self._publish.append(message.publish_time_ns)
        if self._gathered is not None:
            self._gathered.add(message.payload)
        elif self._decoder is not None:
            self._add_one(self._decoder, message)

    def finish(self) -> TopicStreams:
        """The streams."""
        found = TopicStreams()
        if self._decoder is not None and self._decoder.note:
            self._tell(found, "info", "definition-from-library", self._decoder.note)
        if self._refused is not None:
            self._leave_out(found, self._refused.reason, str(self._refused))
        elif self._pictures is not None:
            self._finish_camera(found, self._pictures)
        elif self._gathered is not None:
            self._finish_values(found, self._gathered)
        elif self._transforms is not None:
            self._add_values(found, self._transforms.values())
        found.values = [self._as_recorded(found, stream) for stream in found.values]
        if self._pictures is not None and not isinstance(self._pictures.track, VideoTrack):
            found.cameras = [self._as_recorded(found, camera) for camera in found.cameras]
        if self._bad and self._bad == self._count:
            self._leave_out(found, "bad-messages", f"none can be decoded: {self._first_bad}")
        elif self._bad:
            detail = f"{self._bad} of {self._count} messages cannot be decoded and are left out"
            self._tell(found, "warning", "bad-messages", f"{detail}; the first: {self._first_bad}")
        return found

    def _add_one(self, decoder: Decoder, message: Message) -> None:
        """Decode a message by itself: pictures, transforms, and the first of any."""
        try:
            fields = decoder.fields(message.payload)
        except EpisodeError as error:
            self._bad += 1
            self._first_bad = self._first_bad or str(error)
            if self._pictures is not None:
                self._pictures.skip()
            return
        if self._pictures is None and self._transforms is None:
            self._choose(decoder, fields)
        if self._pictures is not None:
            self._pictures.add(fields)
        elif self._transforms is not None:
            self._transforms.add(fields, message.log_time_ns, message.publish_time_ns)
        elif self._gathered is not None:
            self._gathered.add(message.payload)

    def _choose(self, decoder: Decoder, fields: Mapping[str, Any]) -> None:
        """By the first message that can be read; those before it are known to be bad."""
        kind = self._channel.schema_name
        track = track_of(kind, fields, topic=self._channel.topic, images=self._images)
        if track is not None:
            self._pictures = _Pictures(track=track, shown=[-1] * self._bad, stamps=[0] * self._bad)
        elif is_tf(kind, fields):
            self._transforms = Transforms(topic=self._channel.topic)
        else:
            self._gathered = decoder.gather()
            del self._log[: self._bad], self._publish[: self._bad]

    def _finish_camera(self, found: TopicStreams, pictures: "_Pictures") -> None:
        track, shown = pictures.track, np.array(pictures.shown, np.int32)
        clocks = self._clocks()
        stamps = np.array(pictures.stamps, np.int64)
        if stamps.any():
            clocks["header"] = stamps
        try:
            video = track.finish(shown)
            camera = TimedCamera(
                name=self._name,
                source_name=self._channel.topic,
                clocks=clocks,
                video=video,
                is_depth=track.is_depth,
            )
        except (VideoError, EpisodeError) as error:
            self._leave_out(found, "bad-pictures", pictures.first_bad or str(error))
            return
        found.cameras.append(camera)
        if pictures.bad:
            detail = (
                f"{pictures.bad} of {len(shown)} pictures cannot be taken and show nothing; the"
                f" first: {pictures.first_bad}"
            )
            self._tell(found, "warning", "bad-pictures", detail)
        if before := int((video.index.step_to_frame[shown >= 0] < 0).sum()):
            detail = f"{before} packets before the first key frame cannot be decoded; left out"
            self._tell(found, "warning", "no-key-frame", detail)
        for what, fact in track.conventions.items():
            found.conventions[f"{self._name}.{what}"] = fact
            self._tell(found, "info", f"pictures-{what}".replace("_", "-"), fact)

    def _finish_values(self, found: TopicStreams, gathered: Gathered) -> None:
        block = gathered.join()
        self._bad += int((~block.decoded).sum())
        self._first_bad = self._first_bad or block.damage
        clocks = {name: stamps[block.decoded] for name, stamps in self._clocks().items()}
        if block.decoded.any():
            stamps = header_stamps(block)
            if stamps is not None:
                clocks["header"] = stamps
            self._add_values(found, channel_values(block, topic=self._channel.topic, clocks=clocks))

    def _add_values(self, found: TopicStreams, values: ChannelValues) -> None:
        found.values += values.streams
        found.conventions |= values.conventions
        for stream, (reason, detail) in values.refused.items():
            text = f"{detail}; the episode goes in without it"
            found.notes.append(Note(severity="error", reason=reason, stream=stream, detail=text))

    def _as_recorded(self, found: TopicStreams, stream: _Stream) -> _Stream:
        ordered = as_recorded(stream)
        if ordered is None:
            return stream
        detail = f"{stream.name} lies in the file in another order than it was recorded in"
        self._tell(found, "info", "file-order", f"{detail}; it is taken as recorded")
        return ordered

    def _clocks(self) -> dict[str, NDArray[np.int64]]:
        return {
            "log": np.array(self._log, np.int64),
            "publish": np.array(self._publish, np.int64),
        }

    def _leave_out(self, found: TopicStreams, reason: str, detail: str) -> None:
        text = f"{self._count} messages: {detail}; the episode goes in without it"
        self._tell(found, "error", reason, text)

    def _tell(
        self,
        found: TopicStreams,
        severity: Literal["error", "warning", "info"],
        reason: str,
        detail: str,
    ) -> None:
        text = f"{self._channel.topic}: {detail}"
        found.notes.append(Note(severity=severity, reason=reason, stream=self._name, detail=text))


@dataclass(kw_only=True)
class _Pictures:
    """A track, and which message gave which of its pictures."""

    track: Track
    shown: list[int]
    stamps: list[int]
    taken: int = 0
    bad: int = 0
    first_bad: str = ""

    def add(self, fields: Mapping[str, Any]) -> None:
        try:
            self.track.add(fields)
        except (VideoError, KeyError) as error:  # JSON may lack a field
            self.bad += 1
            self.first_bad = self.first_bad or f"message {len(self.shown)}: {error}"
            self.shown.append(-1)
        else:
            self.shown.append(self.taken)
            self.taken += 1
        stamp = next((fields[path] for path in _STAMPS if path in fields), None)
        self.stamps.append(int(stamp.view(np.int64)) if isinstance(stamp, np.datetime64) else 0)

    def skip(self) -> None:
        """A message that could not be decoded."""
        self.shown.append(-1)
        self.stamps.append(0)
