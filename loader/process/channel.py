"""Messages between the consumer's process and its decode process: JSON and file descriptors.

A pair of `SOCK_SEQPACKET` sockets keeps message boundaries, carries memfds as SCM_RIGHTS, and
reads as ended when the other process is gone, however it died.
"""

import contextlib
import json
import select
import socket
from array import array
from typing import Any, Final, Self

from loader.errors import LoaderError

_LARGEST: Final = 1 << 17
_MOST_FDS: Final = 4


class Channel:
    """One end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """Our end, and the socket to pass to the other process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message.

        Raises:
            LoaderError: the message is larger than a packet may be.
            ConnectionError: the other end is closed.
        """
        data = _packet(message)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        self._socket.sendmsg([data], rights)

    def offer(self, message: dict[str, Any]) -> bool:
        """Send a message if there is room for it; False where the other end has not read for long.

        Raises:
            LoaderError, ConnectionError: as `send`.
        """
        try:
            self._socket.sendmsg([_packet(message)], (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def receive(
        self, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], tuple[int, ...]] | None:
        """The next message with its file descriptors (now ours), or None at the end.

        Raises:
            TimeoutError: no message within `timeout_s`.
        """
        # Polled, since a time-out of the socket would also end a send that waits for room.
        if timeout_s is not None and not self._readable(timeout_s):
            raise TimeoutError
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _LARGEST, _MOST_FDS)
        except ConnectionResetError:  # the other process died with unread messages of ours
            return None
        if not data:
            return None
        message: dict[str, Any] = json.loads(data)
        return message, tuple(fds)

    def _readable(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def fileno(self) -> int:
        """Descriptor of this end, to wait for several of them."""
        return self._socket.fileno()

    def close(self, *, shutdown: bool = True) -> None:
        """Close this end; the other one reads the end.

        Without `shutdown` only this process's descriptor goes: for a process that has inherited
        the connection by a fork and must not end it.
        """
        if shutdown:
            with contextlib.suppress(OSError):  # the other end is gone already
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _packet(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > _LARGEST:
        raise LoaderError(f"a message of {len(data)} bytes, at most {_LARGEST} can be sent")
    return data
