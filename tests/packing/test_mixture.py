"""Mixtures: options that go together, and those that do not."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from packing.errors import PlanError
from packing.mixture import Mixture


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"over": "robot"}, "over is 'robot'; choose from dataset, embodiment, selection"),
        ({"per": "frame"}, "per is 'frame'; choose from step, episode"),
        ({"over": "selection"}, "name the selections"),
        ({"selections": ("a",)}, "selections are not its sources"),
        ({"over": "selection", "selections": ("a", "b", "a")}, "named twice"),
        ({"weights": {"a": 1}, "temperature": 2.0}, "weights and temperature are both given"),
        ({"weights": {"a": -0.1}}, "weight of a must be at least 0, is -0.1"),
        ({"weights": {"a": float("nan")}}, "weight of a must be at least 0, is nan"),
        ({"weights": {"a": 0.0, "b": 0}}, "no source has a weight above 0"),
        ({"weights": {}}, "no source has a weight above 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"temperature": float("inf")}, "temperature must be above 0"),
        ({"epoch_tokens": 0}, "epoch_tokens must be a whole number from 1 on, is 0"),
        ({"epoch_tokens": 1.5}, "epoch_tokens must be a whole number"),
        ({"max_repeats": 0}, "max_repeats must be a whole number"),
        ({"min_share": {"a": 1.1}}, "min_share of a must be from 0 to 1"),
        ({"max_share": {"a": -0.1}}, "max_share of a must be from 0 to 1"),
    ],
)
def test_options_that_make_no_mixture(options: dict[str, Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        Mixture(**options)


def test_json_round_trip() -> None:
    mixture = Mixture(
        over="selection",
        selections=("a", "b"),
        weights={"a": 0.7, "b": 1},
        epoch_tokens=1000,
        max_repeats=3,
        min_share={"a": 0.1},
        max_share={"*": 0.9},
        per="episode",
    )
    assert Mixture.from_json(json.dumps(asdict(mixture))) == mixture
    assert Mixture.from_json("{}") == Mixture()
    assert Mixture.from_json('{"epoch_tokens": 1e9}') == Mixture(epoch_tokens=10**9)


def test_whole_numbers_are_no_other_mixture() -> None:
    whole = Mixture(weights={"a": 1, "b": 0}, max_share={"*": 1})
    assert json.dumps(asdict(whole)) == json.dumps(
        asdict(Mixture(weights={"a": 1.0, "b": 0.0}, max_share={"*": 1.0}))
    )
    assert json.dumps(asdict(Mixture(temperature=2))) == json.dumps(
        asdict(Mixture(temperature=2.0))
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("weights", "not JSON"),
        ("[]", "a JSON object is needed, this is list"),
        ('{"weigths": {}}', "unknown weigths; there are over, selections, weights"),
        ('{"weights": 3}', "weights is 3; give a number for each source"),
        ('{"weights": {"a": "much"}}', "weights of a is 'much', which is no number"),
        ('{"max_share": {"*": true}}', r"max_share of \* is True, which is no number"),
        ('{"temperature": "hot"}', "temperature is 'hot', which is no number"),
    ],
)
def test_files_that_are_no_mixture(text: str, match: str) -> None:
    with pytest.raises(PlanError, match=match):
        Mixture.from_json(text)
