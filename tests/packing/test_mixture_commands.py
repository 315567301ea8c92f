"""The mixture options of `headrace pack`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from catalog.selection import freeze_selection
from lake import Lake
from lake.errors import HeadraceError
from tools.cli import build_app


def run(*args: object) -> Result:
    return CliRunner().invoke(build_app(), [str(arg) for arg in args])


def pack(lake: Lake, *args: object) -> dict[str, Any]:
    result = run("pack", lake.uri, "--budget-tokens", 256, "--slots", 2, "--json", *args)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_option_reaches_the_mixture(ten: Lake) -> None:
    weighted = pack(
        ten,
        *("--weight", "even=0.7", "--weight", "odd=0.3", "--epoch-tokens", "2e3"),
        *("--max-repeats", 3, "--min-share", "odd=0.1", "--max-share", 0.8, "--per", "episode"),
    )
    assert weighted["mixture"]["asked"] == {
        "over": "dataset",
        "selections": [],
        "weights": {"even": 0.7, "odd": 0.3},
        "temperature": None,
        "epoch_tokens": 2000,
        "max_repeats": 3,
        "min_share": {"odd": 0.1},
        "max_share": {"*": 0.8},
        "per": "episode",
    }
    assert [(s["name"], s["epoch_tokens"]) for s in weighted["mixture"]["sources"]] == [
        ("even", 1400),
        ("odd", 600),
    ]
    assert [share["source"] for share in weighted["shares"]] == ["even", "odd"]
    flat = pack(ten, "--mix-over", "embodiment", "--temperature", 2.5)
    assert flat["mixture"]["asked"]["over"] == "embodiment"
    assert flat["mixture"]["asked"]["temperature"] == 2.5
    assert pack(ten)["mixture"] is None


def test_selections_and_files(ten: Lake, tmp_path: Path) -> None:
    freeze_selection(ten, "num_steps < 10", name="short")
    freeze_selection(ten, "num_steps > 15", name="long")
    chosen = pack(ten, "--mix-selection", "short", "--mix-selection", "long")
    assert chosen["mixture"]["asked"]["selections"] == ["short", "long"]
    file = tmp_path / "mixture.json"
    file.write_text('{"over": "selection", "selections": ["short", "long"]}', encoding="utf-8")
    assert pack(ten, "--mixture", file)["plan_hash"] == chosen["plan_hash"]


def test_the_mixture_is_printed(ten: Lake) -> None:
    result = run(
        *("pack", ten.uri, "--name", "mix", "--budget-tokens", 256, "--slots", 2, "--epochs", 2),
        *("--weight", "even=3", "--weight", "odd=1", "--max-repeats", 4, "--min-share", "odd=0.1"),
    )
    assert result.exit_code == 0, result.output
    (even,) = [line for line in result.stdout.splitlines() if "even" in line and "%" in line]
    weight, asked, _ = (float(cell.split()[-1]) for cell in even.split("%")[:-1])
    assert weight == 75
    assert asked == pytest.approx(75, abs=0.1)
    for words in ("mixture of datasets, each span alike; weights", "at most 4 times an epoch"):
        assert words in " ".join(result.stdout.split())
    assert "mixture" in run("plan", "show", ten.uri, "mix").stdout
    verified = run("plan", "verify", ten.uri, "mix")
    assert "each as often as the mixture says" in verified.stdout


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (("--weight", "even"), "--weight even: write --weight NAME=NUMBER"),
        (("--weight", "even=much"), "--weight even=much: 'much' is no number"),
        (("--weight", "even=1", "--weight", "even=2"), "--weight even=2: given twice"),
        (("--max-share", "0.5", "--max-share", "0.6"), "--max-share 0.6: given twice"),
        (("--epoch-tokens", "1.5"), "--epoch-tokens 1.5: must be a whole number from 1 on"),
        (("--epoch-tokens", "many"), "--epoch-tokens many: is no number"),
        (("--weight", "even=1", "--temperature", 2), "--weight and --temperature: weights are"),
        (("--mix-over", "dataset", "--mix-selection", "a"), "--mix-over dataset and --mix-sel"),
        (("success", "--mix-selection", "a"), "EPISODES 'success' and a mixture of selections"),
        (("--mixture", "/nowhere.json"), "--mixture /nowhere.json: cannot be read"),
        (("--mixture", "x.json", "--per", "step", "--weight", "a=1"), "--mixture and --weight, --"),
        (("--weight", "even=1"), "no weight for dataset odd"),
        (("--temperature", 0), "temperature must be above 0"),
        (("--max-repeats", 1, "--epoch-tokens", "1e9"), "cannot be filled"),
        (("--mix-selection", "nosuch"), "no selection 'nosuch'"),
    ],
)
def test_options_that_do_not_go_together(ten: Lake, args: tuple[object, ...], match: str) -> None:
    result = run("pack", ten.uri, "--budget-tokens", 256, *args)
    assert isinstance(result.exception, HeadraceError), result.output
    assert match in str(result.exception)
    assert result.stdout == ""


def test_a_file_that_is_no_mixture_is_named(ten: Lake, tmp_path: Path) -> None:
    file = tmp_path / "mixture.json"
    file.write_text('{"weight": {"even": 1}}', encoding="utf-8")
    result = run("pack", ten.uri, "--mixture", file)
    assert isinstance(result.exception, HeadraceError), result.output
    assert str(result.exception).startswith(f"--mixture {file}: mixture: unknown weight; there are")
