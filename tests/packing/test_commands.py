"""`headrace pack` and `headrace plan`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lake import Episode, EpisodeWriter, Lake
from lake.errors import HeadraceError
from packing.cost import CostModel, MeasuredCost
from tests.packing.small_tokenizers import gemma_like, write
from tools.cli import build_app


def run(*args: object) -> Result:
    return CliRunner().invoke(build_app(), [str(arg) for arg in args])


def pack(lake: Lake, *args: object) -> dict[str, Any]:
    result = run("pack", lake.uri, "--budget-tokens", 256, "--slots", 2, "--json", *args)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_pack_prints_and_saves(ten: Lake, tmp_path: Path) -> None:
    assert "no plans" in run("plan", "list", ten.uri).stdout
    picture = tmp_path / "plan.svg"
    result = run(
        *("pack", ten.uri, "success", "--name", "mix", "--budget-tokens", 256, "--slots", 2),
        *("--epochs", 2, "--picture", picture),
    )
    assert result.exit_code == 0, result.output
    words = ("padding", "certificate", "balance", "Q1", "tokens saved", "storage")
    for word in (*words, "audit", "nothing"):
        assert word in result.stdout
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    listed = json.loads(run("plan", "list", ten.uri, "--json").stdout)
    assert [entry["name"] for entry in listed] == ["mix"]
    assert "mix" in run("plan", "list", ten.uri).stdout
    shown = json.loads(run("plan", "show", ten.uri, "mix", "--json").stdout)
    assert shown["plan_hash"] == listed[0]["plan_hash"]
    assert [use["world_size"] for use in shown["storage"]] == [1, 2]
    assert all(use["bytes_per_step"] > 0 for use in shown["storage"])
    assert "certificate" in run("plan", "show", ten.uri, "mix").stdout
    verified = run("plan", "verify", ten.uri, "mix")
    assert verified.stdout.count("ok: ") == 5
    assert len(json.loads(run("plan", "verify", ten.uri, "mix", "--json").stdout)["checked"]) == 5


def test_every_option_reaches_the_plan(ten: Lake, tmp_path: Path) -> None:
    layout = tmp_path / "layout.json"
    layout.write_text(
        '{"name": "mine", "tokenizer": "utf8-bytes", "image_tokens": 9, "extra_tokens": 1}',
        encoding="utf-8",
    )
    document = pack(
        ten,
        *("--horizon", 5, "--history", 2, "--stride", 3, "--history-stride", 2, "--tail", "drop"),
        *("--seed", 3, "--packer", "bfd", "--look-ahead", 7, "--open-runs", 5, "--run-length", 4),
        *("--lanes", 2, "--balance-window-steps", 6, "--d-model", 99, "--max-images", 8),
        *("--max-action-queries", 40, "--max-spans", 6, "--layout", layout, "--extra-tokens", 2),
        *("--state", "state+action,state", "--action", "action", "--camera", "top"),
    )
    assert document["span_maker"] == {
        "kind": "window",
        "horizon": 5,
        "history": 2,
        "stride": 3,
        "history_stride": 2,
        "tail": "drop",
    }
    assert document["settings"] == {
        "budget_tokens": 256,
        "slots_per_step": 2,
        "epochs": 1,
        "seed": 3,
        "packer": "bfd",
        "look_ahead": 7,
        "open_runs": 5,
        "run_length": 4,
        "lanes": 2,
        "balance_window_steps": 6,
        "cost": {"per_token": 594, "per_square": 1, "per_image": 0, "per_span": 0, "per_pack": 0},
        "max_images": 8,
        "max_action_queries": 40,
        "max_spans": 6,
    }
    tokens = {key: document["layout"][key] for key in ("name", "image_tokens", "extra_tokens")}
    assert tokens == {"name": "mine", "image_tokens": 9, "extra_tokens": 2}
    assert document["specs"][0]["state"] == ["state", "action"]
    assert document["cameras"] == ["top"]
    trajectory = pack(
        ten,
        *("--spans", "trajectory", "--max-steps", 6, "--observe-every", 2, "--split", "even"),
        "--across-gaps",
    )
    assert trajectory["span_maker"] == {
        "kind": "trajectory",
        "max_steps": 6,
        "observe_every": 2,
        "split": "even",
        "across_gaps": True,
    }


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (("--max-steps", 3), "--max-steps: not an option of --spans window"),
        (("--spans", "trajectory", "--horizon", 3), "--horizon: not an option of --spans traj"),
        (("--across-gaps",), "--across-gaps: not an option of --spans window"),
        (
            ("--spans", "trajectory", "--max-steps", 6, "--split", "refuse"),
            "9 of 10 trajectories are longer than max_steps 6",
        ),
        (("--layout", "/nowhere.json"), "layout /nowhere.json: cannot be read"),
        (("--layout", "pi0"), "layout pi0 needs the tokenizer of its model: PaliGemma"),
        (("--tokenizer", "/nowhere.model"), "'/nowhere.model' is neither a file nor built in"),
        (("--budget-tokens", 100), "multiple of 128"),
        (("--cost", "/nowhere.json"), "/nowhere.json: cannot be read"),
        (("--cost", "/nowhere.json", "--d-model", 8), "--cost and --d-model"),
        (("--workers", 2), "--workers: processes that write packs; add --materialize"),
        (("--spans", "trajectory", "--run-length", 4), "run_length are of windows"),
        (("--spans", "trajectory", "--open-runs", 4), "open_runs and run_length are of windows"),
    ],
)
def test_bad_options_are_one_error(ten: Lake, args: tuple[object, ...], match: str) -> None:
    result = run("pack", ten.uri, *args)
    assert isinstance(result.exception, HeadraceError)
    assert match in str(result.exception)
    assert result.stdout == ""


def test_measured_cost_reaches_the_plan(ten: Lake, tmp_path: Path) -> None:
    cost = CostModel(per_token=5, per_square=2, per_image=3, per_pack=4)
    MeasuredCost(cost=cost, unit_s=1e-9, relative_error=0.01, check_error=0.02).write(
        tmp_path / "cost.json"
    )
    document = pack(ten, "--cost", tmp_path / "cost.json")
    assert document["settings"]["cost"] == asdict(cost)


def test_advice_where_near_equal_spans_leave_a_gap(ten: Lake) -> None:
    result = run(
        *("pack", ten.uri, "--budget-tokens", 512, "--slots", 1, "--image-tokens", 0),
        *("--extra-tokens", 148, "--horizon", 1),
    )
    assert result.exit_code == 0, result.output
    assert "--budget-tokens that fit these spans: 640" in " ".join(result.stdout.split())


def test_layouts_are_listed() -> None:
    listed = run("plan", "layouts")
    for word in ("pi0.5", "as text", "gr00t-n1.7", "tokenizer of pi0: PaliGemma's"):
        assert word in listed.stdout
    document = json.loads(run("plan", "layouts", "--json").stdout)
    assert [entry["name"] for entry in document] == [
        *("compact", "pi0", "pi0.5", "gr00t-n1.5", "gr00t-n1.7")
    ]
    assert document[2]["padded"] == {"cameras": 3, "text_tokens": 200, "horizon": 50}


def test_a_named_layout_with_its_tokenizer(ten: Lake, tmp_path: Path) -> None:
    model = write(tmp_path, "gemma.model", gemma_like())
    options = ("--layout", "pi0.5", "--image-tokens", 8, "--budget-tokens", 256)
    document = pack(ten, *options, "--tokenizer", model)
    assert document["layout"]["tokenizer"] == "gemma.model"
    assert document["span_maker"]["horizon"] == 50, "the layout's, since none was given"
    assert document["prompt_ids"]["image"] == 420
    assert document["vocab_size"] == 422
    assert document["quality"]["state_text_padding"] > 0
    bytes_only = run("pack", ten.uri, "--slots", 2, *options, "--tokenizer", "utf8-bytes")
    assert bytes_only.exit_code == 0, bytes_only.output
    said = " ".join(bytes_only.stdout.replace("│", " ").split())
    assert "% more where states are shorter text than the longest" in said
    long = pack(ten, *options, "--tokenizer", model, "--horizon", 3)
    assert long["span_maker"]["horizon"] == 3


def test_texts_longer_than_the_models_padding_are_told(ten: Lake, tmp_path: Path) -> None:
    layout = tmp_path / "short.json"
    layout.write_text('{"base": "pi0", "padded": {"text_tokens": 7}}', encoding="utf-8")
    options = ("--layout", layout, "--image-tokens", 8, "--tokenizer", "utf8-bytes", "--slots", 2)
    result = run("pack", ten.uri, *options, "--budget-tokens", 256)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "spans can have up to 8 text tokens" in said
    assert "pads to 7 and cuts what is longer; this plan cuts nothing (bytes: the model's" in said


def test_prompts_without_an_instruction_are_told(ten: Lake) -> None:
    options = ("--tokenizer", "utf8-bytes", "--slots", 2, "--budget-tokens", 2048)
    labelled = run("label", ten.uri, "success", "instruction=", "task=", "--json")
    assert labelled.exit_code == 0, labelled.output
    untold = "instruction: pi0 writes its prompt around an empty one; label them"
    said = run("pack", ten.uri, "--layout", "pi0", *options)
    assert said.exit_code == 0, said.output
    assert untold in " ".join(said.stdout.split())
    query = "trim(coalesce(instruction, task)) <> ''"
    assert query in " ".join(said.stdout.split())
    told = run("pack", ten.uri, query, "--layout", "pi0", *options)
    assert told.exit_code == 0, told.output
    assert "no instruction" not in told.stdout
    # GR00T has words of its own for them, and without a prompt nothing is said.
    for layout in ("gr00t-n1.5", "compact"):
        other = run("pack", ten.uri, "--layout", layout, *options)
        assert other.exit_code == 0, other.output
        assert "no instruction" not in other.stdout


def test_a_grown_plan_needs_its_tokenizer_again(
    ten: Lake, tmp_path: Path, make_episode: Callable[..., Episode]
) -> None:
    model = write(tmp_path, "gemma.model", gemma_like())
    options = ("--layout", "pi0", "--image-tokens", 8, "--horizon", 4, "--name", "small")
    pack(ten, *options, "--tokenizer", model)
    with EpisodeWriter(ten) as writer:
        writer.add(make_episode(90, steps=9))
    refused = run("plan", "extend", ten.uri, "small")
    assert "'gemma.model' is neither a file nor built in" in str(refused.exception)
    other = run("plan", "extend", ten.uri, "small", "--tokenizer", "utf8-bytes")
    assert "was made with tokenizer gemma.model" in str(other.exception)
    assert "not with utf8-bytes" in str(other.exception)
    # The same tokenizer in a file of another name is the same tokenizer.
    moved = model.rename(tmp_path / "moved.model")
    grown = run("plan", "extend", ten.uri, "small", "--tokenizer", moved, "--json")
    assert grown.exit_code == 0, grown.output
    assert len(json.loads(grown.stdout)["segments"]) == 2


def test_extended_plan_lists_its_segments(ten: Lake) -> None:
    pack(ten, "dataset = 'even'", "--name", "mix")
    args = ("plan", "extend", ten.uri, "mix", "dataset = 'odd'", "--name", "more", "--epochs", 2)
    document = json.loads(run(*args, "--json").stdout)
    first, second = document["segments"]
    assert (first["parent_hash"], second["settings"]["epochs"]) == ("", 2)
    assert second["first_step"] == first["num_steps"]
    assert document["num_steps"] == first["num_steps"] + second["num_steps"]
    shown = run("plan", "show", ten.uri, "more").stdout
    assert "segments" in shown
    assert second["parent_hash"][:12] in shown
