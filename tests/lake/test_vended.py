"""Credentials that expire are asked for anew, in every process, and never printed."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lake import Lake, open_lake
from lake.errors import LakeError
from lake.read_video import ByteRange, read_ranges
from lake.vended import CREDENTIALS_FROM, vended_options
from tests.loader import scenes
from tests.loader.storage.folder_s3 import FolderS3


class Desk(ModuleType):
    """A module that hands out keys `key1`, `key2`, ..."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        super().__init__(name)
        self.options = options
        self.life_s = 1000.0
        self.given = 0

    def hand_out(self) -> dict[str, Any]:
        self.given += 1
        return {
            **self.options,
            "aws_access_key_id": f"key{self.given}",
            "expires_at_millis": int((time.time() + self.life_s) * 1000),
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(tmp_path_factory.mktemp("vended"))
    scenes.scene_lake(root)
    return root


@pytest.fixture
def store(folder: Path) -> Iterator[FolderS3]:
    with FolderS3(folder) as store:
        yield store


@pytest.fixture
def desk(store: FolderS3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The functions are kept by name in a process, so each test has a module of its own."""
    desk = Desk(f"desk_{request.node.name}", store.options())
    monkeypatch.setitem(sys.modules, desk.__name__, desk)
    return desk


def _lake(store: FolderS3, desk: Desk) -> Lake:
    options = {CREDENTIALS_FROM: f"{desk.__name__}:hand_out", "client_max_retries": "0"}
    return open_lake(store.uri("scene.lake"), storage_options=options)


def _read(lake: Lake) -> bytes:
    return read_ranges(lake, [ByteRange(1, 0, 1000)])[0]


def test_a_dataset_that_stays_open_gets_new_keys_before_the_old_ones_expire(
    store: FolderS3, desk: Desk, folder: Path
) -> None:
    # Lance asks a minute ahead; these are older than that at once.
    desk.life_s = 30.0
    lake = _lake(store, desk)
    expected = _read(open_lake(folder / "scene.lake"))
    assert _read(lake) == expected
    dataset, before = lake.dataset("trajectories"), desk.given
    store.used_keys.clear()
    assert _read(lake) == expected
    assert lake.dataset("trajectories") is dataset
    assert desk.given > before
    assert min(int(key.removeprefix("key")) for key in store.used_keys) > before


def test_keys_that_last_are_asked_for_once(store: FolderS3, desk: Desk) -> None:
    lake = _lake(store, desk)
    for _ in range(3):
        _read(lake.at(lake.versions()))
    assert lake.storage_options["aws_access_key_id"] == "key1"
    assert desk.given == 1


def test_refused_keys_are_replaced_at_once(store: FolderS3, desk: Desk) -> None:
    lake = _lake(store, desk)
    expected = _read(lake)
    store.access_keys = {"key2"}
    with pytest.raises(LakeError, match="ExpiredToken"):
        _read(lake)
    assert lake.renew_credentials()
    assert _read(lake) == expected
    assert lake.storage_options["aws_access_key_id"] == "key2"
    plain = open_lake(store.uri("scene.lake"), storage_options=store.options("key2"))
    assert not plain.renew_credentials()


def test_no_secret_is_printed(store: FolderS3, desk: Desk) -> None:
    desk.options["aws_secret_access_key"] = "very-secret-1"
    lake = _lake(store, desk)
    desk.options["aws_secret_access_key"] = "very-secret-2"
    lake.renew_credentials()
    _read(lake)
    shown = lake.redacted("is very-secret-1 or very-secret-2")
    assert shown == "is *** or ***"

    def failing() -> None:
        raise ValueError("very-secret-3")

    desk.hand_out = failing  # type: ignore[assignment,method-assign]
    vended_options.cache_clear()
    with pytest.raises(LakeError, match=r"hand_out: it failed with ValueError") as failed:
        _lake(store, desk)
    assert "very-secret-3" not in str(failed.value)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("no_such_module:give", "cannot be imported"),
        ("json:no_such_function", "cannot be imported"),
        ("json", "cannot be imported"),
    ],
)
def test_a_function_that_is_not_there_is_named(store: FolderS3, path: str, problem: str) -> None:
    with pytest.raises(LakeError, match=f"{CREDENTIALS_FROM}={path}: {problem}.*PYTHONPATH"):
        open_lake(store.uri("scene.lake"), storage_options={CREDENTIALS_FROM: path})


def test_options_without_an_expiry_are_refused(store: FolderS3, desk: Desk) -> None:
    desk.hand_out = lambda: {"aws_access_key_id": "k"}  # type: ignore[method-assign]
    with pytest.raises(LakeError, match=r"gives aws_access_key_id; it must .* expires_at_millis"):
        _lake(store, desk)
