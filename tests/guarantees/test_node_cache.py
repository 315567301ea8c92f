"""Guarantee: with a cache on the node, whatever is in it, batches are those of the lake alone."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from loader import PackLoader
from loader.storage.cache_folder import ENTRIES, cache_folder
from loader.storage.settings import StorageSettings
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_ROOT = Path(__file__).resolve().parents[2]
# Iterates until it is killed; a line per batch.
_READER = """
import sys
from loader import PackLoader
from loader.storage.settings import StorageSettings
storage = StorageSettings(cache_dir=sys.argv[2], cache_bytes=int(sys.argv[3]))
while True:
    with PackLoader(sys.argv[1], "mix", process="inline", framework="numpy", storage=storage) as l:
        for batch in l:
            print(batch.step, flush=True)
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return scenes.scene_lake(Path(tmp_path_factory.mktemp("cached")))


@pytest.fixture(scope="module")
def plan(lake: Lake) -> Plan:
    plan = scenes.scene_plan(lake)
    save_plan(lake, plan, "mix")
    lake.refresh()
    return plan


@pytest.fixture(scope="module")
def without(lake: Lake, plan: Plan) -> list[str]:
    with PackLoader(lake, plan, process="inline", framework="numpy") as loader:
        return [scenes.digest(batch) for batch in loader]


class Reader:
    """Loaders over one cache folder, and their counts."""

    def __init__(self, lake: Lake, plan: Plan, folder: Path) -> None:
        self.lake = lake
        self.plan = plan
        self.folder = folder
        self.cache_bytes = 1 << 30

    @property
    def entries(self) -> list[Path]:
        """Files of the cache's entries."""
        found = (cache_folder(self.folder) / ENTRIES).glob("??/*")
        return sorted(path for path in found if path.is_file())

    def read(self, **options: Any) -> tuple[list[str], dict[str, int]]:
        """Digests of all batches, and the counts."""
        storage = StorageSettings(cache_dir=str(self.folder), cache_bytes=self.cache_bytes)
        chosen = {"process": "inline", **options}
        with PackLoader(
            self.lake, self.plan, framework="numpy", storage=storage, **chosen
        ) as loader:
            return [scenes.digest(batch) for batch in loader], dict(loader.metrics.counts)


@pytest.fixture
def reader(lake: Lake, plan: Plan, tmp_path: Path) -> Reader:
    return Reader(lake, plan, tmp_path / "nvme")


def test_cold_and_warm(reader: Reader, without: list[str]) -> None:
    cold, counts = reader.read()
    assert cold == without
    assert counts["cache_misses"] > 0
    warm, counts = reader.read()
    assert warm == without
    assert counts.get("cache_misses", 0) == 0
    assert counts["cache_bytes"] >= counts["bytes_read"]


def test_shared_by_the_decode_processes_of_several_ranks(
    reader: Reader, lake: Lake, plan: Plan
) -> None:
    found = []
    for rank in range(2):
        expected = PackLoader(lake, plan, rank, 2, process="inline", framework="numpy")
        with expected:
            digests = [scenes.digest(batch) for batch in expected]
        cached, counts = reader.read(rank=rank, world_size=2, process="child", num_workers=2)
        assert cached == digests
        found.append(counts)
    assert found[1]["cache_hits"] > 0


def _flipped(position: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[position(len(content))] ^= 0x10
        return bytes(changed)

    return flip


_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "magic": _flipped(lambda _: 3),
    "name": _flipped(lambda _: 12),
    "length": _flipped(lambda _: 25),
    "checksum": _flipped(lambda _: 36),
    "first byte": _flipped(lambda _: 40),
    "middle": _flipped(lambda length: (40 + length) // 2),
    "last byte": _flipped(lambda length: length - 1),
    "no bytes": lambda _: b"",
    "part of the head": lambda content: content[:20],
    "the head alone": lambda content: content[:40],
    "half": lambda content: content[: len(content) // 2],
    "all but one": lambda content: content[:-1],
    "one too many": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_damaged(reader: Reader, without: list[str], damage: str) -> None:
    reader.read()
    for path in reader.entries:
        path.write_bytes(_DAMAGES[damage](path.read_bytes()))
    found, counts = reader.read()
    assert found == without
    assert counts["cache_damaged"] == len(reader.entries)
    found, counts = reader.read()
    assert found == without
    assert "cache_damaged" not in counts
    assert "cache_misses" not in counts or counts["cache_misses"] == 0


def test_entries_under_each_others_names(reader: Reader, without: list[str]) -> None:
    reader.read()
    contents = [path.read_bytes() for path in reader.entries]
    for path, content in zip(reader.entries, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    found, counts = reader.read()
    assert found == without
    assert counts["cache_damaged"] == len(contents)


def test_damaged_at_random_while_it_is_read(reader: Reader, without: list[str]) -> None:
    rng = random.Random(3)
    storage = StorageSettings(cache_dir=str(reader.folder))
    for _ in range(3):
        found = []
        with PackLoader(
            reader.lake, reader.plan, process="inline", framework="numpy", storage=storage
        ) as loader:
            for batch in loader:
                found.append(scenes.digest(batch))
                entries = reader.entries
                for path in rng.sample(entries, min(3, len(entries))):
                    # Reads that run ahead may have dropped it, or be reading half of it.
                    with contextlib.suppress(FileNotFoundError):
                        content = bytearray(path.read_bytes())
                        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                        path.write_bytes(content)
        assert found == without


@pytest.mark.parametrize("cache_bytes", [1, 10_000, 60_000])
def test_tiny(reader: Reader, without: list[str], cache_bytes: int) -> None:
    reader.cache_bytes = cache_bytes
    for _ in range(2):
        found, _ = reader.read()
        assert found == without
        assert sum(path.stat().st_size for path in reader.entries) <= cache_bytes


def test_taken_away(reader: Reader, without: list[str]) -> None:
    storage = StorageSettings(cache_dir=str(reader.folder))
    found = []
    with PackLoader(
        reader.lake, reader.plan, process="inline", framework="numpy", storage=storage
    ) as loader:
        for batch in loader:
            found.append(scenes.digest(batch))
            shutil.rmtree(cache_folder(reader.folder), ignore_errors=True)
    assert found == without


@pytest.mark.parametrize("cache_bytes", [60_000, 1 << 30])
def test_its_users_killed(reader: Reader, without: list[str], cache_bytes: int) -> None:
    reader.cache_bytes = cache_bytes
    command = [sys.executable, "-P", "-c", _READER, reader.lake.uri, str(reader.folder)]
    for batches in (1, 6):
        users = [
            subprocess.Popen(
                [*command, str(cache_bytes)],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )
            for _ in range(2)
        ]
        for user in users:
            assert user.stdout is not None
            for _ in range(batches):
                assert user.stdout.readline()
            user.kill()
        for user in users:
            user.communicate()
        found, counts = reader.read()
        assert found == without
        assert "cache_damaged" not in counts
