"""Batches against an independent reading of the plan and the lake, with plain loops.

Every field of every batch of a plan is rebuilt here from `read_episode` and a plain PyAV decode.
"""

from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from lake import Episode, Lake
from lake.read import read_episode
from loader import Modality, PackLoader
from loader.batch import NumpyBatch
from packing.mixture import Mixture
from packing.plan import Plan
from packing.trajectory_spans import TrajectorySpans
from packing.window_spans import WindowSpans
from tests.loader.scenes import scene_plan

Span = dict[str, Any]


# So many tokens that spans meet themselves in a pack.
REPEATS = Mixture(epoch_tokens=20_000)


@pytest.fixture(
    scope="module",
    params=[
        (WindowSpans(horizon=5, history=2, history_stride=3), None),
        (WindowSpans(horizon=3, stride=2), None),
        (TrajectorySpans(observe_every=2, max_steps=11), None),
        (WindowSpans(horizon=5, history=2, history_stride=3), REPEATS),
    ],
    ids=["history", "stride", "trajectory", "repeats"],
)
def planned(request: pytest.FixtureRequest, scene: Lake) -> Plan:
    spans, mixture = request.param
    return scene_plan(scene, spans=spans, mixture=mixture, epochs=1)


@pytest.fixture(scope="module")
def batches(scene: Lake, planned: Plan) -> list[NumpyBatch]:
    with PackLoader(scene, planned, process="inline", framework="numpy") as loader:
        return list(loader)


@pytest.fixture(scope="module")
def episodes(scene: Lake, planned: Plan) -> list[Episode]:
    return [read_episode(scene, name) for name in planned.episodes["episode_id"].to_pylist()]


def spans_of(plan: Plan, batch: NumpyBatch) -> list[Span]:
    row = plan.packs.slice(batch.step * plan.header.slots_per_step + batch.slot, 1).to_pylist()[0]
    columns = [name for name, values in row.items() if isinstance(values, list)]
    return [{name: row[name][number] for name in columns} for number in range(len(row["span_id"]))]


def pictures_of(plan: Plan, episode: Episode, span: Span) -> Iterator[tuple[int, int]]:
    """(step, camera) of the pictures of a span in prefix order."""
    for step in range(span["start"], span["stop"], span["stride"]):
        for camera, name in enumerate(plan.header.cameras):
            if name in episode.cameras and episode.cameras[name].index.step_to_frame[step] >= 0:
                yield step, camera


def decoded(episode: Episode, camera: str) -> list[NDArray[np.uint8]]:
    """Every frame of a camera in display order, uint8 [3, h, w], by nothing but PyAV."""
    index, payload = episode.cameras[camera].index, episode.cameras[camera].payload
    context = av.CodecContext.create(index.codec, "r")
    assert isinstance(context, av.VideoCodecContext)
    frames, offsets = [], index.packet_offsets()
    for number in range(len(index.packet_size)):
        packet: Any = av.Packet(bytes(payload[offsets[number] : offsets[number + 1]]))
        packet.pts = int(index.packet_frame[number])
        frames += context.decode(packet)
    frames += context.decode(None)
    ordered = sorted(frames, key=lambda frame: frame.pts or 0)
    pictures: list[Any] = [frame.to_ndarray(format="rgb24") for frame in ordered]
    return [picture.transpose(2, 0, 1) for picture in pictures]


def test_a_span_meets_itself_in_a_pack(planned: Plan, batches: list[NumpyBatch]) -> None:
    met = [len(set(b.span_ids[: b.num_spans].tolist())) < b.num_spans for b in batches]
    assert any(met) == (planned.header.mixture is not None)


def test_every_row_of_the_plan_comes_once_in_order(
    planned: Plan, batches: list[NumpyBatch]
) -> None:
    slots = planned.header.slots_per_step
    assert [(b.step, b.slot) for b in batches] == [
        (step, slot) for step in range(planned.num_steps) for slot in range(slots)
    ]
    for batch in batches:
        spans = spans_of(planned, batch)
        assert batch.num_spans == len(spans)
        assert batch.span_ids[: len(spans)].tolist() == [s["span_id"] for s in spans]
        assert (batch.span_ids[len(spans) :] == -1).all()
        assert batch.occurrence_ids[: len(spans)].tolist() == [s["occurrence"] for s in spans]
        assert (batch.occurrence_ids[len(spans) :] == -1).all()
        assert batch.episode_ids[: len(spans)].tolist() == [s["episode"] for s in spans]
        assert batch.step_index[: len(spans)].tolist() == [s["action_start"] for s in spans]
        assert batch.sample_weights.tolist() == [1.0] * len(spans) + [0.0] * (
            len(batch.span_ids) - len(spans)
        )
        assert batch.plan_hash == planned.plan_hash


def test_prefix_tokens(planned: Plan, batches: list[NumpyBatch], episodes: list[Episode]) -> None:
    layout = planned.header.layout
    token_ids = planned.texts["token_ids"].to_pylist()
    for batch in batches:
        at = 0
        spans = spans_of(planned, batch)
        for number, span in enumerate(spans):
            pictures = list(pictures_of(planned, episodes[span["episode"]], span))
            observed = len(range(span["start"], span["stop"], span["stride"]))
            text = token_ids[span["text"]]
            ids = [3] * (len(pictures) * layout.image_tokens)
            ids += text
            ids += [4] * (observed * layout.state_tokens)
            kinds = [Modality.IMAGE] * (len(pictures) * layout.image_tokens)
            kinds += [Modality.TEXT] * len(text)
            kinds += [Modality.STATE] * (observed * layout.state_tokens)
            here = slice(at, at + len(ids))
            assert len(ids) == span["prefix_tokens"]
            assert batch.input_ids[here].tolist() == ids
            assert batch.token_modality[here].tolist() == kinds
            assert batch.segment_ids[here].tolist() == [number] * len(ids)
            assert batch.position_ids[here].tolist() == list(range(len(ids)))
            assert batch.cu_seqlens[number : number + 2].tolist() == [at, at + len(ids)]
            at += len(ids)
        assert batch.num_tokens == at
        assert (batch.token_modality[at:] == Modality.PAD).all()
        assert (batch.segment_ids[at:] == len(batch.span_ids)).all()
        assert (batch.labels == -100).all()
        assert batch.num_items_in_batch == 0
        lengths = np.diff(batch.cu_seqlens)
        assert lengths.max() <= batch.max_seqlen
        assert lengths.sum() == len(batch.input_ids) == planned.header.budget_tokens
        assert (batch.position_ids[at:] < batch.max_seqlen).all()


def test_pictures(planned: Plan, batches: list[NumpyBatch], episodes: list[Episode]) -> None:
    videos = [{name: decoded(episode, name) for name in episode.cameras} for episode in episodes]
    seen = 0
    for batch in batches:
        expected: dict[tuple[int, int, int], Any] = {}
        tokens: dict[tuple[int, int, int], list[int]] = {}
        for number, span in enumerate(spans_of(planned, batch)):
            episode = episodes[span["episode"]]
            at = int(batch.cu_seqlens[number])
            for step, camera in pictures_of(planned, episode, span):
                name = planned.header.cameras[camera]
                key = (number, step, camera)
                frame = episode.cameras[name].index.step_to_frame[step]
                expected[key] = videos[span["episode"]][name][frame]
                tokens[key] = list(range(at, at + planned.header.layout.image_tokens))
                at += planned.header.layout.image_tokens
        pixels = [picture for bucket in batch.images for picture in bucket]
        keys = list(
            zip(
                batch.image_span_ids.tolist(),
                batch.image_step_index.tolist(),
                batch.image_camera_ids.tolist(),
                strict=True,
            )
        )
        assert sorted(keys) == sorted(expected)
        assert [b.shape[2:] for b in batch.images] == sorted({b.shape[2:] for b in batch.images})
        for row, key in enumerate(keys):
            first, stop = batch.cu_image_tokens[row : row + 2]
            assert np.array_equal(pixels[row], expected[key]), key
            assert batch.image_token_index[first:stop].tolist() == tokens[key]
        seen += len(keys)
    assert seen > 50


def test_states_and_actions(
    planned: Plan, batches: list[NumpyBatch], episodes: list[Episode]
) -> None:
    invalid = 0
    for batch in batches:
        spans = spans_of(planned, batch)
        state_at = action_at = items = 0
        for number, span in enumerate(spans):
            episode = episodes[span["episode"]]
            steps = list(range(span["start"], span["stop"], span["stride"]))
            rows = slice(state_at, state_at + len(steps))
            assert np.array_equal(batch.state[rows], episode.features["state"][steps])
            assert batch.state_step_index[rows].tolist() == steps
            last = int(batch.cu_seqlens[number + 1])
            assert batch.state_token_index[rows].tolist() == list(range(last - len(steps), last))
            acts = slice(span["action_start"], span["action_stop"])
            queries = slice(action_at, action_at + acts.stop - acts.start)
            valid = episode.valid.get("action", np.ones(episode.num_steps, np.bool_))[acts]
            wanted = np.where(valid[:, None], episode.features["action"][acts], 0)
            assert np.array_equal(batch.actions[queries], wanted)
            assert batch.action_loss_weights[queries].tolist() == valid.astype(float).tolist()
            assert batch.action_position_ids[queries].tolist() == list(range(len(valid)))
            state_at, action_at = rows.stop, queries.stop
            assert batch.cu_seqlens_state[number + 1] == state_at
            assert batch.cu_seqlens_action[number + 1] == action_at
            items += int(valid.sum()) * 3
            invalid += int((~valid).sum())
        assert len(batch.state) == state_at
        assert len(batch.actions) == action_at
        assert batch.action_dim_mask.all()
        assert batch.num_action_items == items
    assert invalid > 0


def test_joint_keys_are_each_span_s_prefix_and_actions(batches: list[NumpyBatch]) -> None:
    for batch in batches:
        tokens = len(batch.input_ids)
        for number in range(batch.num_spans):
            keys = batch.kv_index[batch.cu_seqlens_kv[number] : batch.cu_seqlens_kv[number + 1]]
            prefix = range(*batch.cu_seqlens[number : number + 2].tolist())
            actions = range(*batch.cu_seqlens_action[number : number + 2].tolist())
            assert keys.tolist() == [*prefix, *(tokens + query for query in actions)]
        assert np.diff(batch.cu_seqlens_kv).max() <= batch.max_seqlen_kv
        assert np.diff(batch.cu_seqlens_action).max() <= batch.max_seqlen_action
        assert sorted(batch.kv_index.tolist()) == list(range(tokens + len(batch.actions)))


def test_ids_name_what_the_plan_lists(planned: Plan, batches: list[NumpyBatch]) -> None:
    table = planned.episodes
    for batch in batches:
        for number, span in enumerate(spans_of(planned, batch)):
            row = span["episode"]
            assert batch.dataset_ids[number] == table["dataset"][row].as_py()
            assert batch.embodiment_ids[number] == table["embodiment"][row].as_py()
            assert batch.stats_ids[number] == table["spec"][row].as_py()


def test_cameras_are_shown_in_the_order_chosen(scene: Lake) -> None:
    plan, other, default = (
        scene_plan(scene, cameras=names) for names in (["wrist", "top"], ["top", "wrist"], None)
    )
    assert plan.header.cameras == ("wrist", "top")
    assert plan.plan_hash != other.plan_hash == default.plan_hash
    pairs = 0
    with PackLoader(scene, plan, process="inline", framework="numpy") as loader:
        for batch in loader:
            first = batch.image_token_index.reshape(-1, plan.header.layout.image_tokens)[:, 0]
            place = np.argsort(first)
            camera, span, step = (
                of_image[place]
                for of_image in (
                    batch.image_camera_ids,
                    batch.image_span_ids,
                    batch.image_step_index,
                )
            )
            together = (np.diff(span) == 0) & (np.diff(step) == 0)
            assert (np.diff(camera)[together] == 1).all(), "wrist (0) before top (1)"
            pairs += int(together.sum())
    assert pairs
