"""`headrace plan materialize`, `headrace pack --materialize`, `headrace load --materialized`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lake.errors import HeadraceError
from packing.plan_store import save_plan
from tests.loader import scenes
from tools.cli import build_app


@pytest.fixture
def lake(tmp_path: Path) -> str:
    made = scenes.scene_lake(tmp_path)
    save_plan(made, scenes.scene_plan(made), "mix")
    return made.uri


def run(*arguments: object) -> Result:
    return CliRunner().invoke(build_app(), [str(argument) for argument in arguments])


def as_json(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def words(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.replace("│", " ").split())


def test_materialise_load_list_and_remove(lake: str) -> None:
    report = as_json("plan", "materialize", lake, "mix", "--workers", 0)
    assert (report["packs"], report["num_packs"], report["exact"]) == (36, 36, True)
    assert report["bytes_per_pack"] == round(report["data_bytes"] / 36, 1)
    assert report["amplification"] > 1
    again = words(run("plan", "materialize", lake, "mix", "--workers", 0))
    assert "36 of 36, with 294 spans" in again
    assert "batches equal those from the episodes" in again
    assert f"headrace load {lake} mix --materialized" in again

    small = ("--codec", "h264", "--image-size", "16x24", "--quality", 30)
    lossy = words(run("plan", "materialize", lake, "mix", "--workers", 0, *small))
    assert "packs of mix: 16x24-h264-q30" in lossy
    assert "dB against those that were encoded" in lossy
    assert f"headrace load {lake} mix --set 16x24-h264-q30" in lossy

    inline = ("--process", "inline")
    source = {
        option: as_json("load", lake, "mix", *inline, *option)["source"]
        for option in ((), ("--materialized",), ("--set", "16x24-h264-q30"))
    }
    assert list(source.values()) == [
        "episodes",
        "materialized copy",
        "materialized 16x24-h264-q30",
    ]
    assert "materialized copy packs" in words(run("load", lake, "mix", *inline, "--materialized"))

    sets = [{"name": name, "packs": 36, "num_packs": 36} for name in ("16x24-h264-q30", "copy")]
    assert as_json("plan", "list", lake)[0]["materialized"] == sets
    assert as_json("plan", "show", lake, "mix")["materialized"] == sets
    assert "materialised packs: 16x24-h264-q30, copy" in words(run("plan", "show", lake, "mix"))
    assert "copy" in run("plan", "list", lake).stdout

    assert as_json("plan", "materialize", lake, "mix", "--remove") == {"removed": "copy"}
    removed = words(run("plan", "materialize", lake, "mix", *small, "--remove"))
    assert removed == "removed the materialised packs 16x24-h264-q30 of mix"
    assert "materialised packs: none" in words(run("plan", "show", lake, "mix"))


def test_pack_and_materialise_at_once(tmp_path: Path) -> None:
    lake = scenes.scene_lake(tmp_path).uri
    small = ("--budget-tokens", 256, "--slots", 2, "--horizon", 4, "--materialize", "--workers", 0)
    document = as_json("pack", lake, "--name", "one", *small)
    assert document["materialized"]["packs"] == document["num_steps"] * 2
    assert "packs of two: copy" in words(run("pack", lake, "--name", "two", "--seed", 1, *small))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--image-size", "224"), "write HEIGHTxWIDTH"),
        (("--image-size", "8x8"), "packets cannot be scaled"),
        (("--codec", "png", "--quality", "3"), "has no quality"),
        (("--codec", "h264", "--remove"), "has no materialised packs 'h264-q18'"),
    ],
)
def test_bad_options_are_one_error(lake: str, arguments: tuple[str, ...], match: str) -> None:
    result = run("plan", "materialize", lake, "mix", *arguments)
    assert isinstance(result.exception, HeadraceError)
    assert match in str(result.exception)
    assert result.stdout == ""
