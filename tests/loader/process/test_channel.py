"""Messages between processes, with descriptors."""

import os

import pytest

from loader import LoaderError
from loader.process.channel import Channel


def test_messages_keep_their_bounds_and_descriptors() -> None:
    ours, socket = Channel.pair()
    theirs = Channel(socket)
    fd = os.memfd_create("x")
    os.write(fd, b"hello")
    ours.send({"a": 1})
    ours.send({"b": [2]}, (fd,))
    assert theirs.receive() == ({"a": 1}, ())
    received = theirs.receive()
    assert received
    assert received[0] == {"b": [2]}
    assert os.pread(received[1][0], 5, 0) == b"hello"
    with pytest.raises(TimeoutError):
        theirs.receive(0.0)
    ours.close()
    assert theirs.receive() is None
    theirs.close()
    os.close(fd)
    os.close(received[1][0])


def test_who_does_not_read_is_told_later() -> None:
    """A process that is stopped must not stop who sends to it."""
    ours, socket = Channel.pair()
    theirs = Channel(socket)
    sent = 0
    while ours.offer({"taken": [sent]}):
        sent += 1
    assert [theirs.receive() for _ in range(sent)] == [({"taken": [n]}, ()) for n in range(sent)]
    assert ours.offer({"taken": [sent]})
    assert theirs.receive(0.0) == ({"taken": [sent]}, ())
    theirs.close()
    with pytest.raises(ConnectionError):
        ours.offer({})
    ours.close()


def test_a_message_too_large_for_a_packet_is_refused() -> None:
    ours, socket = Channel.pair()
    with pytest.raises(LoaderError, match="at most"):
        ours.send({"a": "x" * (1 << 18)})
    ours.close()
    socket.close()
