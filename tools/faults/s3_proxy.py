"""An HTTP proxy on loopback before an S3 server: latency, faults by seed, and counts.

The `Host` of a request is passed on as it came, so the signature that a client made for the proxy's
address is valid at the server. As a process of its own: `python -m tools.faults.s3_proxy --help`.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from tools.faults.fault import Fault, FaultDraw, FaultError, Kind, chance
from tools.faults.http_stream import Head, HttpError, HttpStream
from tools.faults.traffic import Traffic

_LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 512
_CONNECT_S: Final = 10.0
_SLOW_PIECES: Final = 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_SLOW_DOWN: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class _Dropped(Exception):  # noqa: N818 - it is how an exchange ends, not an error
    """The client's connection ends here; with `reset` as by a crash."""

    def __init__(self, *, reset: bool) -> None:
        self.reset = reset


class S3Proxy:
    """Listens on a free port of loopback while its `with` block runs.

    Args:
        upstream: of the real server, `http://host:port`.
        delay_s: added to every request, before the server is asked.
        jitter_s: up to this much more, uniformly.
        faults: the first that befalls a request is injected.
        seed: of faults and jitter.
        port: to listen on, 0 for any free one.

    Attributes:
        endpoint: `http://127.0.0.1:port`, for the clients.

    Raises:
        FaultError: the upstream is no `http://host:port`, or the port is taken.
    """

    def __init__(
        self,
        upstream: str,
        *,
        delay_s: float = 0.0,
        jitter_s: float = 0.0,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        port: int = 0,
    ) -> None:
        parts = urlsplit(upstream)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
            raise FaultError(f"upstream {upstream!r}: an address such as http://127.0.0.1:8333")
        self._upstream = (parts.hostname, parts.port or 80)
        self._seed = seed
        self._lock = threading.Condition()
        self._closing = threading.Event()
        self._released = threading.Event()
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._requests: Counter[str] = Counter()
        self._injected: Counter[str] = Counter()
        self._request_bytes = self._reply_bytes = 0
        self.delay_s = delay_s
        self.jitter_s = jitter_s
        self.set_faults(faults)
        try:
            self._listener = socket.create_server((_LOOPBACK, port), backlog=_BACKLOG)
        except OSError as error:
            raise FaultError(f"port {port} of {_LOOPBACK}: {error}") from error
        self.endpoint: Final = f"http://{_LOOPBACK}:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, name="s3-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections and threads."""
        self._closing.set()
        self._released.set()
        with self._lock:
            open_now = [self._listener, *self._connections]
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._accepting.is_alive():
            self._accepting.join()
        for thread in tuple(self._threads):
            thread.join()

    def set_faults(self, faults: Sequence[Fault]) -> None:
        """Inject these from now on, with fresh luck; stalled requests stay so until released."""
        with self._lock:
            self._draw = FaultDraw(faults, self._seed)

    def release(self) -> None:
        """Let requests that are stalled now go on, and those that will be."""
        self._released.set()

    def wait_for(self, kind: Kind, count: int = 1, timeout_s: float = 30.0) -> bool:
        """Wait until a kind of fault has been injected so often; False where it was not in time."""
        with self._lock:
            return self._lock.wait_for(lambda: self._injected[kind] >= count, timeout_s)

    @property
    def traffic(self) -> Traffic:
        """What went through so far."""
        with self._lock:
            return Traffic(
                requests=dict(self._requests),
                request_bytes=self._request_bytes,
                reply_bytes=self._reply_bytes,
                faults=dict(self._injected),
            )

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._threads.add(thread)
                self._connections.add(connection)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        upstream = _Upstream(self._upstream)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = HttpStream(connection)
            while not self._closing.is_set() and (head := client.head()) is not None:
                self._exchange(client, head, upstream)
        except _Dropped as dropped:
            if dropped.reset:
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        except (OSError, HttpError):
            pass  # either side went away; the other sees its connection end
        finally:
            upstream.close()
            connection.close()
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())

    def _exchange(self, client: HttpStream, head: Head, upstream: "_Upstream") -> None:
        """One request and its reply."""
        method, target, _ = head.first.split(" ", 2)
        byte_range = head.fields.get("range", "")
        with self._lock:
            self._requests[method] += 1
            count = sum(self._requests.values())
            fault, place = self._draw.draw(method, unquote(target), byte_range) or (None, 0.0)
            if fault is not None:
                self._injected[fault.kind] += 1
                self._lock.notify_all()
        self._pause(self.delay_s + self.jitter_s * chance(self._seed, -1, count))
        kind = None if fault is None else fault.kind
        if fault is not None and kind == "stall":
            self._released.wait(fault.hold_s)
        if kind == "reset":
            raise _Dropped(reset=True)
        if head.fields.get("expect", "").lower() == "100-continue":
            client.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._counted_request(client.request_body(head))
        if kind == "slow_down":
            for _ in body:
                pass
            self._refuse(client, method)
            return
        reply, parts = upstream.ask(method, head.without("expect"), body)
        if kind == "lose_reply":
            for _ in parts:
                pass
            raise _Dropped(reset=True)
        client.connection.sendall(reply.raw)
        for piece in self._damaged(fault, place, reply.length, parts):
            with self._lock:  # first, so that whoever has read it finds it counted
                self._reply_bytes += len(piece)
            client.connection.sendall(piece)
        if reply.fields.get("connection", "").lower() == "close" or (
            reply.length is None and "transfer-encoding" not in reply.fields
        ):
            raise _Dropped(reset=False)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._closing.wait(seconds)

    def _counted_request(self, body: Iterator[bytes]) -> Iterator[bytes]:
        for piece in body:
            with self._lock:
                self._request_bytes += len(piece)
            yield piece

    def _refuse(self, client: HttpStream, method: str) -> None:
        body = b"" if method == "HEAD" else _SLOW_DOWN
        client.connection.sendall(
            b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )

    def _damaged(
        self, fault: Fault | None, luck: float, length: int | None, parts: Iterable[bytes]
    ) -> Iterator[bytes]:
        """The reply's body with what the fault does to it; one of unknown length is left alone."""
        if fault is None or not length:
            yield from parts
            return
        place = int(luck * length)
        if fault.kind == "slow":
            yield from self._slowly(parts, length, fault.hold_s or 0.0)
            return
        passed = 0
        for piece in parts:
            at = place - passed
            passed += len(piece)
            if not 0 <= at < len(piece) or fault.kind not in ("cut", "truncate", "flip"):
                yield piece
            elif fault.kind == "flip":
                yield piece[:at] + bytes([piece[at] ^ 1 << place % 8]) + piece[at + 1 :]
            else:
                yield piece[:at]
                raise _Dropped(reset=fault.kind == "cut")

    def _slowly(self, parts: Iterable[bytes], length: int, seconds: float) -> Iterator[bytes]:
        size = -(-length // _SLOW_PIECES)
        for piece in parts:
            for begin in range(0, len(piece), size):
                self._pause(seconds / _SLOW_PIECES)
                yield piece[begin : begin + size]


class _Upstream:
    """The server's side of a client's connection, opened when needed and kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._stream: HttpStream | None = None

    def ask(self, method: str, head: bytes, body: Iterator[bytes]) -> tuple[Head, Iterator[bytes]]:
        """Send a request; the reply's head, and its body to be read before the next request."""
        if self._stream is None or _has_ended(self._stream.connection):
            self.close()
            connection = socket.create_connection(self._address, _CONNECT_S)
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = HttpStream(connection)
        self._stream.connection.sendall(head)
        for piece in body:
            self._stream.connection.sendall(piece)
        reply = self._stream.head()
        while reply is not None and reply.first.split(" ")[1] == "100":
            reply = self._stream.head()
        if reply is None:
            raise HttpError("the server closed the connection without a reply")
        return reply, self._stream.reply_body(reply, method)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.connection.close()
            self._stream = None


def _has_ended(connection: socket.socket) -> bool:
    """Whether the server closed a kept connection meanwhile."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.setblocking(True)


if __name__ == "__main__":
    from tools.faults.proxy_command import main

    main()
