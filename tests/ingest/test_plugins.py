"""Formats of other packages: used like Headrace's own, and named where they are broken."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from ingest.errors import UnknownFormatError
from ingest.formats import FORMATS, discover, known_formats
from ingest.lerobot.source import FORMAT as LEROBOT
from ingest.plugins import GROUP, load_plugins, plugins
from ingest.source import Format


def _raises(path: Path) -> bool:
    raise RuntimeError(f"cannot see {path.name}")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers a good format, and others that fail in each way."""
    module = ModuleType("their_formats")
    module.__dict__["GOOD"] = replace(
        LEROBOT,
        name="theirs",
        looks_for="a file called x.theirs",
        recognises=lambda path: path.name == "x.theirs",
    )
    module.__dict__["RAISES"] = replace(LEROBOT, name="raises", recognises=_raises)
    monkeypatch.setitem(sys.modules, "their_formats", module)
    info = tmp_path / "site/theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\n"
        "good = their_formats:GOOD\n"
        "raises = their_formats:RAISES\n"
        "text = their_formats:__name__\n"
        "absent = no_such_module_of_theirs:FORMAT\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins.cache_clear()
    yield
    plugins.cache_clear()


@pytest.mark.usefixtures("package")
def test_a_format_of_another_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.theirs").touch()
    [found] = discover(tmp_path / "x.theirs").sources
    assert found.format.name == "theirs"
    assert {known.name for known in known_formats()} == {
        *(known.name for known in FORMATS),
        *("theirs", "raises"),
    }


@pytest.mark.usefixtures("package")
def test_broken_plugins_are_named_and_stop_nobody(tmp_path: Path) -> None:
    (tmp_path / "x.other").touch()
    with pytest.raises(UnknownFormatError) as raised:
        discover(tmp_path / "x.other")
    text = str(raised.value)
    assert "theirs: a file called x.theirs" in text
    for part in (
        "absent of theirs (no_such_module_of_theirs:FORMAT) cannot be loaded (ModuleNotFoundError",
        "text of theirs (their_formats:__name__) is a str, not a Format",
        "raises of theirs (their_formats:RAISES) cannot look at a path (RuntimeError: cannot see",
    ):
        assert part in text


def test_a_fault_is_told_once_for_each_way_it_fails(tmp_path: Path) -> None:
    module = ModuleType("their_raising_format")
    module.__dict__["FORMAT"] = replace(LEROBOT, recognises=_raises)
    sys.modules[module.__name__] = module
    try:
        loaded = load_plugins([EntryPoint("raises", f"{module.__name__}:FORMAT", GROUP)])
    finally:
        del sys.modules[module.__name__]
    [known] = loaded.formats
    assert [known.recognises(tmp_path / "a"), known.recognises(tmp_path / "a")] == [False, False]
    assert len(loaded.faults) == 1


def test_what_a_reader_lacks_is_known() -> None:
    known: Format = replace(LEROBOT, needs=("numpy", "no_such_module_at_all"), extra="x")
    assert known.missing == ("no_such_module_at_all",)
    assert not LEROBOT.missing
