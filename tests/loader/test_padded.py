"""The padded layout against the packed one."""

from typing import Any

import numpy as np
import pytest

from lake import Lake
from loader import PackLoader
from loader.batch import PackedBatch
from loader.errors import BatchError
from packing.plan import Plan
from tests.loader.scenes import as_numpy

_ROOM = {"max_text": 24, "num_cameras": 2, "horizon": 6, "dim": 7, "num_observed": 2}


@pytest.fixture(scope="module", params=["numpy", "torch"])
def batch(scene: Lake, plan: Plan, request: pytest.FixtureRequest) -> PackedBatch[Any]:
    with PackLoader(
        scene, plan, process="inline", framework=request.param, image_size=(16, 24)
    ) as loader:
        return max(loader, key=lambda batch: (len(batch.image_span_ids), -batch.step))


def test_every_value_of_a_span_is_there_and_nothing_else(batch: PackedBatch[Any]) -> None:
    out = batch.padded(**_ROOM)
    assert tuple(out.images.shape) == (batch.num_spans, 2, 2, 3, 16, 24)
    assert int(as_numpy(out.image_mask).sum()) == len(batch.image_span_ids)
    assert int(as_numpy(out.attention_mask).sum()) == int(
        (as_numpy(batch.token_modality) == 2).sum()
    )
    state, cu_state = as_numpy(batch.state), as_numpy(batch.cu_seqlens_state)
    actions, cu_action = as_numpy(batch.actions), as_numpy(batch.cu_seqlens_action)
    weights = as_numpy(batch.action_loss_weights)
    for span in range(batch.num_spans):
        rows = state[cu_state[span] : cu_state[span + 1]]
        mask = as_numpy(out.state_mask)[span]
        assert mask.tolist() == [False] * (2 - len(rows)) + [True] * len(rows)
        assert np.array_equal(as_numpy(out.state)[span][mask][:, :4], rows)
        assert not as_numpy(out.state)[span][:, 4:].any()
        queries = slice(cu_action[span], cu_action[span + 1])
        count = queries.stop - queries.start
        assert np.array_equal(as_numpy(out.actions)[span, :count, :3], actions[queries])
        assert as_numpy(out.action_is_pad)[span].tolist() == [
            *(weights[queries] == 0).tolist(),
            *[True] * (6 - count),
        ]
        assert as_numpy(out.action_dim_mask)[span].tolist() == [True] * 3 + [False] * 4


def test_pictures_stand_at_their_camera_the_current_one_last(batch: PackedBatch[Any]) -> None:
    out = batch.padded(**_ROOM)
    current = as_numpy(batch.step_index)
    for row in range(len(batch.image_span_ids)):
        span, camera = int(batch.image_span_ids[row]), int(batch.image_camera_ids[row])
        at = 1 if int(batch.image_step_index[row]) == current[span] else 0
        assert bool(out.image_mask[span, at, camera])
        assert np.array_equal(
            as_numpy(out.images)[span, at, camera], as_numpy(batch.images[0])[row]
        )


@pytest.mark.parametrize(
    ("name", "room", "message"),
    [
        ("max_text", 3, "text tokens"),
        ("num_cameras", 1, "cameras"),
        ("horizon", 2, "action steps"),
        ("dim", 3, "elements"),
        ("num_observed", 1, "observed steps"),
    ],
)
def test_nothing_is_cut(batch: PackedBatch[Any], name: str, room: int, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        batch.padded(**{**_ROOM, name: room})


def test_pictures_of_several_sizes_are_refused(scene: Lake, plan: Plan) -> None:
    with PackLoader(scene, plan, process="inline") as loader:
        mixed = next(batch for batch in loader if len(batch.images) == 2)
    with pytest.raises(BatchError, match="image_size"):
        mixed.padded(**_ROOM)
