"""The proof asked of an object store before anything is written to it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lake import create_lake
from lake.errors import CommitConflictError
from lake.object_store import is_object_store, redact, require_conditional_put


class OverwritingStore(BaseHTTPRequestHandler):
    """Accepts `If-None-Match: *` and overwrites all the same, as some stores do."""

    protocol_version = "HTTP/1.1"

    def _answer(self, status: int) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"1"')
        self.end_headers()

    def do_PUT(self) -> None:
        self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(204)

    def do_POST(self) -> None:
        self._answer(200)

    def do_GET(self) -> None:
        self._answer(404)

    def do_HEAD(self) -> None:
        self._answer(404)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def overwriting_store() -> Iterator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OverwritingStore) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {
            "aws_endpoint": f"http://127.0.0.1:{server.server_port}",
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        server.shutdown()
        thread.join()


def test_a_store_that_overwrites_is_refused(overwriting_store: dict[str, str]) -> None:
    with pytest.raises(CommitConflictError, match="ignores If-None-Match"):
        require_conditional_put("s3://bucket/x.lake", overwriting_store)


@pytest.mark.parametrize(
    ("uri", "remote"),
    [
        ("s3://bucket/x.lake", True),
        ("gs://bucket/x", True),
        ("az://container/x", True),
        ("file:///data/x.lake", False),
        ("/data/x.lake", False),
        ("relative/x.lake", False),
    ],
)
def test_what_is_an_object_store(uri: str, remote: bool) -> None:  # noqa: FBT001 - a table column
    assert is_object_store(uri) == remote


def test_local_paths_need_no_proof(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("local")
    require_conditional_put(str(folder), {})
    assert not list(folder.iterdir())
    create_lake(folder / "x.lake")
    assert not (folder / "x.lake" / "_probe").exists()


@pytest.mark.parametrize(
    "name",
    [
        "aws_secret_access_key",
        "AWS_SESSION_TOKEN",
        "access_key_id",
        "azure_storage_account_key",
        "google_service_account_key",
        "azure_storage_sas_token",
    ],
)
def test_every_kind_of_secret_is_removed(name: str) -> None:
    assert redact("open sesame: denied", {name: "sesame", "region": "denied"}) == "open ***: denied"


def test_empty_options_remove_nothing() -> None:
    assert redact("text", {"aws_secret_access_key": ""}) == "text"
