"""The proxy before a real S3 server."""

import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from obstore.exceptions import BaseError

from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tools.faults.fault import Fault, FaultError, Kind
from tools.faults.http_stream import HttpStream
from tools.faults.proxy_process import S3ProxyProcess
from tools.faults.s3_proxy import S3Proxy

if TYPE_CHECKING:
    from obstore.store import S3Store

pytestmark = pytest.mark.s3

_BODY = bytes(range(256)) * 400


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint) as running:
        yield running


def _store(proxy: S3Proxy | S3ProxyProcess, *, retries: int = 0, timeout: str = "10s") -> "S3Store":
    from obstore.store import S3Store

    return S3Store(
        BUCKET,
        prefix="proxied",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        endpoint=proxy.endpoint,
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timeout},
        retry_config={"max_retries": retries},
    )


def test_requests_pass_signed_and_are_counted(proxy: S3Proxy) -> None:
    store = _store(proxy)
    before = proxy.traffic
    store.put("a b/ö.bin", _BODY)
    assert bytes(store.get("a b/ö.bin").bytes()) == _BODY
    assert bytes(store.get_range("a b/ö.bin", start=10, length=20)) == _BODY[10:30]
    assert [item["path"] for item in store.list("a b").collect()] == ["a b/ö.bin"]
    spent = proxy.traffic - before
    assert spent.requests == {"PUT": 1, "GET": 3}
    assert spent.request_bytes >= len(_BODY)
    assert spent.reply_bytes >= len(_BODY) + 20
    assert spent.faults == {}


def test_a_process_of_its_own_counts_too(s3_server: S3Server) -> None:
    with S3ProxyProcess(s3_server.endpoint, delay_s=0.001) as proxy:
        store = _store(proxy)
        store.put("process.bin", _BODY)
        assert bytes(store.get("process.bin").bytes()) == _BODY
        assert proxy.traffic.requests == {"PUT": 1, "GET": 1}
        assert proxy.traffic.reply_bytes == len(_BODY)


def test_a_process_injects_faults(s3_server: S3Server) -> None:
    options = ("--fault", "slow_down=1", "--fault", "stall=0", "--path", "bad", "--hold-s", "0")
    with S3ProxyProcess(s3_server.endpoint, options=options) as proxy:
        store = _store(proxy)
        store.put("good.bin", _BODY)
        with pytest.raises(BaseError, match="503"):
            store.put("bad.bin", _BODY)
        assert proxy.traffic.faults == {"slow_down": 1}


@pytest.mark.parametrize(
    ("upstream", "options", "words"),
    [
        ("ftp://nowhere", (), "an address such as"),
        ("http://127.0.0.1:1", ("--fault", "slow_down"), "write KIND=RATE"),
        ("http://127.0.0.1:1", ("--fault", "fire=1"), "the kinds are slow_down"),
    ],
)
def test_a_process_that_cannot_start_is_named(
    upstream: str, options: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FaultError, match="ended with exit code 2"):
        S3ProxyProcess(upstream, options=options)
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("upstream", ["https://127.0.0.1:1", "http://127.0.0.1:1/path", "x"])
def test_an_upstream_must_be_a_plain_address(upstream: str) -> None:
    with pytest.raises(FaultError, match="an address such as"):
        S3Proxy(upstream)


@pytest.mark.parametrize("kind", ["slow_down", "reset", "cut", "truncate", "lose_reply"])
def test_a_fault_is_an_error_and_asking_again_helps(proxy: S3Proxy, kind: Kind) -> None:
    _store(proxy).put(f"{kind}.bin", _BODY)
    proxy.set_faults([Fault(kind=kind, path=kind, most=1)])
    with pytest.raises(BaseError):
        _store(proxy).get(f"{kind}.bin").bytes()
    assert bytes(_store(proxy).get(f"{kind}.bin").bytes()) == _BODY
    assert proxy.traffic.faults == {kind: 1}


def test_a_flip_turns_one_bit(s3_server: S3Server) -> None:
    places = set()
    for seed in range(3):
        with S3Proxy(s3_server.endpoint, seed=seed) as proxy:
            _store(proxy).put("flip.bin", _BODY)
            proxy.set_faults([Fault(kind="flip", methods=("GET",))])
            read = bytes(_store(proxy).get("flip.bin").bytes())
        wrong = [at for at in range(len(_BODY)) if read[at] != _BODY[at]]
        assert len(read) == len(_BODY)
        assert len(wrong) == 1
        assert (read[wrong[0]] ^ _BODY[wrong[0]]).bit_count() == 1
        places.add(wrong[0])
    assert len(places) == 3


def test_a_lost_reply_is_of_a_request_that_was_done(proxy: S3Proxy) -> None:
    proxy.set_faults([Fault(kind="lose_reply", methods=("PUT",), most=1)])
    with pytest.raises(BaseError):
        _store(proxy).put("lost.bin", _BODY)
    assert bytes(_store(proxy).get("lost.bin").bytes()) == _BODY


def test_a_refused_upload_was_not_done(proxy: S3Proxy) -> None:
    for kind in ("slow_down", "reset"):
        proxy.set_faults([Fault(kind=kind, methods=("PUT",), most=1)])
        with pytest.raises(BaseError):
            _store(proxy).put(f"refused-{kind}.bin", _BODY)
        with pytest.raises(FileNotFoundError):
            _store(proxy).head(f"refused-{kind}.bin")


def test_a_stall_lasts_until_released(proxy: S3Proxy) -> None:
    store = _store(proxy)
    store.put("stall.bin", _BODY)
    proxy.set_faults([Fault(kind="stall")])
    read: list[bytes] = []
    reading = threading.Thread(target=lambda: read.append(bytes(store.get("stall.bin").bytes())))
    reading.start()
    assert proxy.wait_for("stall")
    assert read == []
    assert not proxy.wait_for("stall", 2, timeout_s=0.01)
    proxy.release()
    reading.join()
    assert read == [_BODY]


def test_a_stall_and_a_slow_reply_may_have_an_end(proxy: S3Proxy) -> None:
    store = _store(proxy)
    store.put("held.bin", _BODY)
    for kind in ("stall", "slow"):
        proxy.set_faults([Fault(kind=kind, hold_s=0.01)])
        assert bytes(store.get("held.bin").bytes()) == _BODY
    assert proxy.traffic.faults == {"stall": 1, "slow": 1}


def test_faults_meet_only_what_they_are_told_to(proxy: S3Proxy) -> None:
    store = _store(proxy)
    proxy.set_faults([Fault(kind="slow_down", path=r"/meta/", methods=("GET",))])
    for name in ("meta/a.bin", "data/a.bin"):
        store.put(name, _BODY)
        store.head(name)
    assert bytes(store.get("data/a.bin").bytes()) == _BODY
    with pytest.raises(BaseError):
        store.get("meta/a.bin")


def test_closing_ends_what_is_stalled(s3_server: S3Server) -> None:
    before = threading.active_count()
    with S3Proxy(s3_server.endpoint) as proxy:
        proxy.set_faults([Fault(kind="stall")])
        failed: list[BaseException] = []

        def read() -> None:
            try:
                _store(proxy).head("nothing.bin")
            except BaseError as error:
                failed.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        assert proxy.wait_for("stall")
    reading.join()
    assert failed
    assert threading.active_count() == before


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with S3Proxy("http://127.0.0.1:1") as proxy, pytest.raises(BaseError):
        _store(proxy).head("nothing.bin")


class _Upstream:
    """A server of one connection that answers as it is told, and keeps what it was sent."""

    def __init__(self, *replies: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self._replies = replies
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            stream = HttpStream(connection)
            for reply in self._replies:
                head = stream.head()
                assert head is not None
                self.heads.append(head.raw)
                self.bodies.append(b"".join(stream.request_body(head)))
                connection.sendall(reply)

    def join(self) -> None:
        self._thread.join()


def _client(proxy: S3Proxy) -> socket.socket:
    host, port = proxy.endpoint.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def test_a_client_that_waits_to_be_told_to_continue_is_told() -> None:
    upstream = _Upstream(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    )
    with S3Proxy(upstream.endpoint) as proxy, _client(proxy) as client:
        head = b"PUT /a HTTP/1.1\r\nHost: signed:1\r\nContent-Length: 4\r\n"
        client.sendall(head + b"Expect: 100-continue\r\n\r\n")
        stream = HttpStream(client)
        told = stream.head()
        assert told is not None
        assert told.first == "HTTP/1.1 100 Continue"
        client.sendall(b"body")
        reply = stream.head()
        assert reply is not None
        assert reply.first == "HTTP/1.1 200 OK"
    upstream.join()
    assert upstream.heads == [head + b"\r\n"]  # the host as the client signed it
    assert upstream.bodies == [b"body"]


def test_chunks_and_closing_replies_pass() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end"
    upstream = _Upstream(chunked, closing)
    with S3Proxy(upstream.endpoint) as proxy, _client(proxy) as client:
        # What a fault does to bodies of unknown length is nothing.
        proxy.set_faults([Fault(kind="truncate")])
        client.sendall(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
        received = b""
        while piece := client.recv(1 << 16):
            received += piece
    upstream.join()
    assert received == chunked + closing
