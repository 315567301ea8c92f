"""A real S3 server on loopback (SeaweedFS), for tests and benches.

The program is `weed`, which `pip install -r requirements-s3-test.txt` puts beside the interpreter.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tools.faults.fault import FaultError

ACCESS_KEY: Final = "headrace-test-key"
SECRET_KEY: Final = "headrace-test-secret"  # noqa: S105  # of a server on loopback
BUCKET: Final = "robots"
_START_TIMEOUT_S: Final = 60.0
_GRPC_OFFSET: Final = 10_000
_PORTS: Final = (
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

    def behind(self, endpoint: str) -> "S3Server":
        """The same server, reached through a proxy."""
        return replace(
            self,
            endpoint=endpoint,
            storage_options={**self.storage_options, "aws_endpoint": endpoint},
        )


def find_s3_program() -> str | None:
    """Path of `weed`, beside the interpreter or on the PATH; None where there is none."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@contextmanager
def run_s3_server(program: str, folder: Path) -> Iterator[S3Server]:
    """Run the server while the block runs.

    Args:
        program: path of `weed`.
        folder: where it keeps its data and its log.

    Raises:
        FaultError: it did not start; the end of its log is quoted.
    """
    identity = {
        "identities": [
            {
                "name": "test",
                "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
        ]
    }
    (folder / "identity.json").write_text(json.dumps(identity), encoding="utf-8")
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
                for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):  # noqa: S108
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
    store = S3Store(
        BUCKET,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        endpoint=server.endpoint,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    while True:
        try:
            store.put("ready", b"1")
        except BaseError as error:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            if process.returncode is not None or time.monotonic() > deadline:
                text = log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise FaultError(f"the S3 server did not start ({error}):\n{text}") from error
        else:
            return
