"""The proxy before a real S3 server."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tools.faults.fault import FaultError
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
