"""The proxy before a real S3 server."""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from obstore.exceptions import BaseError

from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tools.faults.fault import Fault, FaultError, Kind
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


def test_a_process_that_cannot_start_is_named() -> None:
    with pytest.raises(FaultError, match="ended with exit code 2"):
        S3ProxyProcess("ftp://nowhere")


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
