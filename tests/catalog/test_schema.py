"""Every table shows what the lake holds."""

import json
import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from catalog import Catalog, set_labels
from lake import Episode, Lake, Provenance
from lake.insert import insert_new
from lake.quarantine import QuarantineEntry, quarantine_rows
from lake.tables import TABLES
from tests.catalog.views import write
from tests.episodes import noise_video

MakeEpisode = Callable[..., Episode]


def insert(lake: Lake, table: str, **row: object) -> None:
    rows = pa.Table.from_pylist([row], schema=TABLES[table])
    assert insert_new(lake, table, rows) == 1


def test_episodes_join_facts_and_labels(lake: Lake, make_episode: MakeEpisode) -> None:
    provenance = Provenance(
        format="hdf5-aloha",
        files=("a.hdf5", "b.hdf5"),
        locator="demo_10",
        reader="r/1",
        findings=("count is wrong", "no camera"),
    )
    episode = make_episode(
        4,
        steps=11,
        camera_names=("top", "wrist"),
        provenance=provenance,
        fps=None,
        success=None,
        task=None,
    )
    write(lake, [episode])
    set_labels(lake, [episode.episode_id], quality=0.25, tags=["a", "b"], task="fold")
    with Catalog(lake) as catalog:
        row = catalog.query("FROM episodes").to_pylist()[0]
    ingested_at = row.pop("ingested_at")
    assert ingested_at.year >= 2024
    assert row == {
        "episode_id": episode.episode_id,
        "dataset": "synthetic",
        "source": "synthetic",
        "embodiment": "test-arm",
        "spec_id": episode.spec.spec_id,
        "num_steps": 11,
        "fps": None,
        "duration_s": 1.0,
        "task": "fold",
        "instruction": "lift block 4",
        "success": None,
        "quality": 0.25,
        "split": "train",
        "tags": ["a", "b"],
        "cameras": ["top", "wrist"],
        "num_cameras": 2,
        "video_bytes": sum(len(video.payload) for video in episode.cameras.values()),
        "features": ["state", "action", "note"],
        "format": "hdf5-aloha",
        "findings": ["count is wrong", "no camera"],
        "num_findings": 2,
        "source_files": ["a.hdf5", "b.hdf5"],
        "locator": "demo_10",
        "reader": "r/1",
        "alignment": "as-recorded",
        "label_version": 1,
    }


def test_cameras_count_frames_keys_and_missing_steps(lake: Lake, make_episode: MakeEpisode) -> None:
    from dataclasses import replace

    video = noise_video(np.random.default_rng(0), 9, gop=4)
    gaps = video.index.step_to_frame.copy()
    gaps[[0, 5]] = -1
    gappy = replace(video, index=replace(video.index, step_to_frame=gaps))
    write(lake, [make_episode(0, steps=9, cameras={"top": gappy, "wrist": video})])
    with Catalog(lake) as catalog:
        rows = catalog.query("FROM cameras ORDER BY camera").to_pylist()
    shared = {
        "episode_id": make_episode(0, steps=9).episode_id,
        "dataset": "synthetic",
        "codec": "bin_data",
        "width": 64,
        "height": 48,
        "num_steps": 9,
        "frames": 9,
        "key_frames": 3,
        "bytes": len(video.payload),
    }
    assert rows == [
        {**shared, "camera": "top", "missing_steps": 2},
        {**shared, "camera": "wrist", "missing_steps": 0},
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_carry_statistics_per_element(
    lake: Lake, make_episode: MakeEpisode, dtype: str
) -> None:
    episode = make_episode(2, dtype=dtype, steps=20)
    write(lake, [make_episode(1), episode])
    with Catalog(lake) as catalog:
        rows = catalog.query(
            "FROM features WHERE episode_id = ? ORDER BY feature", [episode.episode_id]
        ).to_pylist()
    action, note, state = rows
    values = episode.features["state"].astype(np.float64)
    assert (state["feature"], state["dtype"], state["role"]) == ("state", dtype, "state")
    assert (state["size"], state["names"]) == (4, ["x", "y", "z", "grip"])
    assert (state["count"], state["invalid"]) == (20, 0)
    assert state["min"] == values.min(axis=0).tolist()
    assert state["max"] == values.max(axis=0).tolist()
    np.testing.assert_allclose(state["mean"], values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(state["std"], values.std(axis=0), rtol=1e-12)
    assert (action["feature"], action["size"], action["names"]) == ("action", 3, None)
    assert (note["feature"], note["size"], note["dtype"]) == ("note", 1, "string")
    assert (note["min"], note["std"], note["count"]) == ([], [], 20)


def test_a_feature_without_any_valid_step_has_no_std(lake: Lake, make_episode: MakeEpisode) -> None:
    episode = make_episode(1, steps=3)
    features = {**episode.features, "state": np.full((3, 4), np.nan, np.float32)}
    write(lake, [make_episode(1, steps=3, features=features)])
    with Catalog(lake) as catalog:
        row = catalog.query("FROM features WHERE feature = 'state'").to_pylist()[0]
    assert (row["count"], row["invalid"]) == (0, 3)
    assert all(math.isnan(value) for value in row["mean"])
    assert row["std"] == [None] * 4


def test_tasks_datasets_and_specs(lake: Lake, make_episode: MakeEpisode) -> None:
    for number in range(4):
        write(
            lake,
            [
                make_episode(
                    number,
                    steps=11,
                    dataset="a" if number < 3 else "b",
                    camera_names=("top",) if number else ("wrist",),
                    instruction="lift",
                    success=None if number == 2 else number == 1,
                )
            ],
        )
    with Catalog(lake) as catalog:
        tasks = catalog.query("FROM tasks ORDER BY dataset").to_pylist()
        datasets = catalog.query("FROM datasets ORDER BY dataset").to_pylist()
        specs = catalog.query("FROM specs").to_pylist()
    names = ("dataset", "episodes", "steps", "successes", "judged")
    assert [tuple(row[name] for name in names) for row in tasks] == [
        ("a", 3, 33, 1, 2),
        ("b", 1, 11, 0, 1),
    ]
    facts = ("dataset", "episodes", "steps", "hours", "cameras", "embodiments", "findings")
    assert [tuple(row[name] for name in facts) for row in datasets] == [
        ("a", 3, 33, pytest.approx(3 / 3600), ["top", "wrist"], ["test-arm"], 0),
        ("b", 1, 11, pytest.approx(1 / 3600), ["top"], ["test-arm"], 0),
    ]
    spec = make_episode(0, camera_names=("wrist",)).spec
    row = next(row for row in specs if row["spec_id"] == spec.spec_id)
    assert [f["name"] for f in row["features"]] == ["state", "action", "note"]
    assert row["features"][0]["shape"] == [4]
    assert row["cameras"] == [
        {
            "name": "wrist",
            "source_name": "observation.images.wrist",
            "height": 48,
            "width": 64,
            "is_depth": False,
        }
    ]


def test_quarantine_shows_reasons(lake: Lake) -> None:
    entry = QuarantineEntry(
        source="s", dataset="d", episode="e", stream="top", reason="cut", detail="half a file"
    )
    insert_new(lake, "quarantine", quarantine_rows([entry]))
    with Catalog(lake) as catalog:
        row = catalog.query("SELECT * EXCLUDE quarantined_at FROM quarantine").to_pylist()[0]
    assert row == {
        "source": "s",
        "dataset": "d",
        "episode": "e",
        "stream": "top",
        "reason": "cut",
        "detail": "half a file",
    }


def test_lineage_leads_from_evaluation_to_source_files(
    lake: Lake, make_episode: MakeEpisode
) -> None:
    from catalog import freeze_selection

    write(lake, [make_episode(n) for n in range(3)])
    selection = freeze_selection(lake, "success", name="good")
    header = {
        "num_spans": 90,
        "num_steps": 4,
        "settings": {"epochs": 2, "budget_tokens": 512, "slots_per_step": 8},
        "quality": {"padding": 0.25},
        "certificate": {"packs": 7, "bound": 6},
    }
    insert(
        lake,
        "plans",
        plan_hash="p1",
        name="mix",
        selection_hash=selection.hash,
        location="plans/p1.lance",
        header_json=json.dumps(header),
        versions_json=json.dumps(dict(selection.versions)),
        time_ns=10**18,
    )
    insert(lake, "plans", plan_hash="p2", name="unused", time_ns=10**18)
    insert(
        lake,
        "runs",
        run_id="r1",
        plan_hash="p1",
        out_dir="out",
        config_json='{"seed": 7}',
        time_ns=1,
    )
    insert(
        lake,
        "evaluations",
        evaluation_id="e1",
        run_id="r1",
        checkpoint="step-9",
        task="lift",
        episodes=4,
        successes=3,
        wilson_low=0.3,
        wilson_high=0.95,
        detail_json='{"seeds": [1, 2]}',
        time_ns=10**18,
    )
    with Catalog(lake) as catalog:
        rows = catalog.query("FROM lineage ORDER BY plan_hash").to_pylist()
        assert [(r["plan"], r["run_id"], r["selection"], r["success_rate"]) for r in rows] == [
            ("mix", "r1", "good", 0.75),
            ("unused", None, None, None),
        ]
        assert json.loads(rows[0]["lake_versions"]) == dict(selection.versions)
        mix, unused = catalog.query("FROM plans ORDER BY plan_hash").to_pylist()
        assert mix["created_at"].year == 2001
        known = {
            "name": "mix",
            "spans": 90,
            "steps": 4,
            "slots_per_step": 8,
            "epochs": 2,
            "budget_tokens": 512,
            "padding": 0.25,
            "packs_over_bound": 1,
        }
        assert {name: mix[name] for name in known} == known
        assert [unused[name] for name in known] == ["unused"] + [None] * 7
        for table, document in (
            ("plans", header),
            ("runs", {"seed": 7}),
            ("evaluations", {"seeds": [1, 2]}),
        ):
            answer = catalog.query(f"FROM {table} WHERE detail IS NOT NULL")
            assert answer.column_names[-1] == "detail"
            assert json.loads(answer["detail"][0].as_py()) == document
        assert catalog.query("SELECT seed, learning_rate FROM runs").to_pylist() == [
            {"seed": 7, "learning_rate": None}
        ]
        files = catalog.query(
            "WITH trained AS (SELECT unnest(episode_ids) AS episode_id FROM lineage"
            " JOIN selections USING (selection_hash) WHERE evaluation_id = 'e1')"
            " SELECT DISTINCT unnest(source_files) AS file FROM trained JOIN episodes"
            " USING (episode_id)"
        )
        assert files["file"].to_pylist() == ["a.bin"]
