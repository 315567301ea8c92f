"""The proof asked of an object store before anything is written to it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lake import create_lake
from lake.errors import CommitConflictError, LakeError
from lake.object_store import (
    is_object_store,
    list_folders,
    redact,
    remove_folder,
    require_conditional_put,
)
from tests.s3_server import S3Server


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


def test_folders_on_disk(tmp_path: Path) -> None:
    for name in ("b", "a", "a/deep"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert list_folders(str(tmp_path), {}) == ["a", "b"]
    assert list_folders(str(tmp_path / "none"), {}) == []
    remove_folder(str(tmp_path / "a"), {})
    assert list_folders(str(tmp_path), {}) == ["b"]
    with pytest.raises(LakeError, match="cannot be deleted"):
        remove_folder(str(tmp_path / "a"), {})


@pytest.mark.s3
def test_folders_in_an_object_store(s3_server: S3Server) -> None:
    from obstore.store import from_url

    uri, options = s3_server.uri("folders"), s3_server.storage_options
    config = {key.removeprefix("aws_"): v for key, v in options.items() if key != "allow_http"}
    make: Any = from_url  # typed per kind of store
    store = make(uri, config=config, client_options={"allow_http": True})
    for name in ("b/1", "a/deep/2", "a/3", "file"):
        store.put(name, b"x")
    assert list_folders(uri, options) == ["a", "b"]
    assert list_folders(s3_server.uri("none"), options) == []
    remove_folder(f"{uri}/a", options)
    left = [entry["path"] for entries in store.list() for entry in entries]
    assert sorted(left) == ["b/1", "file"]


def test_a_store_that_cannot_be_listed_keeps_its_secrets() -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_access_key_id": "public-key",
        "aws_secret_access_key": "very-secret-key",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "connect_timeout": "50ms",
        "timeout": "50ms",
    }
    with pytest.raises(LakeError, match="s3://robots/x: listing failed") as caught:
        list_folders("s3://robots/x", options)
    assert "very-secret-key" not in str(caught.value)
