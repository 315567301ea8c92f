"""`headrace ingest`, `inspect` and `doctor` as a user meets them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.lerobot.source import FORMAT as LEROBOT
from lake import open_lake, visible_episodes
from tests.ingest.lerobot_data import v2_data, v2_video, write_v2, write_v3
from tests.s3_server import S3Server
from tools.cli import main

Run = Callable[..., tuple[int, str, str]]
TOP = "observation.images.top"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["headrace", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capfd.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, out, err

    return call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_v2(tmp_path / "in/toy")


def test_ingest_prints_a_table_and_is_repeatable(run: Run, root: Path, tmp_path: Path) -> None:
    lake = tmp_path / "robots.lake"
    code, out, _ = run("ingest", root, lake)
    assert code == 0
    assert "toy" in out
    assert "lerobot-v2.1" in out
    code, out, _ = run("ingest", root, lake, "--json")
    assert code == 0
    (source,) = json.loads(out)["sources"]
    assert (source["written"], source["present"]) == (0, 2)
    assert visible_episodes(open_lake(lake)).num_rows == 2


def test_options_reach_the_lake(run: Run, root: Path, tmp_path: Path) -> None:
    lake = tmp_path / "robots.lake"
    code, _, _ = run(
        *("ingest", root, lake, "--dataset", "mine", "--embodiment", "bot", "--fps", "5")
    )
    assert code == 0
    rows = visible_episodes(open_lake(lake), ["dataset", "embodiment", "fps", "episode_id"])
    assert set(rows["dataset"].to_pylist()) == {"mine"}
    assert set(rows["embodiment"].to_pylist()) == {"bot"}
    assert set(rows["fps"].to_pylist()) == {5.0}
    assert all(name.startswith("mine/") for name in rows["episode_id"].to_pylist())


def test_several_recordings_of_one_dataset_are_one_line(
    run: Run, root: Path, tmp_path: Path
) -> None:
    write_v2(root.parent / "other", lengths=(3,))
    code, out, _ = run("ingest", root.parent, tmp_path / "x.lake", "--dataset", "both")
    assert code == 0
    (line,) = [line for line in out.splitlines() if "both (2 files)" in line]
    assert [cell.strip() for cell in line.split("│")[2:7]] == ["3", "0", "0", "15", "15"]


def test_quarantine_is_counted_and_the_way_to_see_it_shown(
    run: Run, root: Path, tmp_path: Path
) -> None:
    (root / v2_data(0)).write_bytes(b"")
    write_v3(root.parent / "three")
    (root.parent / "stray.bin").write_bytes(b"?")
    lake = tmp_path / "robots.lake"
    code, out, _ = run("ingest", root.parent, lake)
    assert code == 0
    assert "1 in quarantine" in out
    assert f"headrace sql {lake}" in out
    assert "1 files of no known format: stray.bin" in out
    code, out, _ = run(
        "sql", lake, "SELECT source, episode, stream, reason, detail FROM quarantine", "--json"
    )
    assert code == 0
    (row,) = json.loads(out)
    assert (row["episode"], row["reason"]) == ("episode_000000", "empty-file")


def test_on_error_fail_is_one_line_and_a_code(run: Run, root: Path, tmp_path: Path) -> None:
    (root / v2_video(TOP, 1)).write_bytes(b"noise")
    code, out, err = run("ingest", root, tmp_path / "x.lake", "--on-error", "fail")
    assert (code, out) == (2, "")
    assert err.startswith("headrace: ")
    assert "episode_000001.mp4" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["ingest", "inspect", "doctor"])
@pytest.mark.parametrize("content", [None, b"", b"noise", "folder"])
def test_bad_sources_are_one_line_and_a_code(
    run: Run, tmp_path: Path, command: str, content: bytes | str | None
) -> None:
    source = tmp_path / "source"
    if isinstance(content, bytes):
        source.write_bytes(content)
    elif content is not None:
        source.mkdir()
    lake = tmp_path / "x.lake"
    code, out, err = run(command, source, *([lake] if command == "ingest" else []))
    assert (code, out) == (2, "")
    assert err.startswith("headrace: ")
    assert str(source) in err
    assert len(err.strip().splitlines()) == 1
    assert not lake.exists()


def test_a_lake_path_that_is_a_file(run: Run, root: Path, tmp_path: Path) -> None:
    (tmp_path / "x.lake").write_text("mine")
    code, _, err = run("ingest", root, tmp_path / "x.lake")
    assert code == 2
    assert "is a file" in err
    assert (tmp_path / "x.lake").read_text() == "mine"


@pytest.mark.parametrize("pair", ["novalue", "=x"])
def test_malformed_storage_options(run: Run, root: Path, tmp_path: Path, pair: str) -> None:
    code, _, err = run("ingest", root, tmp_path / "x.lake", "--storage-option", pair)
    assert code == 2
    assert "KEY=VALUE" in err


def test_inspect_shows_mapping_and_writes_the_picture(run: Run, root: Path, tmp_path: Path) -> None:
    picture = tmp_path / "sheet.png"
    code, out, err = run("inspect", root, "--picture", picture)
    assert code == 0
    assert "observation.state" in out
    assert "2 episodes, 12 steps" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "top to bottom: top" in err


def test_inspect_json(run: Run, root: Path) -> None:
    write_v3(root.parent / "three", cameras=())
    (root.parent / "dead/meta").mkdir(parents=True)
    (root.parent / "dead/meta/info.json").touch()
    code, out, _ = run("inspect", root.parent, "--json")
    assert code == 0
    dead, three, toy = json.loads(out)
    assert dead["error"] == "empty-file"
    assert (three["format"], three["episodes"], three["steps"]) == ("lerobot-v3.0", 3, 16)
    assert [f["name"] for f in toy["spec"]["features"]][:2] == ["state", "action"]


def test_inspect_without_camera_cannot_write_a_picture(run: Run, tmp_path: Path) -> None:
    root = write_v2(tmp_path / "toy", cameras=())
    code, _, err = run("inspect", root, "--picture", tmp_path / "sheet.png")
    assert code == 2
    assert "no camera" in err


def test_doctor_of_a_recording(run: Run, root: Path) -> None:
    code, out, _ = run("doctor", root)
    assert (code, out.strip()) == (0, f"{root}: nothing wrong found")
    (root / v2_data(1)).unlink()
    code, out, _ = run("doctor", root)
    assert code == 1
    assert "missing-data-file" in out
    code, out, _ = run("doctor", root, "--json")
    assert code == 1
    (findings,) = json.loads(out).values()
    assert {f["reason"] for f in findings} == {"missing-data-file"}


def test_doctor_of_a_lake(run: Run, root: Path, tmp_path: Path) -> None:
    lake = tmp_path / "robots.lake"
    run("ingest", root, lake)
    code, out, _ = run("doctor", lake)
    assert (code, out.strip()) == (0, f"{lake}: nothing wrong found")
    open_lake(lake).dataset("episodes").delete("true")
    code, out, _ = run("doctor", lake, "--json")
    assert code == 1
    assert {f["reason"] for f in json.loads(out)[str(lake)]} == {"no-labels"}


def test_the_known_formats_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(LEROBOT, name="odd", needs=("no_such_module",), extra="rlds")
    monkeypatch.setattr("ingest.formats.FORMATS", (LEROBOT, lacking))
    code, out, _ = run("ingest", "--formats", "--json")
    assert code == 0
    first, second = json.loads(out)["formats"]
    assert (first["name"], first["installed"], first["missing"]) == ("lerobot", True, [])
    assert "meta/info.json" in first["looks_for"]
    assert (second["installed"], second["missing"]) == (False, ["no_such_module"])
    assert second["extra"] == "rlds"
    code, out, _ = run("ingest", "--formats")
    assert code == 0
    assert "lerobot" in out
    assert "headrace[rlds]" in out.replace("\n", "").replace(" ", "").replace("│", "")


@pytest.mark.parametrize("arguments", [(), ("only_one",)])
def test_ingest_without_a_lake_says_what_is_missing(run: Run, arguments: tuple[str, ...]) -> None:
    code, _, err = run("ingest", *arguments)
    assert code == 2
    assert "give SRC... and LAKE" in err


@pytest.mark.s3
def test_a_lake_in_an_object_store(run: Run, root: Path, s3_server: S3Server) -> None:
    uri = s3_server.uri("ingested.lake")
    options = [
        part
        for key, value in s3_server.storage_options.items()
        for part in ("--storage-option", f"{key}={value}")
    ]
    code, _, err = run("ingest", root, uri, *options)
    assert code == 0, err
    assert visible_episodes(open_lake(uri, storage_options=s3_server.storage_options)).num_rows == 2
    code, out, err = run("doctor", uri, *options)
    assert (code, out.strip()) == (0, f"{uri}: nothing wrong found"), err
    code, out, err = run(
        "sql", uri, "SELECT sum(num_steps) AS steps FROM episodes", "--json", *options
    )
    assert code == 0, err
    [total] = json.loads(out)
    plan = ("--name", "p", "--horizon", "2", "--budget-tokens", "256", "--slots", "1")
    code, out, err = run("pack", uri, *plan, "--json", *options)
    assert code == 0, err
    assert json.loads(out)["num_spans"] == total["steps"]
    code, _, err = run("plan", "verify", uri, "p", *options)
    assert code == 0, err
    code, out, err = run("load", uri, "p", "--json", *options)
    assert code == 0, err
    assert json.loads(out)["metrics"]["spans"] == total["steps"]
