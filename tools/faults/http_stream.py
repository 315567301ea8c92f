"""HTTP/1.1 on a socket as a proxy needs it: heads parsed, bodies passed on as they came."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_PIECE_BYTES: Final = 1 << 18
_MOST_HEAD_BYTES: Final = 1 << 16
_END_OF_HEAD: Final = b"\r\n\r\n"
_NO_BODY: Final = ("204", "304")


class HttpError(Exception):
    """The other side does not speak HTTP/1.1 as expected, or stopped in the middle."""


@dataclass(frozen=True)
class Head:
    """The first line and the fields of a message.

    Attributes:
        raw: as it came, with the empty line at its end.
        first: the first line.
        fields: lower-case name -> value, the last one where a name is repeated.
    """

    raw: bytes
    first: str
    fields: Mapping[str, str]

    def without(self, field: str) -> bytes:
        """The raw head without a field (lower-case name)."""
        lines = self.raw.removesuffix(_END_OF_HEAD).split(b"\r\n")
        kept = [line for line in lines if line.partition(b":")[0].strip().lower() != field.encode()]
        return b"\r\n".join(kept) + _END_OF_HEAD

    @property
    def length(self) -> int | None:
        """Bytes of the body; None where it comes in chunks or ends with the connection.

        Raises:
            HttpError: the field is no number.
        """
        if "transfer-encoding" in self.fields:
            return None
        text = self.fields.get("content-length")
        if text is not None and not text.isdecimal():
            raise HttpError(f"no length of a body: {text!r}")
        return None if text is None else int(text)


class HttpStream:
    """One side's messages on a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._ahead = b""

    def head(self) -> Head | None:
        """The next head; None where the connection ends before one.

        Raises:
            HttpError: it ends within one, or is none.
            OSError: the connection failed.
        """
        read = bytearray(self._ahead)
        while (end := read.find(_END_OF_HEAD)) < 0:
            if len(read) > _MOST_HEAD_BYTES:
                raise HttpError("a head of more than 64 KiB")
            more = self.connection.recv(_PIECE_BYTES)
            if not more:
                if read:
                    raise HttpError("the connection ended within a head")
                return None
            read += more
        end += len(_END_OF_HEAD)
        raw, self._ahead = bytes(read[:end]), bytes(read[end:])
        first, *lines = raw.decode("latin-1").split("\r\n")
        if "HTTP/1." not in first or first.count(" ") < 2:
            raise HttpError(f"no HTTP: {first[:80]!r}")
        pairs = (line.partition(":") for line in lines if line)
        return Head(raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs})

    def request_body(self, head: Head) -> Iterator[bytes]:
        """The body of a request, as on the wire: without a length and chunks it has none."""
        if "transfer-encoding" in head.fields:
            return self._chunks()
        return self._exactly(head.length or 0)

    def reply_body(self, head: Head, method: str) -> Iterator[bytes]:
        """The body of a reply to a method, as on the wire."""
        if method == "HEAD" or head.first.split(" ")[1] in _NO_BODY:
            return iter(())
        if "transfer-encoding" in head.fields:
            return self._chunks()
        return self._to_the_end() if head.length is None else self._exactly(head.length)

    def _some(self, most: int) -> bytes:
        piece = self._ahead[:most]
        if piece:
            self._ahead = self._ahead[most:]
            return piece
        return self.connection.recv(min(most, _PIECE_BYTES))

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self._some(length)
            if not piece:
                raise HttpError(f"the connection ended {length} bytes before a body's end")
            length -= len(piece)
            yield piece

    def _to_the_end(self) -> Iterator[bytes]:
        while piece := self._some(_PIECE_BYTES):
            yield piece

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\r\n"):
            byte = self._some(1)
            if not byte or len(line) > _MOST_HEAD_BYTES:
                raise HttpError("the connection ended within a chunk")
            line += byte
        return bytes(line)

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise HttpError(f"no size of a chunk: {line[:80]!r}") from None
            if not size:
                break
            yield from self._exactly(size + 2)
        while (line := self._line()) != b"\r\n":
            yield line
        yield line
