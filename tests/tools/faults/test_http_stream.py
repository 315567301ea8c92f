"""HTTP as the proxy reads it, from what may come on a socket."""

import socket
from collections.abc import Iterator

import pytest

from tools.faults.http_stream import HttpError, HttpStream


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, HttpStream]]:
    theirs, ours = socket.socketpair()
    with theirs, ours:
        yield theirs, HttpStream(ours)


def test_heads_and_bodies_follow_each_other(ends: tuple[socket.socket, HttpStream]) -> None:
    theirs, stream = ends
    theirs.sendall(
        b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhelloGET /b HTTP/1.1\r\n"
    )
    head = stream.head()
    assert head is not None
    assert head.first == "PUT /a HTTP/1.1"
    assert (head.length, head.fields["x-a"]) == (5, "b")
    assert b"".join(stream.request_body(head)) == b"hello"
    theirs.sendall(b"Expect: 100-continue\r\nHost: h\r\n\r\n")
    head = stream.head()
    assert head is not None
    assert list(stream.request_body(head)) == []
    assert head.without("expect") == b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n"
    theirs.shutdown(socket.SHUT_WR)
    assert stream.head() is None


def test_chunks_are_passed_on_as_they_came(ends: tuple[socket.socket, HttpStream]) -> None:
    theirs, stream = ends
    body = b"5;x=1\r\nhello\r\n3\r\n wo\r\n0\r\nTrailer: t\r\n\r\n"
    theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"HTTP/1.1 ")
    head = stream.head()
    assert head is not None
    assert head.length is None
    assert b"".join(stream.reply_body(head, "GET")) == body
    assert stream._ahead == b"HTTP/1.1 "


@pytest.mark.parametrize(
    ("method", "head", "body"),
    [
        ("HEAD", "200 OK\r\nContent-Length: 5", b""),
        ("GET", "304 Not Modified", b""),
        ("DELETE", "204 No Content", b""),
        ("GET", "200 OK\r\nContent-Length: 5", b"hello"),
        ("GET", "200 OK\r\nConnection: close", b"hello and more"),
    ],
)
def test_what_a_reply_holds(
    ends: tuple[socket.socket, HttpStream], method: str, head: str, body: bytes
) -> None:
    theirs, stream = ends
    theirs.sendall(f"HTTP/1.1 {head}\r\n\r\n".encode() + b"hello and more")
    theirs.shutdown(socket.SHUT_WR)
    reply = stream.head()
    assert reply is not None
    assert b"".join(stream.reply_body(reply, method)) == body


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"GET /a HT", "within a head"),
        (b"A" * 70_000, "more than 64 KiB"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell", "5 bytes before"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "bytes before"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5", "within a chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no size of a chunk"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "no length"),
        (b"what\r\n\r\n", "no HTTP"),
    ],
)
def test_what_is_no_http_is_an_error(
    ends: tuple[socket.socket, HttpStream], sent: bytes, words: str
) -> None:
    theirs, stream = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)

    def read() -> None:
        head = stream.head()
        assert head is not None
        list(stream.reply_body(head, "GET"))

    with pytest.raises(HttpError, match=words):
        read()
