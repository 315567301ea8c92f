"""A read-only S3 over a local folder, in this process: for what no real server can be told to do.

It checks the access key (not the signature), holds requests until they are let go, answers with
errors on demand and counts what is under way.
"""

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "folder"


class FolderS3:
    """Serves `s3://folder/...` from a folder while its `with` block runs.

    Attributes:
        endpoint: `http://127.0.0.1:port`.
        access_keys: that are let in; any where empty.
        gate: requests for data wait until it is set.
        answer: path -> (status, error code) to answer in place of the object, None to serve it.
        most_under_way: of requests for data, at once.
        requests: method -> how many.
        used_keys: access key -> requests that came with it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.access_keys: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.answer: Callable[[str], tuple[int, str] | None] = lambda _: None
        self.most_under_way = 0
        self.requests: Counter[str] = Counter()
        self.used_keys: Counter[str] = Counter()
        self.arrived = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.under_way = 0
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def options(self, access_key: str = "key") -> dict[str, str]:
        """Storage options for Lance."""
        return {
            "aws_access_key_id": access_key,
            "aws_secret_access_key": "secret-of-the-folder",
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def uri(self, name: str) -> str:
        """URI of a file or folder."""
        return f"s3://{BUCKET}/{name}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, *_: Any) -> None:
        """A client that gave up is what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    store: FolderS3
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def _serve(self, *, body: bool) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix(f"/{BUCKET}").strip("/")
        key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        with self.store.lock:
            self.store.requests[self.command] += 1
            self.store.used_keys[key] += 1
        if self.store.access_keys and key not in self.store.access_keys:
            self._error(403, "ExpiredToken")
            return
        query = parse_qs(parts.query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0], delimited="delimiter" in query)
            return
        data = "/data/" in path
        if data:
            with self.store.lock:
                self.store.under_way += 1
                self.store.most_under_way = max(self.store.most_under_way, self.store.under_way)
            self.store.arrived.release()
            self.store.gate.wait(60)
        try:
            answer = self.store.answer(path)
            if answer is not None:
                self._error(*answer)
            else:
                self._object(self.store.root / path, body=body)
        finally:
            if data:
                with self.store.lock:
                    self.store.under_way -= 1

    def _object(self, file: Path, *, body: bool) -> None:
        if not file.is_file():
            self._error(404, "NoSuchKey")
            return
        content = file.read_bytes()
        total, status, extra = len(content), 200, {}
        wanted = self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else total - int(last)
            stop = int(last) + 1 if first and last else total
            content, status = content[start : min(stop, total)], 206
            extra["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{total}"
        self._reply(status, content, body=body, **extra)

    def _list(self, prefix: str, *, delimited: bool) -> None:
        files = sorted(
            str(file.relative_to(self.store.root))
            for file in self.store.root.rglob("*")
            if file.is_file()
        )
        keys = [name for name in files if name.startswith(prefix)]
        folders: list[str] = []
        if delimited:
            deeper = [key for key in keys if "/" in key[len(prefix) :]]
            folders = sorted({prefix + key[len(prefix) :].split("/")[0] + "/" for key in deeper})
            keys = [key for key in keys if key not in deeper]
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z"
            f'</LastModified><ETag>"x"</ETag><Size>{(self.store.root / key).stat().st_size}</Size>'
            "</Contents>"
            for key in keys
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in folders
        )
        text = (
            f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>'
            f"{contents}{common}</ListBucketResult>"
        )
        self._reply(200, text.encode())

    def _error(self, status: int, code: str) -> None:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
        self._reply(status, text.encode())

    def _reply(self, status: int, content: bytes, *, body: bool = True, **fields: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("ETag", '"x"')
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(content)
