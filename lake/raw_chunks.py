"""From a source's messages, streams interleaved, to chunks, in bounded memory."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from lake.raw import MAX_CHUNK_BYTES, RawChunk, RawMessage

_CHUNK_BYTES: Final = 4 << 20
_HELD_BYTES: Final = 32 << 20
_MOST_MESSAGES: Final = 1 << 16


class _Open:
    """A chunk that is being filled: one schema, one camera, one set of clocks."""

    def __init__(self, first: RawMessage) -> None:
        self.first = first
        self.messages: list[RawMessage] = []
        self.num_bytes = 0

    def takes(self, message: RawMessage) -> bool:
        """Whether the message is like the first one.

        A schema changes where a recorder was restarted with another definition of the same topic.
        """
        first = self.first
        return (
            (first.stream is message.stream or first.stream == message.stream)
            and first.camera == message.camera
            and first.clocks.keys() == message.clocks.keys()
            and (first.sequence is None) == (message.sequence is None)
        )

    def closed(self) -> RawChunk:
        """The chunk."""
        first, messages = self.first, self.messages
        refers = first.camera is not None
        return RawChunk(
            stream=first.stream,
            clocks={
                clock: np.array([m.clocks[clock] for m in messages], np.int64)
                for clock in first.clocks
            },
            sizes=np.array([len(m.payload) for m in messages], np.int32),
            payload=b"".join([m.payload for m in messages]),
            sequence=None
            if first.sequence is None
            else np.array([m.sequence for m in messages], np.int64),
            camera=first.camera,
            frames=np.array([m.frame for m in messages], np.int32) if refers else None,
            frame_at=np.array([m.frame_at for m in messages], np.int32) if refers else None,
        )


def chunk_messages(
    messages: Iterable[RawMessage],
    *,
    chunk_bytes: int = _CHUNK_BYTES,
    held_bytes: int = _HELD_BYTES,
) -> Iterator[RawChunk]:
    """Group messages by stream, keeping their order within each.

    At most `held_bytes` and one message are held: where many streams are open, the largest chunk
    is given away before it is full.

    Args:
        messages: in the order of the recording.
        chunk_bytes: payload bytes of a chunk, of which one message may be more.
        held_bytes: payload bytes of all open chunks.

    Raises:
        SpecError: a message with no clock, or one that is unknown.
    """
    full = min(chunk_bytes, MAX_CHUNK_BYTES)
    open_chunks: dict[str, _Open] = {}
    held = 0
    for message in messages:
        name, size = message.stream.name, len(message.payload)
        chunk = open_chunks.get(name)
        if chunk is not None and (
            chunk.num_bytes + size > full
            or len(chunk.messages) >= _MOST_MESSAGES
            or not chunk.takes(message)
        ):
            held -= chunk.num_bytes
            yield open_chunks.pop(name).closed()
            chunk = None
        if chunk is None:
            chunk = open_chunks[name] = _Open(message)
        chunk.messages.append(message)
        chunk.num_bytes += size
        held += size
        while held > held_bytes:
            largest = max(open_chunks, key=lambda stream: open_chunks[stream].num_bytes)
            held -= open_chunks[largest].num_bytes
            yield open_chunks.pop(largest).closed()
    for chunk in open_chunks.values():
        yield chunk.closed()
