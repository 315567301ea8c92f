"""Guarantee 9: credentials stay in memory, and no servers are reached from elsewhere.

That pickle is never loaded from a lake is `tests/test_import_direction.py`'s to show.
"""

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store
from typer.testing import CliRunner

from lake import Lake, create_lake, open_lake
from lake.errors import HeadraceError
from loader import PackLoader
from loader.materialized.materialize import materialize
from loader.storage.settings import StorageSettings
from packing.plan_store import save_plan
from tests.loader import scenes
from tests.s3_server import BUCKET, S3Server
from tools.cli import build_app
from tools.faults.fault import Fault
from tools.faults.s3_proxy import S3Proxy

pytestmark = pytest.mark.s3

_NAME = "secrets.lake"
_LISTEN = "0A"  # a state in /proc/net/tcp


@pytest.fixture(scope="module")
def remote(s3_server: S3Server) -> Lake:
    """A lake with a plan that is materialised."""
    uri, options = s3_server.uri(_NAME), s3_server.storage_options
    lake = scenes.fill_lake(create_lake(uri, storage_options=options))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    materialize(lake, scenes.scene_plan(lake), workers=0)
    return lake


@pytest.fixture
def secrets(s3_server: S3Server) -> tuple[str, ...]:
    """What must not be seen."""
    options = s3_server.storage_options
    return options["aws_secret_access_key"], options["aws_access_key_id"]


def _objects(server: S3Server) -> Iterator[bytes]:
    """Name and content of every object of the lake."""
    options = server.storage_options
    store = S3Store(
        BUCKET,
        access_key_id=options["aws_access_key_id"],
        secret_access_key=options["aws_secret_access_key"],
        endpoint=server.endpoint,
        region=options["aws_region"],
        client_options={"allow_http": True},
    )
    for part in obstore.list(store, prefix=_NAME):
        for found in part:
            yield found["path"].encode()
            yield bytes(obstore.get(store, found["path"]).bytes())


def _descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [*children, *(deeper for child in children for deeper in _descendants(child))]


def _listening(pid: int) -> set[str]:
    """Addresses at which a process listens."""
    links = [
        str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()
    ]
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[number] for number in (1, 3, 9))
            if state == _LISTEN and inode in sockets:
                words = bytes.fromhex(local.partition(":")[0])
                in_order = [words[n : n + 4][::-1] for n in range(0, len(words), 4)]
                found.add(socket.inet_ntop(family, b"".join(in_order)))
    return found


def test_nothing_in_the_lake_holds_them(
    remote: Lake, s3_server: S3Server, secrets: tuple[str, ...]
) -> None:
    objects = list(_objects(s3_server))
    assert len(objects) > 40, remote.uri
    for secret in secrets:
        assert not [content[:80] for content in objects if secret.encode() in content]


def test_a_decode_process_shows_them_to_nobody(
    remote: Lake,
    secrets: tuple[str, ...],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    cache = tmp_path / "cache"
    before = set(_descendants(os.getpid()))
    storage = StorageSettings(cache_dir=str(cache))
    with PackLoader(remote, "mix", framework="numpy", storage=storage, log_every_s=1e-6) as loader:
        batches = iter(loader)
        next(batches)
        (child,) = set(_descendants(os.getpid())) - before
        shown = [Path(f"/proc/{child}/{name}").read_text() for name in ("cmdline", "environ")]
        shown += [repr(loader), repr(loader.state_dict())]
        list(batches)
        shown += [repr(loader.metrics), repr(loader.plan.header), repr(remote)]
    shown += [record.getMessage() for record in caplog.records]
    shown += capfd.readouterr()
    held = [path.read_bytes() for path in cache.rglob("*") if path.is_file()]
    assert caplog.records
    assert held
    for secret in secrets:
        assert not [text for text in shown if secret in text]
        assert not [path for path in held if secret.encode() in path]


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("process", ["inline", "child"])
def test_an_error_of_the_store_tells_none(
    s3_server: S3Server, secrets: tuple[str, ...], process: Any
) -> None:
    impatient = StorageSettings(request_timeout_s=0.2, deadline_s=0.4)
    with S3Proxy(s3_server.endpoint) as proxy:
        behind = s3_server.behind(proxy.endpoint)
        lake = open_lake(behind.uri(_NAME), storage_options=behind.storage_options)
        loader = PackLoader(lake, "mix", process=process, framework="numpy", storage=impatient)
        proxy.set_faults([Fault(kind="slow_down")])
        with loader, pytest.raises(HeadraceError) as raised:
            list(loader)
    error: BaseException | None = raised.value
    while error is not None:
        assert not [secret for secret in secrets if secret in f"{error} {error!r}"]
        error = error.__cause__


def test_a_command_prints_none(s3_server: S3Server, secrets: tuple[str, ...]) -> None:
    wrong = {**s3_server.storage_options, "aws_secret_access_key": "wrong-" + secrets[0]}
    for options in (s3_server.storage_options, wrong):
        stores = [word for each in options.items() for word in ("--storage-option", "=".join(each))]
        result = CliRunner().invoke(build_app(), ["plan", "list", s3_server.uri(_NAME), *stores])
        said = result.output + repr(result.exception)
        assert not [secret for secret in secrets if secret in said]


def test_servers_are_reached_from_this_machine_alone(s3_server: S3Server) -> None:
    with S3Proxy(s3_server.endpoint):
        pids = [os.getpid(), *_descendants(os.getpid())]
        addresses = set().union(*map(_listening, pids))
    assert addresses == {"127.0.0.1"}
