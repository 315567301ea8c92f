"""Leaks between training and evaluation, planted one of a kind."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from catalog import freeze_selection
from lake import Episode, Lake, Provenance
from packing.episode_sets import episode_set
from packing.errors import PlanError
from packing.leak_check import LeakCheck, check_leaks
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.window_spans import WindowSpans
from tests.episodes import noise_video
from tools.cli import build_app

Write = Callable[[Sequence[Episode]], Lake]


def _plan(lake: Lake, episodes: str) -> Plan:
    return make_plan(
        lake, episodes, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=2
    )


def _twin(make_episode: Callable[..., Episode], number: int, **changes: Any) -> Episode:
    """An evaluation episode with nothing in common with the others but what is given."""
    changes = {
        "dataset": "eval",
        "episode_id": f"eval/{number}",
        "ingest_key": f"eval {number}",
        "provenance": Provenance(
            format="x", files=(f"{number}.bin",), locator=f"e {number}", reader="x"
        ),
        **changes,
    }
    return make_episode(number, **{"steps": 13, **changes})


def _only(lake: Lake) -> LeakCheck:
    [check] = check_leaks(lake, "dataset = 'synthetic'", ["dataset = 'eval'"])
    return check


@pytest.fixture
def train(make_episode: Callable[..., Episode]) -> list[Episode]:
    return [make_episode(number, camera_names=("top",)) for number in range(4)]


def test_nothing_in_common(
    write: Write, make_episode: Callable[..., Episode], train: list[Episode]
) -> None:
    check = _only(write([*train, _twin(make_episode, 9)]))
    assert (check.num_leaks, check.counts()) == (0, {})
    assert str(check.train) == "condition dataset = 'synthetic' (4 episodes)"
    assert str(check.held_out) == "condition dataset = 'eval' (1 episodes)"


def test_each_kind_is_found_and_named_by_the_most_certain(
    write: Write, make_episode: Callable[..., Episode], train: list[Episode]
) -> None:
    """Content, place, camera, action and state; a fifth episode is innocent."""
    copy = make_episode(
        1, camera_names=("top",), dataset="eval", episode_id="eval/copy", ingest_key="copy"
    )
    again = _twin(make_episode, 20, source="synthetic", provenance=train[2].provenance)
    filmed = _twin(make_episode, 21, steps=12, cameras={"front": train[0].cameras["top"]})
    features = _twin(make_episode, 22, steps=12).features
    acted = _twin(
        make_episode, 22, steps=12, features={**features, "action": train[3].features["action"]}
    )
    lake = write([*train, copy, again, filmed, acted, _twin(make_episode, 23)])
    check = _only(lake)
    assert check.counts() == {"eval": {"content": 1, "recording": 1, "stream": 2}}
    assert [
        (row["kind"], row["episode_id"], row["trained_episode_id"], row["equal"])
        for row in check.leaks.to_pylist()
    ] == [
        ("content", "eval/copy", train[1].episode_id, "content"),
        ("recording", "eval/20", train[2].episode_id, "source, files and place in them"),
        ("stream", "eval/21", train[0].episode_id, "camera front"),
        ("stream", "eval/22", train[3].episode_id, "action"),
    ]
    assert set(check.leaks["trained_dataset"].to_pylist()) == {"synthetic"}


def test_streams_that_prove_nothing(
    write: Write, make_episode: Callable[..., Episode], train: list[Episode]
) -> None:
    """A constant action, a picture that several episodes show, a text, and an unnamed place."""
    still = np.zeros((12, 3), np.float32)
    black = {"top": noise_video(np.random.default_rng(0), 12)}
    nowhere = Provenance(format="x", files=(), locator="", reader="x")

    def resting(number: int, **changes: Any) -> Episode:
        features = {**make_episode(number).features, "action": still}
        notes = {"note": train[0].features["note"]}
        return make_episode(number, features={**features, **notes}, provenance=nowhere, **changes)

    one = resting(30)
    other = resting(31, dataset="eval", source="synthetic")
    dark = [resting(number, cameras=black) for number in (40, 41)]
    darker = resting(42, cameras=black, dataset="eval")
    assert _only(write([*train, one, *dark, other, darker])).num_leaks == 0


def test_a_still_action_of_one_episode_on_each_side(
    write: Write, make_episode: Callable[..., Episode]
) -> None:
    still = np.ones((12, 3), np.float32)
    ours, theirs = ({**make_episode(number).features, "action": still} for number in (1, 2))
    episodes = [make_episode(1, features=ours), _twin(make_episode, 2, steps=12, features=theirs)]
    assert _only(write(episodes)).num_leaks == 0


def test_plans_selections_and_conditions(ten: Lake) -> None:
    plan = _plan(ten, "dataset = 'even'")
    save_plan(ten, plan, "mix")
    freeze_selection(ten, "dataset = 'odd'", name="odd")
    freeze_selection(ten, "num_steps > 20", name="long")
    for train in (plan, "mix", plan.plan_hash, "plan:mix", "dataset = 'even'"):
        odd, long, all_of_it = check_leaks(ten, train, ["odd", "selection:long", "mix"])
        assert odd.num_leaks == 0
        assert long.counts() == {"even": {"episode": 2}}
        assert all_of_it.counts() == {"even": {"episode": 5}}
        assert [row["episode_id"] for row in long.leaks.to_pylist()] == [
            row["trained_episode_id"] for row in long.leaks.to_pylist()
        ]


def test_a_name_of_two_things_must_be_told_apart(ten: Lake) -> None:
    save_plan(ten, _plan(ten, "dataset = 'even'"), "mix")
    freeze_selection(ten, "dataset = 'odd'", name="mix")
    with pytest.raises(PlanError, match=r"plan:mix or selection:mix"):
        episode_set(ten, "mix")
    assert len(episode_set(ten, "plan:mix")) == len(episode_set(ten, "selection:mix")) == 5
    with pytest.raises(PlanError, match="'nothing' names no plan and no selection"):
        episode_set(ten, "nothing")


def _run(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(), [str(arg) for arg in args])
    return result.exit_code, result.stdout


def test_the_command_tells_scripts_by_its_exit_code(ten: Lake) -> None:
    save_plan(ten, _plan(ten, "dataset = 'even'"), "mix")
    freeze_selection(ten, "num_steps > 20", name="long")
    code, text = _run("plan", "check", ten.uri, "mix", "--against", "dataset = 'odd'")
    assert (code, text.split()[0]) == (0, "ok:")
    both = ("plan", "check", ten.uri, "mix", "--against", "dataset = 'odd'", "--against", "long")
    code, text = _run(*both, "--first", 1)
    assert code == 1
    assert "leak: 2 episodes of selection long (2 episodes) are in plan mix (5 episodes)" in text
    assert "even: 2 by episode" in text
    assert "and 1 more" in text
    code, text = _run(*both, "--json", "--first", 1)
    document = json.loads(text)
    assert code == 1
    assert document["train"] == {"kind": "plan", "name": "mix", "episodes": 5}
    assert [each["leaks"] for each in document["against"]] == [0, 2]
    assert document["leaks"] == 2
    assert len(document["against"][1]["first"]) == 1
