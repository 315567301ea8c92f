"""Logs of messages as a source: MCAP, ROS 1 bags, ROS 2 bags."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from ingest.episode_cuts import EpisodeCuts
from ingest.errors import EpisodeError, SourceError
from ingest.messages.episodes import Cut, Span, cut_episodes
from ingest.messages.log import Channel, Message, MessageLog
from ingest.messages.streams import Note, TopicReader, TopicStreams
from ingest.source import (
    EpisodeEntry,
    EpisodeReading,
    Finding,
    SourceOptions,
    file_fingerprint,
    first_spec,
    printable,
)
from ingest.timed import TimedCamera, TimedValues
from ingest.timed_episode import TimedRecording, episode_of
from lake.spec import Spec

_INSTRUCTION: Final = re.compile(r"(^|_)(instruction|prompt|task_description)(_|$)")


class LogSource:
    """A log of messages: one episode, or as many as the user's rule cuts it into.

    Args:
        root: file or folder that was opened.
        log: the same, opened; closed with the source.
        options: the user's choices.

    Raises:
        SourceError: the rule finds nothing to cut by.
    """

    def __init__(self, root: Path, log: MessageLog, options: SourceOptions) -> None:
        self.root = root
        self._log = log
        self._options = options
        self._position = 0
        self._messages: Iterator[Message] = iter(())
        try:
            self._cut: Cut = cut_episodes(log, options.cuts)
        except SourceError as error:
            log.close()
            raise SourceError(f"{root}: {error}", reason=error.reason) from error
        except BaseException:
            log.close()
            raise

    @property
    def format(self) -> str:
        """Of the log."""
        return self._log.format

    @property
    def dataset(self) -> str:
        """The user's name, else the file's or folder's."""
        return printable(self._options.dataset or self.root.resolve().stem)

    @cached_property
    def spec(self) -> Spec:
        """Spec of the first episode that can be read."""
        return first_spec(self)

    def entries(self) -> Sequence[EpisodeEntry]:
        """The episodes in the order of time."""
        return self._entries

    def findings(self) -> Sequence[Finding]:
        """Of the log, and what lies outside of all episodes."""
        found = tuple(self._log.findings())
        if not self._cut.outside:
            return found
        detail = f"{self._cut.outside} messages lie outside of all episodes and are left out"
        outside = Finding(
            severity="warning", reason="outside-episodes", where=self._where, detail=detail
        )
        return (*found, outside)

    def read(self, entry: EpisodeEntry) -> EpisodeReading:
        """Read one episode.

        Raises:
            EpisodeError: it has no message, or no stream that can be aligned.
        """
        try:
            streams = self._streams(self._spans[entry.locator])
        except SourceError as error:
            raise EpisodeError(str(error), reason=error.reason) from error
        if not streams:
            raise EpisodeError(f"{self.root}: no message in it", reason="empty-recording")
        values, cameras = _with_own_names(streams)
        if not values and not cameras:
            notes = [note for each in streams for note in each.notes if note.severity == "error"]
            why = notes[0].detail if notes else "nothing in it is a number, text or picture"
            raise EpisodeError(f"{self.root}: no stream is left: {why}", reason="nothing-left")
        conventions = {key: text for each in streams for key, text in each.conventions.items()}
        return episode_of(
            TimedRecording(
                values=values,
                cameras=cameras,
                files=tuple(self._relative(path) for path in self._log.files),
                conventions=conventions,
                findings=tuple(self._finding(n, entry) for each in streams for n in each.notes),
                labels=_labels(values),
            ),
            entry,
            format_name=self.format,
            reader="messages",
            source=printable(self.root.resolve().name),
            dataset=self.dataset,
            options=self._options,
        )

    def close(self) -> None:
        """Close the log."""
        self._messages = iter(())
        self._log.close()

    @cached_property
    def _entries(self) -> list[EpisodeEntry]:
        fingerprints = [file_fingerprint(path) for path in self._log.files]
        if (cuts := self._options.cuts) != EpisodeCuts():  # another rule, other episodes
            fingerprints.append(f"{cuts.marker} {cuts.gap_s}")
        return [EpisodeEntry.of(self, locator, fingerprints) for locator in self._spans]

    @cached_property
    def _spans(self) -> dict[str, Span]:
        stem = printable(self.root.resolve().stem)
        if len(self._cut.spans) == 1 and self._cut.spans[0].messages is None:
            return {stem: self._cut.spans[0]}
        return {f"{stem}/episode_{n:06d}": span for n, span in enumerate(self._cut.spans)}

    def _streams(self, span: Span) -> list[TopicStreams]:
        """Every topic of an episode, in the order in which they first came."""
        readers: dict[tuple[str, str, str, bytes], TopicReader] = {}
        by_channel: dict[int, tuple[Channel, TopicReader]] = {}
        for message in self._messages_of(span):
            channel = message.channel
            known = by_channel.get(channel.id)
            if known is None or known[0] is not channel:
                key = (channel.topic, channel.schema_name, channel.message_encoding, channel.schema)
                reader = readers.get(key)
                if reader is None:
                    reader = readers[key] = TopicReader(channel, self._options.images)
                known = by_channel[channel.id] = (channel, reader)
            known[1].add(message)
        return [reader.finish() for reader in readers.values()]

    def _messages_of(self, span: Span) -> Iterator[Message]:
        """Messages of an episode; goes on from where the last one ended where that is possible."""
        if span.messages is None:
            yield from self._log.messages()
            return
        if not 0 < self._position <= span.first:
            self._position, self._messages = 0, self._log.messages()
        for message in self._messages:
            number, self._position = self._position, self._position + 1
            if number >= span.first and span.begin_ns <= message.log_time_ns < span.end_ns:
                yield message
            if number >= span.last:
                return
        self._position = 0

    def _relative(self, path: Path) -> str:
        inside = self.root.is_dir() and path.is_relative_to(self.root)
        return printable(str(path.relative_to(self.root) if inside else path.name))

    @property
    def _where(self) -> str:
        return printable(self.root.name)

    def _finding(self, note: Note, entry: EpisodeEntry) -> Finding:
        return Finding(
            severity=note.severity,
            reason=note.reason,
            where=self._where,
            detail=printable(note.detail),
            episode=entry.locator,
            stream=note.stream,
        )


def _with_own_names(
    streams: Sequence[TopicStreams],
) -> tuple[list[TimedValues], list[TimedCamera]]:
    """Streams under names of their own: topics may differ in characters that names do not have."""
    met: dict[str, int] = {}

    def own(name: str) -> str:
        met[name] = met.get(name, 0) + 1
        return name if met[name] == 1 else own(f"{name}_{met[name]}")

    cameras = [replace(c, name=own(c.name)) for each in streams for c in each.cameras]
    values = [replace(v, name=own(v.name)) for each in streams for v in each.values]
    return values, cameras


def _labels(values: Sequence[TimedValues]) -> dict[str, str]:
    """The instruction, where a topic gives one."""
    texts = (v for v in values if v.is_text and _INSTRUCTION.search(v.name))
    given = next(chain.from_iterable((t for t in v.values if t) for v in texts), None)
    return {} if given is None else {"instruction": given}
