"""The loader bench compares like with like, on recordings small enough for a test."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from packing.plan_store import save_plan
from tools.bench import loader as bench
from tools.bench import loader_headspace, loader_s3
from tools.bench.framework import BenchResult, Timing, take_turns
from tools.bench.loader_data import AV1, H264, H264_GOP30, Coding, Recorded, planned_order, record
from tools.bench.loader_headspace import Headspace, drop_from_page_cache, measure_headspace
from tools.bench.loader_picture import draw_contenders
from tools.bench.loader_s3 import (
    LOCAL,
    NO_SERVER,
    RECEIVED,
    REQUESTS,
    at,
    materialized,
    s3_ratios,
    s3_rows,
)
from tools.bench.loader_size import QUICK, LoaderBench
from tools.bench.loader_trajectories import (
    PYAV_DECODE,
    PYAV_RGB,
    trajectory_contenders,
    trajectory_ratios,
)
from tools.bench.loader_wait import simulate_training
from tools.bench.loader_window_face import FACE, face_contenders
from tools.bench.loader_windows import RGB, TWO_PROCESSES, YUV, plan_quality, window_contenders
from tools.bench.looped_video import CLIP_FRAMES, VideoShape, write_looped
from tools.bench.process_tree import memory_mb, process_tree, spent
from tools.bench.stretch import Stretch, measure_stretches
from tools.cli import build_app

SIZE = (48, 64)
TINY = LoaderBench(
    episodes={H264: 2, H264_GOP30: 2},
    picture=SIZE,
    repetitions=1,
    everyone=False,
    stretches=2,
    packs=2,
    others_skip=1,
    others_packs=2,
    trajectory_episodes=1,
    trajectory_repetitions=1,
    training_steps=2,
    delays_ms=(),
    s3_packs=1,
    s3_repetitions=1,
    starts=1,
    warm_up=False,
)
NAMED = {
    "steps_over_pyav_arrays",
    "steps_over_pyav_decode",
    "window_cpu_ms_h264",
    "window_cpu_ms_h264_gop30",
    "window_samples_per_s_h264",
    "data_wait_share_50ms",
    "first_batch_s",
    "q1",
    "near_duplicates",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    made = record(tmp_path_factory.mktemp("recorded"), H264, episodes=3, size=SIZE)
    save_plan(made.lake, made.windows)
    return made


@pytest.mark.parametrize("coding", [H264, H264_GOP30, AV1], ids=lambda coding: coding.key)
def test_a_looped_file_is_as_good_as_one_recording(coding: Coding, tmp_path: Path) -> None:
    shape = VideoShape(
        height=48, width=64, fps=30, codec=coding.codec, gop=coding.gop, recorder="lerobot"
    )
    frames = CLIP_FRAMES + 2 * coding.gop
    write_looped(tmp_path / "a.mp4", shape, frames, seed=1)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        keys = [p.is_keyframe for p in container.demux(stream) if p.size]
    assert len(keys) == frames
    assert sum(keys) == frames // coding.gop
    with av.open(str(tmp_path / "a.mp4")) as container:
        decoded = [frame.to_ndarray() for frame in container.decode(video=0)]
        shown = len(decoded)
    assert shown == frames
    np.testing.assert_array_equal(decoded[0], decoded[CLIP_FRAMES])
    assert (decoded[0] != decoded[100]).any()


def test_the_same_seed_is_the_same_recording(tmp_path: Path) -> None:
    shape = VideoShape(height=48, width=64, fps=30, codec="libx264", gop=2, recorder="lerobot")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_looped(tmp_path / f"{name}.mp4", shape, CLIP_FRAMES, seed=seed)
    one, again, other = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abc")
    assert one == again != other


def test_order_names_every_window_once(recorded: Recorded) -> None:
    order = planned_order(recorded.windows, recorded.shape, packs=1000)
    lengths = recorded.shape.lengths()
    every = {(e, step) for e, length in enumerate(lengths) for step in range(length)}
    assert len(order) == len(every)
    assert {(episode, step) for episode, step in order.tolist()} == every
    assert len(planned_order(recorded.windows, recorded.shape, packs=2)) == 64


def test_every_contender_delivers_what_it_is_timed_for(recorded: Recorded) -> None:
    contenders = window_contenders(
        recorded, most_skip=3, count=2, stretches=2, yuv=True, processes=True
    )
    contenders |= face_contenders(recorded, skip=1, count=2, workers=False)
    assert [name for name, _ in contenders] == [RGB, YUV, TWO_PROCESSES, FACE]
    for (name, video), runs in take_turns(contenders, repetitions=1).items():
        assert video == "H.264 GOP 2"
        assert len(runs) == (1 if name == FACE else 2)
        for run in runs:
            assert run.samples == (4 if name == TWO_PROCESSES else 2) * 32
        assert runs[0].memory_mb > 50
        assert runs[0].first_batch_s > 0


def test_trajectories_and_plain_loops_show_the_same_frames(recorded: Recorded) -> None:
    ids = sorted(recorded.windows.episodes["episode_id"].to_pylist())[:2]
    from tools.bench.loader_data import plan_trajectories

    plan = plan_trajectories(recorded.lake, ids)
    steps = int(recorded.shape.lengths()[:2].sum())
    for work in trajectory_contenders(recorded, plan, steps, others=True).values():
        work()
    with pytest.raises(RuntimeError, match=f"streamed {steps} of {steps + 1} steps"):
        trajectory_contenders(recorded, plan, steps + 1, others=False)["trajectories, RGB"]()


def test_ratios_are_taken_within_a_round() -> None:
    def timings(*seconds: float) -> list[Timing]:
        return [Timing(wall_s=9.0, cpu_s=cpu_s) for cpu_s in seconds]

    slow_second_round = {
        PYAV_RGB: timings(3.0, 6.0, 3.3), PYAV_DECODE: timings(1.0, 2.0, 1.0),
        "trajectories, RGB": timings(2.0, 4.0, 2.0), "trajectories, YUV": timings(1.25, 2.5, 1.0),
    }  # fmt: skip
    assert trajectory_ratios(slow_second_round) == {
        "steps_over_pyav_arrays": 1.5,
        "steps_over_pyav_decode": 0.8,
        "steps_over_pyav_decode_rgb": 0.5,
    }


def test_bench_fills_the_ratios_that_aims_name(tmp_path: Path) -> None:
    result = bench.measure_loader(TINY)
    assert set(result.ratios) >= NAMED
    assert all(np.isfinite(value) for value in result.ratios.values())
    json.dumps({"rows": result.rows, "tables": result.tables}, allow_nan=False)
    assert len({tuple(row) for row in result.rows}) == 1, "all lines have the same columns"
    peers = [row for row in result.rows if row["video"] == "not installed"]
    assert [row["contender"] for row in peers] == [
        *("LeRobot DataLoader", "lerobot-lancedb", "webdataset, MP4 per episode"),
        *("webdataset, JPEG per step", "Mosaic streaming, MP4 per episode"),
        "Mosaic streaming, JPEG per step",
    ]
    assert result.tables["the same lake from an object store"]
    draw_contenders(result.rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_stretch_counts_what_is_timed_and_nothing_before() -> None:
    done: list[int] = []

    def stream() -> Iterator[int]:
        for size in range(100):
            done.append(size)
            yield size

    first, second = measure_stretches(
        stream, skip=3, count=4, size=int, counters=lambda: {"taken": len(done)}, stretches=2
    )
    assert (first.samples, second.samples) == (3 + 4 + 5 + 6, 7 + 8 + 9 + 10)
    assert first.counted == second.counted == {"taken": 4}
    for skip, count, why in ((100, 1, "0 of 1 timed"), (101, 1, "100 of 101 untimed")):
        with pytest.raises(RuntimeError, match=why):
            measure_stretches(stream, skip=skip, count=count, size=int)


def test_a_process_tree_counts_its_children() -> None:
    before, alone_mb = spent(), memory_mb()
    code = (
        "import sys; held = bytearray(b'1' * 50_000_000); sum(i * i for i in range(1_500_000));"
        " print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        assert child.pid in process_tree()
        living = spent() - before
        assert living.cpu_s > 0.03
        assert living.reads > 0
        assert memory_mb() > alone_mb + 40
        child.stdin.close()
    assert child.pid not in process_tree()
    assert (spent() - before).cpu_s > 0.03, "of a child that was waited for"


@dataclass
class Batch:
    num_spans: int


def test_waiting_is_what_the_trainer_did_not_work() -> None:
    wait = simulate_training(iter([Batch(7)] * 5), step_s=0.0, steps=3)
    assert (wait.steps, wait.samples) == (3, 21)
    assert wait.share <= 1
    ended = simulate_training(iter([Batch(7)] * 3), step_s=0.001, steps=30)
    assert (ended.steps, ended.samples) == (2, 14)
    assert ended.elapsed_s >= 0.002
    assert ended.share < 1
    assert simulate_training(iter([Batch(1)] * 9), step_s=0.0, steps=9, most_s=-1).steps == 0


def stretch(samples: int, wall_s: float, **counted: int) -> Stretch:
    return Stretch(
        samples=samples, wall_s=wall_s, cpu_s=1.0, read_bytes=0, reads=0, memory_mb=1.0,
        first_batch_s=0.1, counted=counted,
    )  # fmt: skip


def test_speed_from_s3_is_told_against_local_disk() -> None:
    far = {REQUESTS: 30, RECEIVED: 1300, "needed_bytes": 1000}
    reads = {
        LOCAL: [stretch(100, 1.0, needed_bytes=1000)] * 3,
        at(20): [stretch(100, 1.25, **far)] * 3,
        materialized(at(20)): [stretch(100, 0.5, **far)] * 3,
    }
    assert s3_ratios(reads) == {
        "s3_over_local_20ms": 0.8,
        "s3_materialized_over_local_20ms": 2.0,
        "bytes_read_over_needed": 1.3,
    }
    del reads[materialized(at(20))]
    local, remote = s3_rows(reads)
    assert (local["requests per sample"], local["bytes read over needed"]) == ("-", "-")
    assert remote["requests per sample"] == 0.3
    assert remote["kB per sample"] == pytest.approx(0.013)
    uncounted = {**reads, at(20): [stretch(100, 1.0, **{REQUESTS: 1, RECEIVED: 1300})] * 3}
    assert s3_ratios(uncounted) == {"s3_over_local_20ms": 1.0}, "nothing is made up"


def test_without_a_server_the_table_says_so(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_s3, "find_s3_program", lambda: None)
    with loader_s3.served(recorded, tmp_path / "s3") as reached:
        assert loader_s3.s3_contenders(recorded, reached, skip=1, count=1) == {}
    assert s3_rows({}) == [{"read from": NO_SERVER}]
    assert s3_ratios({}) == {}


@pytest.mark.s3
def test_the_same_lake_comes_from_s3(recorded: Recorded, tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    with loader_s3.served(recorded, tmp_path / "s3", (0,)) as reached:
        if not reached:
            if os.environ.get("CI"):
                pytest.fail(NO_SERVER)
            pytest.skip(NO_SERVER)
        contenders = loader_s3.s3_contenders(recorded, reached, skip=1, count=4)
        reads = take_turns(contenders, repetitions=1)
    assert list(reads) == [LOCAL, at(0), materialized(at(0))]
    assert [runs[0].samples for runs in reads.values()] == [128, 128, 128]
    assert os.sched_getaffinity(0) == cores
    assert REQUESTS not in reads[LOCAL][0].counted
    assert REQUESTS in reads[at(0)][0].counted
    assert REQUESTS in reads[materialized(at(0))][0].counted


def test_headspace_has_a_line_per_level(recorded: Recorded) -> None:
    short = Headspace(step_s=0.001, steps=3, most_s=5.0, episodes=1)
    result = measure_headspace(recorded.lake, recorded.windows, short, {"again": recorded.lake})
    assert [row["level"] for row in result.rows] == ["synthetic", "cached", "cold", "again"]
    assert result.rows[0]["limited by"] == "memory"
    for row in result.rows:
        assert row["steps per s"] > 0
        assert 0 <= row["waited at 1 ms per step"] <= 1
    assert result.ratios["steps_per_s_cold"] == result.rows[2]["steps per s"]


def test_dropping_from_the_page_cache_changes_no_file(recorded: Recorded) -> None:
    files = {p: p.read_bytes() for p in Path(recorded.lake.uri).rglob("*") if p.is_file()}
    assert drop_from_page_cache(recorded.lake) == sum(map(len, files.values()))
    assert files == {p: p.read_bytes() for p in files}


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["a.lake", "mix"], "--headspace LAKE PLAN"),
        (["--headspace", "a.lake"], "needs a PLAN too"),
        (["--headspace", "--peers", "python"], "leave out --peers"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], match: str) -> None:
    done = CliRunner().invoke(build_app(), ["bench", "loader", *arguments])
    assert match in str(done.exception)


def test_headspace_of_ones_own_lake(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loader_headspace, "QUICK", replace(loader_headspace.QUICK, steps=2, most_s=5.0)
    )
    plan = recorded.windows.plan_hash
    options = ["--headspace", "--quick", "--step-ms", "1", "--json", "-"]
    done = CliRunner().invoke(build_app(), ["bench", "loader", recorded.lake.uri, plan, *options])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["name"] == "loader-headspace"
    assert {"steps_per_s_cached", "data_wait_share_cold"} <= set(document["ratios"])
    assert plan[:12] in document["notes"][0]


def test_peers_reach_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def stand_in(*given: object) -> BenchResult:
        seen.append(given)
        return BenchResult(name="loader", rows=[{"a": 1}], ratios={})

    monkeypatch.setattr(bench, "run", stand_in)
    arguments = ["bench", "loader", "--quick", "--peers", "a/python", "--peers", "b/python"]
    done = CliRunner().invoke(build_app(), [*arguments, "--json", str(tmp_path / "a.json")])
    assert done.exit_code == 0, done.output
    assert seen == [(True, ("a/python", "b/python"))]


@pytest.mark.parametrize("named", [(), ("a/python",)])
def test_peers_are_looked_for_beside_us_too(
    monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(bench, "measure_loader", lambda *given: seen.append(given))
    bench.run(True, named)
    assert seen == [(QUICK, (*named, sys.executable))]


def test_quality_of_a_plan_is_told_beside_its_size(recorded: Recorded) -> None:
    header = recorded.windows.header
    told = plan_quality(header)
    assert told["batches"] == f"{header.num_steps}"
    assert told["run"] == f"{header.run_steps}"
    assert float(told["Q1"]) == pytest.approx(header.quality.shuffle[1], abs=0.005)
