"""Batches of the known layouts: every token rebuilt from the plan, the lake and the tokenizer."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lake import Episode, EpisodeWriter, Lake, Spec, create_lake
from lake.read import read_episode
from loader import Modality, PackLoader
from loader.batch import NumpyBatch
from loader.errors import LoaderError
from loader.materialized.materialize import materialize
from packing.errors import PlanError
from packing.known_layouts import KNOWN_LAYOUTS
from packing.layout import TokenLayout
from packing.plan import Plan
from packing.plan_store import save_plan
from packing.state_text import StateText
from packing.tokenizer import Tokenizer, find_tokenizer
from packing.trajectory_spans import TrajectorySpans
from packing.verify import verify_plan
from packing.window_spans import WindowSpans
from tests.episodes import make_episode, make_spec
from tests.loader.scenes import digest, scene_lake, scene_plan
from tests.packing.small_tokenizers import EAGLE_TOKENS, gemma_like, qwen_like, write

FILES: dict[str, tuple[str, str | bytes]] = {
    "pi0": ("gemma.model", gemma_like()),
    "pi0.5": ("gemma.model", gemma_like()),
    "gr00t-n1.5": ("eagle.json", qwen_like(EAGLE_TOKENS)),
    "gr00t-n1.7": ("qwen.json", qwen_like()),
}
HISTORY = {"pi0.5": 3}  # the state that is written is the last one observed


def layout_of(name: str) -> TokenLayout:
    """The known layout with few tokens per image, so that packs hold several spans."""
    return dataclasses.replace(KNOWN_LAYOUTS[name].layout, image_tokens=5)


@pytest.fixture(scope="module", params=FILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tokenizer(name: str, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return find_tokenizer(write(tmp_path_factory.mktemp("tokenizer"), *FILES[name]))


@pytest.fixture(scope="module")
def planned(name: str, tokenizer: Tokenizer, scene: Lake) -> Plan:
    return scene_plan(
        scene,
        spans=WindowSpans(horizon=5, history=HISTORY.get(name, 2), stride=2),
        layout=layout_of(name),
        tokenizer=tokenizer,
        budget_tokens=384,
        epochs=1,
    )


@pytest.fixture(scope="module")
def batches(scene: Lake, planned: Plan) -> list[NumpyBatch]:
    with PackLoader(scene, planned, process="inline", framework="numpy") as loader:
        return list(loader)


@pytest.fixture(scope="module")
def episodes(scene: Lake, planned: Plan) -> list[Episode]:
    return [read_episode(scene, name) for name in planned.episodes["episode_id"].to_pylist()]


def spans_of(plan: Plan, batch: NumpyBatch) -> list[dict[str, Any]]:
    row = plan.packs.slice(batch.step * plan.header.slots_per_step + batch.slot, 1).to_pylist()[0]
    columns = [name for name, values in row.items() if isinstance(values, list)]
    return [{name: row[name][number] for name in columns} for number in range(len(row["span_id"]))]


def bins_of(plan: Plan, episode: Episode, span: dict[str, Any]) -> list[int]:
    """Bins of the last observed state, element by element in plain float32."""
    spec = plan.header.specs[plan.episodes["spec"][span["episode"]].as_py()]
    last = range(span["start"], span["stop"], span["stride"])[-1]
    bins = []
    for feature in spec.state:
        stats = plan.header.stats_of(spec.spec_id, feature)
        values = np.asarray(episode.features[feature][last], np.float32).ravel()
        for value, q01, q99 in zip(values, stats.q01, stats.q99, strict=True):
            low, high = np.float32(q01), np.float32(q99)
            scaled = (value - low) / (high - low + np.float32(1e-6)) * np.float32(2) - np.float32(1)
            bins.append(int(np.digitize(scaled, np.linspace(-1, 1, 257)[:-1])) - 1)
    return bins


def expected(
    plan: Plan, tokenizer: Tokenizer, episode: Episode, span: dict[str, Any]
) -> tuple[list[int], list[int]]:
    """Ids and kinds of a span's prefix, the text encoded in one go wherever it has no image."""
    header = plan.header
    layout, ids = header.layout, header.prompt_ids
    template = layout.prompt
    text = template.clean(plan.texts["text"][span["text"]].as_py())
    out: list[int] = []
    kinds: list[int] = []

    def say(more: list[int], kind: Modality) -> None:
        out.extend(more)
        kinds.extend([kind] * len(more))

    begin = [tokenizer.begin_id or 0] if template.begin else []
    state = " ".join(map(str, bins_of(plan, episode, span)))
    for parts in template.parts(text):
        if parts:
            say([*begin, *tokenizer.encode(state.join(parts))], Modality.TEXT)
            begin = []
            continue
        for number in range(1, span["images"] + 1):
            before, after = template.frame(number)
            say(list(tokenizer.encode(before)), Modality.TEXT)
            say([ids.image] * layout.image_tokens, Modality.IMAGE)
            say(list(tokenizer.encode(after)), Modality.TEXT)
    observed = len(range(span["start"], span["stop"], span["stride"]))
    say([ids.state] * (observed * layout.state_tokens), Modality.STATE)
    say([ids.pad] * layout.extra_tokens, Modality.EXTRA)
    return out, kinds


def test_plans_hold_every_promise(planned: Plan, tokenizer: Tokenizer, name: str) -> None:
    assert verify_plan(planned)
    header = planned.header
    assert header.tokenizer_fingerprint == tokenizer.fingerprint
    assert (header.layout.name, header.layout.tokenizer) == (name, tokenizer.name)
    assert header.vocab_size > max(header.prompt_ids.slots)
    assert type(header).from_json(header.to_json()) == header


def test_every_token(
    planned: Plan, tokenizer: Tokenizer, batches: list[NumpyBatch], episodes: list[Episode]
) -> None:
    counted = 0
    for batch in batches:
        at = 0
        for number, span in enumerate(spans_of(planned, batch)):
            ids, kinds = expected(planned, tokenizer, episodes[span["episode"]], span)
            here = slice(at, at + len(ids))
            assert batch.input_ids[here].tolist() == ids
            assert batch.token_modality[here].tolist() == kinds
            assert batch.segment_ids[here].tolist() == [number] * len(ids)
            assert batch.position_ids[here].tolist() == list(range(len(ids)))
            assert batch.cu_seqlens[number : number + 2].tolist() == [at, at + len(ids)]
            at += len(ids)
            counted += 1
        assert batch.num_tokens == at
        assert (batch.input_ids[at:] == planned.header.prompt_ids.pad).all()
        assert (batch.token_modality[at:] == Modality.PAD).all()
        assert (batch.segment_ids[at:] == len(batch.span_ids)).all()
        assert (batch.labels == -100).all()
    assert counted == planned.header.num_spans


def test_what_follows_from_lengths(planned: Plan, batches: list[NumpyBatch]) -> None:
    header = planned.header
    for batch in batches:
        tokens = len(batch.input_ids)
        assert tokens == header.budget_tokens
        cu_seqlens = batch.cu_seqlens
        assert cu_seqlens.dtype == np.int32
        assert (cu_seqlens[0], cu_seqlens[-1]) == (0, tokens)
        assert np.diff(cu_seqlens).min() >= 0
        assert np.diff(cu_seqlens).max() <= batch.max_seqlen
        per_image = batch.image_token_index.reshape(-1, header.layout.image_tokens)
        assert (np.diff(per_image, axis=1) == 1).all()
        for index, kind, owner in (
            (batch.image_token_index, Modality.IMAGE, batch.image_span_ids),
            (batch.state_token_index, Modality.STATE, None),
        ):
            assert (batch.token_modality[index] == kind).all()
            assert sorted(index) == np.flatnonzero(batch.token_modality == kind).tolist()
            if owner is not None:
                assert (batch.segment_ids[index] == owner.repeat(per_image.shape[1])).all()
        _check_joint(batch)


def _check_joint(batch: NumpyBatch) -> None:
    """Keys of the action stream: each span's prefix, then its actions."""
    tokens, want = len(batch.input_ids), []
    for span in range(len(batch.span_ids)):
        first, stop = batch.cu_seqlens[span : span + 2].tolist()
        begin, end = batch.cu_seqlens_action[span : span + 2].tolist()
        want += [*range(first, stop), *range(tokens + begin, tokens + end)]
        assert batch.cu_seqlens_kv[span + 1] == stop + end
    assert batch.kv_index.tolist() == want


def test_only_a_written_state_is_shorter_than_planned(
    planned: Plan, batches: list[NumpyBatch], name: str
) -> None:
    unused = []
    for batch in batches:
        planned_tokens = [span["prefix_tokens"] for span in spans_of(planned, batch)]
        unused += (np.array(planned_tokens) - np.diff(batch.cu_seqlens)[: batch.num_spans]).tolist()
    text = planned.header.prompt_ids.state_text
    if text is None:
        assert set(unused) == {0}
        return
    assert name == "pi0.5"
    most = [text.max_tokens(spec.state_size) for spec in planned.header.specs]
    assert 0 <= min(unused) < max(unused) <= max(most)


def test_trimmed_and_padded_batches(planned: Plan, batches: list[NumpyBatch], name: str) -> None:
    longest = planned.header.shape.span_prefix_tokens
    batch = next(each for each in batches if each.num_spans > 1)
    trimmed = batch.trimmed(128)
    assert len(trimmed.input_ids) == -(-batch.num_tokens // 128) * 128
    assert trimmed.kv_index.max() < len(trimmed.input_ids) + len(trimmed.actions)
    if len(batch.images) > 1:
        return
    rows = batch.padded(
        max_text=longest,
        num_cameras=len(planned.header.cameras),
        horizon=5,
        dim=8,
        num_observed=HISTORY.get(name, 2),
    )
    for span in range(batch.num_spans):
        tokens = slice(*batch.cu_seqlens[span : span + 2])
        text = batch.input_ids[tokens][batch.token_modality[tokens] == Modality.TEXT]
        assert rows.input_ids[span, : len(text)].tolist() == text.tolist()
        assert rows.attention_mask[span].sum() == len(text)


@pytest.fixture(scope="module")
def written(scene: Lake, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    path = write(tmp_path_factory.mktemp("tokenizer"), *FILES["pi0.5"])
    return scene_plan(
        scene,
        spans=WindowSpans(horizon=5),
        layout=layout_of("pi0.5"),
        tokenizer=str(path),
        budget_tokens=384,
    )


WORDS = (
    "",
    " \n_",
    "lift",
    "\u00e4\U0001f642\u6f22\u5b57",
    "{state} {text}",
    "State: 5 7;\nAction: ",
)


@pytest.fixture(scope="module")
def many_sizes(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """States of 1, 7 and 60 elements, one of them constant, with an outlier and a step of NaN."""
    lake = create_lake(tmp_path_factory.mktemp("sizes") / "sizes.lake")
    rng = np.random.default_rng(0)
    with EpisodeWriter(lake) as writer:
        for number, words in enumerate(WORDS):
            size, steps = (1, 60, 7)[number % 3], 6 + number
            wide = dataclasses.replace(make_spec().features[0], shape=(size,), names=None)
            spec = Spec(features=(wide, make_spec().features[1]), cameras=())
            state = rng.standard_normal((steps, size)).astype(np.float32)
            state[:, 0] = 5.1
            if size > 1:
                state[2, 1], state[4] = 1e30, np.nan
            signals = {"state": state, "action": np.ones((steps, 3), np.float32)}
            writer.add(
                make_episode(number, steps=steps, spec=spec, features=signals, instruction=words)
            )
    lake.refresh()
    return lake


@pytest.mark.parametrize("history", [1, 3])
def test_states_of_any_size_and_texts_of_any_kind(
    many_sizes: Lake, tmp_path: Path, history: int
) -> None:
    tokenizer = find_tokenizer(write(tmp_path, *FILES["pi0.5"]))
    plan = scene_plan(
        many_sizes,
        spans=WindowSpans(horizon=50, history=history),
        layout=KNOWN_LAYOUTS["pi0.5"].layout,
        tokenizer=tokenizer,
        budget_tokens=1024,
    )
    assert verify_plan(plan)
    (audit,) = plan.header.audit
    # Four episodes have a step of NaN, which as many windows observe as the history has steps.
    observed = sum(min(history, 6 + number - 4) for number in (1, 2, 4, 5))
    assert audit.refused == {"window-touches-invalid-state": observed}
    episodes = [read_episode(many_sizes, name) for name in plan.episodes["episode_id"].to_pylist()]
    constant = set()
    with PackLoader(many_sizes, plan, process="inline", framework="numpy") as loader:
        for batch in loader:
            for number, span in enumerate(spans_of(plan, batch)):
                ids, _ = expected(plan, tokenizer, episodes[span["episode"]], span)
                here = slice(*batch.cu_seqlens[number : number + 2])
                assert batch.input_ids[here].tolist() == ids
                constant.add(bins_of(plan, episodes[span["episode"]], span)[0])
    assert constant == {0}, "an element that never changes is in the first bin"


@pytest.mark.parametrize("process", ["inline", "child"])
def test_a_loader_needs_no_tokenizer(
    scene: Lake, written: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: Any
) -> None:
    save_plan(scene, written)
    options: dict[str, Any] = {"process": "inline", "framework": "numpy"}
    with PackLoader(scene, written, **options) as loader:
        want = [digest(batch) for batch in loader]
    for library in ("tokenizers", "sentencepiece"):
        write(tmp_path, f"{library}.py", "raise ImportError")  # for the decode process
        monkeypatch.setitem(__import__("sys").modules, library, None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with PackLoader(scene, written.plan_hash, **{**options, "process": process}) as loader:
        assert [digest(batch) for batch in loader] == want


def test_workers_and_ranks_write_the_same_states(scene: Lake, written: Plan) -> None:
    def ids(**options: Any) -> Iterator[tuple[int, int, NDArray[Any]]]:
        with PackLoader(scene, written, framework="numpy", **options) as loader:
            for batch in loader:
                yield batch.step, batch.slot, batch.input_ids.copy()

    alone = {(step, slot): tokens for step, slot, tokens in ids(process="inline")}
    for rank in range(2):
        for step, slot, tokens in ids(rank=rank, world_size=2):
            if (step, slot) in alone:
                assert tokens.tolist() == alone[step, slot].tolist()


def test_materialised_packs_write_the_same_states(tmp_path: Path) -> None:
    lake = scene_lake(tmp_path)
    plan = scene_plan(
        lake,
        spans=WindowSpans(horizon=5, history=2, history_stride=3),
        layout=layout_of("pi0.5"),
        tokenizer=write(tmp_path, *FILES["pi0.5"]),
        budget_tokens=384,
        epochs=1,
    )
    save_plan(lake, plan)
    materialize(lake, plan, workers=0)

    def digests(**options: Any) -> list[str]:
        with PackLoader(lake, plan, process="inline", framework="numpy", **options) as loader:
            return [digest(batch) for batch in loader]

    assert digests(materialized=True) == digests()


def test_a_named_layout_in_memory(scene: Lake, tmp_path: Path) -> None:
    path = write(tmp_path, *FILES["pi0.5"])
    options: dict[str, Any] = {"budget_tokens": 1024, "process": "inline", "framework": "numpy"}
    with PackLoader.from_episodes(scene, layout="pi0.5", tokenizer=path, **options) as loader:
        header = loader.plan.header
        assert header.span_maker["horizon"] == 50
        assert header.layout.tokenizer == "gemma.model"
        batch = next(iter(loader))
        assert len(batch.image_token_index) == 256 * len(batch.image_span_ids)


def test_a_plan_whose_lengths_are_wrong_is_refused(scene: Lake, written: Plan) -> None:
    text = written.header.prompt_ids.state_text
    assert text is not None
    long = StateText(first=tuple((*ids, 7, 7, 7, 7) for ids in text.first), further=text.further)
    ids = dataclasses.replace(written.header.prompt_ids, state_text=long)
    header = dataclasses.replace(written.header, prompt_ids=ids)
    wrong = dataclasses.replace(written, header=header).sealed()
    with (
        PackLoader(scene, wrong, process="inline", framework="numpy") as loader,
        pytest.raises(LoaderError, match=r"span \d+ has \d+ prefix tokens, the plan counted"),
    ):
        list(loader)


def test_a_trajectory_has_no_single_state_to_write(scene: Lake, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"writes one state into the text.*use windows"):
        scene_plan(
            scene,
            spans=TrajectorySpans(),
            layout=layout_of("pi0.5"),
            tokenizer=write(tmp_path, *FILES["pi0.5"]),
        )
