"""Finding the episodes of a log: all of it, between markers, or between gaps in time."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingest.episode_cuts import EpisodeCuts
from ingest.errors import EpisodeError, SourceError
from ingest.messages.decode import decoder_of
from ingest.messages.log import Channel, MessageLog
from ingest.messages.ros_types import FILLER

_ENDS: Final = frozenset(
    ("stop", "stopped", "end", "ended", "done", "finish", "finished", "idle", "false", "0", "")
)
_EVER: Final = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Span:
    """An episode's place in a log.

    Attributes:
        begin_ns, end_ns: log times of its messages, the end left out.
        first, last: numbers of its first and last message in the order of the files.
        messages: how many it has, None where nobody counted.
    """

    begin_ns: int = -_EVER
    end_ns: int = _EVER
    first: int = 0
    last: int = _EVER
    messages: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The episodes of a log, and how many of its messages lie outside of them."""

    spans: tuple[Span, ...]
    outside: int = 0


def cut_episodes(log: MessageLog, cuts: EpisodeCuts) -> Cut:
    """Find the episodes; reads the log once where there is a rule.

    Raises:
        SourceError: the marker topic has no message, or messages that cannot be read.
    """
    if cuts.marker is None and cuts.gap_s is None:
        return Cut(spans=(Span(),))
    stamps, marks = array("q"), []
    decoders: dict[int, tuple[Channel, Any]] = {}
    for message in log.messages():
        stamps.append(message.log_time_ns)
        if cuts.marker is not None and message.channel.topic == cuts.marker:
            known = decoders.get(message.channel.id)
            if known is None or known[0] is not message.channel:
                known = (message.channel, _fields_of(message.channel))
                decoders[message.channel.id] = known
            marks.append((message.log_time_ns, _begins(known[1], message.payload)))
    times = np.array(stamps, np.int64)
    if cuts.gap_s is not None:
        bounds = _between_gaps(times, round(cuts.gap_s * 1e9))
    elif marks:
        bounds = _between_marks(sorted(marks))
    else:
        raise SourceError(
            f"no message on the marker topic {cuts.marker}; there are"
            f" {', '.join(sorted({channel.topic for channel in log.channels()})) or 'none'}",
            reason="no-marker",
        )
    spans = [span for bound in bounds if (span := _span(times, *bound)) is not None]
    inside = sum(span.messages or 0 for span in spans)
    return Cut(spans=tuple(spans), outside=len(times) - inside)


def _fields_of(channel: Channel) -> Any:  # noqa: ANN401  a decoder's function
    try:
        return decoder_of(channel).fields
    except EpisodeError as error:
        raise SourceError(
            f"the marker topic {channel.topic}: {error}", reason="no-marker"
        ) from error


def _begins(fields: Any, payload: bytes) -> bool:  # noqa: ANN401  a decoder's function
    """Whether a marker begins an episode: by its first value that is no header."""
    try:
        values: Mapping[str, Any] = fields(payload)
    except EpisodeError as error:
        raise SourceError(f"a marker that cannot be read: {error}", reason="no-marker") from error
    for path, value in values.items():
        if path.startswith("header") or path.endswith(FILLER) or isinstance(value, np.datetime64):
            continue
        if isinstance(value, str):
            return value.strip().lower() not in _ENDS
        if isinstance(value, (bool, int, float, np.generic)):
            return bool(value)
    return True


def _between_gaps(times: NDArray[np.int64], gap_ns: int) -> list[tuple[int, int]]:
    ordered = np.sort(times)
    breaks = np.flatnonzero(np.diff(ordered) > gap_ns)
    begins = [-_EVER, *ordered[breaks + 1].tolist()]
    return list(zip(begins, [*begins[1:], _EVER], strict=True))


def _between_marks(marks: list[tuple[int, bool]]) -> list[tuple[int, int]]:
    ends = [time for time, _ in marks[1:]] + [_EVER]
    return [
        (time, end)
        for (time, begins), end in zip(marks, ends, strict=True)
        if begins and time < end
    ]


def _span(times: NDArray[np.int64], begin: int, end: int) -> Span | None:
    inside = np.flatnonzero((times >= begin) & (times < end))
    if not inside.size:
        return None
    return Span(
        begin_ns=begin,
        end_ns=end,
        first=int(inside[0]),
        last=int(inside[-1]),
        messages=int(inside.size),
    )
