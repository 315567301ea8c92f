"""What a plan must know of the episodes it is made of, read from a pinned lake in few requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lake.read_video import read_video_indexes
from lake.spec import Spec
from lake.store import Lake
from lake.visible import visible_episodes
from packing.errors import PlanError
from packing.plan import EPISODES_SCHEMA, TEXTS_SCHEMA
from packing.plan_header import PlanSpec
from packing.prompt_encoder import PromptEncoder
from packing.roles import resolve_roles
from packing.spans import EpisodeSteps, Int64s
from packing.usable_steps import usable_steps

_COLUMNS: Final = (
    *("episode_id", "spec_id", "dataset", "embodiment", "num_steps", "content_sha256", "features"),
    *("cameras", "camera_key_frames", "camera_missing_steps"),
)
_CHUNK: Final = 1024


@dataclass(frozen=True, kw_only=True)
class PlanEpisodes:
    """Episodes sorted by id, and the names that their numbers mean.

    Names are sorted as well, except cameras that were chosen: their order is the choice.

    Attributes:
        table: the plan's `episodes` table.
        steps: for span makers.
        texts: the plan's `texts` table: the distinct texts, sorted.
        datasets, embodiments, cameras: names.
        specs: state and action per spec.
        unused_text: float64 [E], estimate of the text tokens that a span of each episode leaves
            (see `StateText.expected_unused`).
        rows: what was read of `trajectories` for them.
    """

    table: pa.Table
    steps: EpisodeSteps
    texts: pa.Table
    datasets: tuple[str, ...]
    embodiments: tuple[str, ...]
    cameras: tuple[str, ...]
    specs: tuple[PlanSpec, ...]
    unused_text: NDArray[np.float64]
    rows: pa.Table


def read_plan_episodes(
    lake: Lake,
    episode_ids: Sequence[str],
    *,
    prompt: PromptEncoder,
    state: Sequence[str] | None,
    action: Sequence[str] | None,
    cameras: Sequence[str] | None,
) -> PlanEpisodes:
    """Read what planning needs.

    Args:
        lake: pinned.
        episode_ids: distinct ids; their order does not matter.
        prompt: encodes the texts; its layout says what costs tokens, hence what must be there.
        state: see `packing.roles.resolve_roles`.
        action: see `packing.roles.resolve_roles`.
        cameras: names to use, in the order in which a prompt shows them, or None for all but
            depth, by name.

    Raises:
        PlanError: an unknown id or camera, or features that are not there or not unique.
    """
    layout = prompt.layout
    rows = _rows(lake, episode_ids)
    spec_ids = sorted(set(rows["spec_id"].to_pylist()))
    lake_specs = [lake.spec(spec_id) for spec_id in spec_ids]
    specs = resolve_roles(
        lake_specs,
        state=state,
        action=action,
        state_needed=layout.state_tokens > 0 or layout.prompt.writes_state,
        action_needed=layout.action_tokens > 0,
        called=_spec_names(rows),
    )
    spec = _index(rows["spec_id"], spec_ids)
    _require_features(rows, spec, lake_specs, specs)
    used = _used_cameras(lake_specs, rows, cameras) if layout.image_tokens else ()
    present = [
        sorted(used.index(name) for name in names if name in used)
        for names in rows["cameras"].to_pylist()
    ]
    num_steps = rows["num_steps"].to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(num_steps)]).astype(np.int64)
    state_valid = usable_steps(lake, rows, spec, lake_specs, [s.state for s in specs], offsets)
    action_valid = usable_steps(lake, rows, spec, lake_specs, [s.action for s in specs], offsets)
    spoken = _texts(lake, rows["episode_id"])
    texts = sorted(set(spoken))
    prompts = [prompt.encode(text) for text in texts]
    number = {text: index for index, text in enumerate(texts)}
    text = np.array([number[t] for t in spoken], np.int32)
    datasets, embodiments = (
        tuple(sorted(set(rows[name].to_pylist()))) for name in ("dataset", "embodiment")
    )
    table = pa.table(
        {
            "episode_id": rows["episode_id"],
            "content_sha256": rows["content_sha256"],
            "address": rows["address"],
            "spec": spec,
            "dataset": _index(rows["dataset"], datasets),
            "embodiment": _index(rows["embodiment"], embodiments),
            "num_steps": rows["num_steps"],
            "cameras": pa.array(present, pa.list_(pa.int16())),
            "invalid_action_steps": _invalid_steps(action_valid, offsets),
            "invalid_state_steps": pa.nulls(len(offsets) - 1, pa.list_(pa.int32())).fill_null([]),
        },
        schema=EPISODES_SCHEMA,
    )
    return PlanEpisodes(
        table=table,
        steps=EpisodeSteps(
            episode_ids=tuple(rows["episode_id"].to_pylist()),
            step_offsets=offsets,
            frames=_frames(lake, rows, used, offsets),
            state_valid=state_valid,
            text=text,
            text_tokens=np.array([len(p.token_ids) for p in prompts], np.int32)[text]
            + prompt.ids.most_state_text([s.state_size for s in specs])[spec],
        ),
        texts=pa.table(
            {
                "text": texts,
                "token_ids": [p.token_ids for p in prompts],
                "images_at": [p.images_at for p in prompts],
                "state_at": [p.state_at for p in prompts],
            },
            schema=TEXTS_SCHEMA,
        ),
        datasets=datasets,
        embodiments=embodiments,
        cameras=used,
        specs=specs,
        unused_text=prompt.ids.unused_state_text([s.state_size for s in specs])[spec],
        rows=rows,
    )


def list_masked_states(episodes: pa.Table, steps: EpisodeSteps, masked: Int64s) -> pa.Table:
    """The `episodes` table with `invalid_state_steps`: what spans cross (see `SpanSet.masked`)."""
    usable = np.ones(len(steps.state_valid), np.bool_)
    usable[masked] = False
    at = EPISODES_SCHEMA.get_field_index("invalid_state_steps")
    lists = _invalid_steps(usable, steps.step_offsets)
    return episodes.set_column(at, EPISODES_SCHEMA.field(at), lists)


def _rows(lake: Lake, episode_ids: Sequence[str]) -> pa.Table:
    wanted = pa.array(episode_ids, pa.string())
    if not len(wanted):
        raise PlanError(f"{lake.uri}: no episode selected; a plan needs at least one")
    if pc.count_distinct(wanted).as_py() != len(wanted):
        raise PlanError("an episode id is given twice; weights are not expressed by repetition")
    rows = visible_episodes(lake, _COLUMNS)
    rows = rows.filter(pc.is_in(rows["episode_id"], value_set=wanted)).sort_by("episode_id")
    if rows.num_rows != len(wanted):
        missing = wanted.filter(pc.invert(pc.is_in(wanted, value_set=rows["episode_id"])))
        raise PlanError(
            f"{lake.uri}: {len(missing)} of {len(wanted)} episodes are not in the lake at the"
            f" version read, first {missing[0]}; list them with `headrace sql`"
        )
    return rows.combine_chunks()


def _index(column: pa.ChunkedArray, names: Sequence[str]) -> NDArray[np.int32]:
    found: NDArray[np.int32] = pc.index_in(column, value_set=pa.array(names)).to_numpy()
    return found.astype(np.int32)


def _spec_names(rows: pa.Table) -> dict[str, str]:
    """Spec id -> what a person knows it by: the datasets that have it."""
    datasets: dict[str, set[str]] = {}
    pairs = rows.select(["spec_id", "dataset"]).group_by(["spec_id", "dataset"]).aggregate([])
    for row in pairs.to_pylist():
        datasets.setdefault(row["spec_id"], set()).add(row["dataset"])
    return {
        spec_id: f"{', '.join(sorted(names))} (spec {spec_id[:8]})"
        for spec_id, names in datasets.items()
    }


def _require_features(
    rows: pa.Table, spec: NDArray[np.int32], specs: Sequence[Spec], chosen: Sequence[PlanSpec]
) -> None:
    needed = [
        {lake_spec.feature(name).column for name in plan_spec.state + plan_spec.action}
        for lake_spec, plan_spec in zip(specs, chosen, strict=True)
    ]
    lacking = [
        (episode_id, sorted(needed[number].difference(there)))
        for episode_id, number, there in zip(
            rows["episode_id"].to_pylist(), spec.tolist(), rows["features"].to_pylist(), strict=True
        )
        if not needed[number].issubset(there)
    ]
    if lacking:
        episode_id, names = lacking[0]
        raise PlanError(
            f"{len(lacking)} of {rows.num_rows} selected episodes were recorded without a chosen"
            f" feature, first {episode_id}, which lacks {', '.join(names)}; leave them out of the"
            " selection (the catalog's table `features` tells which), or choose other features"
        )


def _used_cameras(
    specs: Sequence[Spec], rows: pa.Table, wanted: Sequence[str] | None
) -> tuple[str, ...]:
    there = set(pc.list_flatten(rows["cameras"]).to_pylist())
    depth = {camera.name for spec in specs for camera in spec.cameras if camera.is_depth}
    if wanted is None:
        return tuple(sorted(there - depth))
    if unknown := sorted(set(wanted) - there):
        raise PlanError(
            f"no selected episode has a camera {', '.join(unknown)}; there are:"
            f" {', '.join(sorted(there)) or 'none'}"
        )
    return tuple(dict.fromkeys(wanted))


def _frames(
    lake: Lake, rows: pa.Table, used: tuple[str, ...], offsets: NDArray[np.int64]
) -> NDArray[np.int16]:
    """int16 [sum T]: cameras with a frame at each step; indexes are read only where one lacks."""
    cameras = rows["cameras"].to_pylist()
    present = np.array([sum(c in used for c in names) for names in cameras], np.int16)
    frames = np.repeat(present, np.diff(offsets))
    gaps = [
        row
        for row, (names, missing) in enumerate(
            zip(cameras, rows["camera_missing_steps"].to_pylist(), strict=True)
        )
        if any(gap for name, gap in zip(names, missing, strict=True) if name in used)
    ]
    addresses = rows["address"].to_pylist()
    for chunk in _chunks(gaps):
        videos = read_video_indexes(lake, [addresses[row] for row in chunk])
        for row, video in zip(chunk, videos, strict=True):
            shown = [
                video.cameras[name].step_to_frame >= 0 for name in cameras[row] if name in used
            ]
            frames[offsets[row] : offsets[row + 1]] = np.sum(shown, axis=0, dtype=np.int16)
    return frames


def _invalid_steps(valid: NDArray[np.bool_], offsets: NDArray[np.int64]) -> pa.ListArray:
    """Steps of each episode that cannot be used, list<int32>."""
    at = np.flatnonzero(~valid)
    bounds = np.searchsorted(at, offsets)
    steps = at - np.repeat(offsets[:-1], np.diff(bounds))
    return pa.ListArray.from_arrays(
        pa.array(bounds.astype(np.int32)), pa.array(steps.astype(np.int32))
    )


def _texts(lake: Lake, episode_ids: pa.ChunkedArray) -> list[str]:
    """Per episode its instruction, else its task, else the empty text."""
    with lake.errors_named("read labels"):
        labels = lake.dataset("episodes").to_table(columns=["episode_id", "task", "instruction"])
    row = pc.index_in(episode_ids, value_set=labels["episode_id"].combine_chunks())
    if row.null_count:
        missing = episode_ids.filter(pc.is_null(row))[0]
        raise PlanError(f"{lake.uri}: episode {missing} has no row in the table `episodes`")
    text = pc.coalesce(labels["instruction"].take(row), labels["task"].take(row))
    result: list[str] = pc.fill_null(text, "").to_pylist()
    return result


def _chunks(rows: list[int]) -> Iterator[list[int]]:
    return (rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK))
