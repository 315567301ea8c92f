"""An episode and its spec must agree, and its content hash covers what is in it."""

from typing import Any

import numpy as np
import pytest

from lake import CameraVideo, Episode
from lake.errors import SpecError
from tests.episodes import make_episode, make_spec, noise_video


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamps_ns": np.empty(0, np.int64)}, "T > 0"),
        ({"timestamps_ns": np.zeros((12, 1), np.int64)}, "must be"),
        ({"features": {"state": np.zeros((11, 4), np.float32)}}, r"state is \(11, 4\)"),
        ({"features": {"state": np.zeros((12, 4))}}, "state is float64, spec float32"),
        ({"features": {"torque": np.zeros(12)}}, "no feature called 'torque'"),
        ({"valid": {"state": np.ones(11, np.bool_)}}, "validity of state"),
        ({"valid": {"nothing": np.ones(12, np.bool_)}}, "validity of nothing"),
        (
            {"cameras": {"top": noise_video(np.random.default_rng(0), 11)}},
            "camera top maps 11 steps of 12",
        ),
        (
            {
                "cameras": {"top": noise_video(np.random.default_rng(0), 12)},
                "spec": make_episode(0).spec,
            },
            "camera top is not in the spec",
        ),
        ({"task": {"name": "lift"}}, "is dict, text is needed"),
        ({"instruction": "pick \udcff"}, "is not Unicode"),
        ({"tags": ("good", "\ud800")}, "is not Unicode"),
    ],
)
def test_disagreement_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_episode(1, **changes)


def test_a_payload_must_be_as_long_as_its_index_says() -> None:
    video = noise_video(np.random.default_rng(0), 5)
    with pytest.raises(SpecError, match="video payload has"):
        CameraVideo(index=video.index, payload=bytes(video.payload) + b"x")


def test_the_hash_covers_everything_recorded_and_no_label() -> None:
    base = make_episode(1, camera_names=("top",))
    state = base.features["state"].copy()
    state[3, 2] = np.nextafter(state[3, 2], np.float32(100))
    notes = base.features["note"].copy()
    notes[0] += " "
    video = base.cameras["top"]
    payload = bytearray(video.payload)
    payload[7] ^= 1
    stamps = base.timestamps_ns.copy()
    stamps[-1] += 1
    valid = np.ones(12, np.bool_)

    def variant(**changes: Any) -> Episode:
        kept = {"spec": base.spec, "features": base.features, "cameras": base.cameras}
        return make_episode(1, **{**kept, **changes})

    changed = [
        base,
        variant(features={**base.features, "state": state}),
        variant(features={**base.features, "note": notes}),
        variant(features={"state": base.features["state"]}),
        variant(timestamps_ns=stamps),
        variant(valid={"state": valid}),
        variant(cameras={"top": CameraVideo(index=video.index, payload=bytes(payload))}),
        variant(cameras={"side": video}, spec=make_spec(cameras=("side",))),
        variant(cameras={}),
    ]
    assert len({episode.content_sha256() for episode in changed}) == len(changed)
    assert variant(task="other", success=None, tags=()).content_sha256() == base.content_sha256()


def test_the_hash_does_not_depend_on_the_order_of_features_or_cameras() -> None:
    base = make_episode(1, camera_names=("top", "side"))
    turned = make_episode(
        1,
        spec=base.spec,
        cameras=dict(reversed(list(base.cameras.items()))),
        features=dict(reversed(list(base.features.items()))),
    )
    assert list(turned.cameras) != list(base.cameras)
    assert turned.content_sha256() == base.content_sha256()
