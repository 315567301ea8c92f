from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.errors import UnknownFormatError
from ingest.formats import FORMATS, detect, discover
from ingest.natural_order import natural_key
from tests.ingest.lerobot_data import write_v2, write_v3


def test_a_recording_is_its_own_only_source(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", cameras=())
    (found,) = discover(root).sources
    assert (found.path, found.format.name) == (root, "lerobot")


def test_a_folder_expands_into_its_recordings_in_natural_order(tmp_path: Path) -> None:
    for name in ("set_10", "set_2", "deep/er/set_1"):
        write_v2(tmp_path / name, cameras=())
    write_v3(tmp_path / "set_3", cameras=())
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "odd.xyz").write_bytes(b"?")
    discovery = discover(tmp_path)
    assert [str(s.path.relative_to(tmp_path)) for s in discovery.sources] == [
        "deep/er/set_1",
        "set_2",
        "set_3",
        "set_10",
    ]
    assert discovery.unrecognised == (tmp_path / "odd.xyz",)


def test_a_damaged_dataset_is_still_recognised(tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", cameras=())
    (root / "meta/info.json").write_text("")
    assert detect(root) is not None
    (root / "meta/info.json").unlink()
    assert detect(root) is not None


@pytest.mark.parametrize("name", ["no_such", "empty", "empty.bin", "noise.bin", "papers"])
def test_unknown_content_names_what_was_looked_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.bin").touch()
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)))
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/README.md").write_text("nothing here")
    with pytest.raises(UnknownFormatError) as raised:
        discover(tmp_path / name)
    assert name in str(raised.value)
    if name == "no_such":
        assert "no such file or folder" in str(raised.value)
    else:
        assert all(known.name in str(raised.value) for known in FORMATS)
        assert "meta/info.json" in str(raised.value)


def test_each_place_is_found_once_whatever_links_lead_there(tmp_path: Path) -> None:
    outside = write_v2(tmp_path / "outside", cameras=())
    root = tmp_path / "root"
    write_v2(root / "set_1", cameras=())
    (root / "again").symlink_to("set_1")
    (root / "here").symlink_to(".")
    (root / "up").symlink_to("..")
    (root / "itself").symlink_to("itself")
    (root / "elsewhere").symlink_to(outside)
    discovery = discover(root)
    found = [source.path.resolve() for source in discovery.sources]
    assert sorted(found) == sorted([outside.resolve(), (root / "set_1").resolve()])
    assert discovery.unrecognised == (root / "itself",)


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_v2(tmp_path / "set_1", cameras=())
    (tmp_path / "locked").mkdir()
    listed = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UnknownFormatError, match=r"locked: cannot be listed \(Permission denied\)"):
        discover(tmp_path)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_detection_never_raises_on_foreign_input(tmp_path: Path, known: object) -> None:
    for name, data in {"a": b"", "b": b"\x89HDF\r\n\x1a\n", "c": b"PAR1", "d": b"{}"}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in [*tmp_path.iterdir(), tmp_path, tmp_path / "missing"]:
        assert getattr(known, "recognises")(path) in {True, False}  # noqa: B009 - opaque to mypy


def test_natural_order() -> None:
    names = ["demo_10", "demo_1", "demo_2", "demo", "demo_02", "a1b2", "a1b10"]
    assert sorted(names, key=natural_key) == [
        "a1b2",
        "a1b10",
        "demo",
        "demo_1",
        "demo_02",
        "demo_2",
        "demo_10",
    ]


def test_natural_order_of_foreign_digits_and_long_numbers() -> None:
    names = ["demo²", "demo٣", "demo10", "demo9", "demo" + "9" * 5000]
    assert sorted(names, key=natural_key)[:2] == ["demo9", "demo10"]
