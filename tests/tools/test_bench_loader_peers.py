"""Peers are asked the same, run in interpreters of their own, and are never left out silently."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tools.bench.loader_data import H264, H264_GOP30, Recorded, planned_order, record
from tools.bench.loader_peers import (
    PEERS,
    Peer,
    PeerContender,
    PeerError,
    find_interpreter,
    peer_contenders,
    run_peer,
    shuffle_of,
)
from tools.bench.loader_window_face import face_contenders
from tools.bench.stretch import Stretch
from tools.peers.episode_files import action_chunk, decode, episodes
from tools.peers.job import PeerJob, PeerRun, time_batches
from tools.peers.window_stream import shuffled, windows

SIZE = (48, 64)
JOB = PeerJob(
    dataset="nowhere", order=[(1, 2), (0, 0), (1, 0), (0, 4)], lengths=[5, 3], fps=30,
    batch=2, chunk=4, workers=0, skip=1, count=1,
)  # fmt: skip


@pytest.fixture(scope="module", params=[H264, H264_GOP30], ids=lambda coding: coding.key)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("recorded"), request.param, episodes=3, size=SIZE)


def test_samples_are_rows_of_the_dataset() -> None:
    assert JOB.indices() == [7, 0, 5, 4]


def test_a_run_crosses_as_json_and_knows_what_came() -> None:
    run = time_batches(
        JOB,
        lambda: iter([([1, 0], [2, 0]), ([1, 0], [0, 4])]),
        samples=lambda batch: batch,
        library="stand-in 1.0",
        import_s=0.1,
        open_s=0.2,
    )
    assert run.delivered == JOB.order
    assert run.stretch.samples == 2
    assert PeerRun.from_message(run.to_message()) == run


def test_a_peer_runs_in_its_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the entry point that peers have, with a module that stands in for one."""
    root = tmp_path / "checkout"
    (root / "tools").mkdir(parents=True)
    here = Path(__file__).parents[2] / "tools"
    for part in ("bench", "peers"):
        (root / "tools" / part).mkdir()
        for file in (here / part).glob("*.py"):
            (root / "tools" / part / file.name).write_text(file.read_text())
    (root / "tools/__init__.py").write_text("")
    (root / "tools/peers/stand_in.py").write_text(
        "from tools.peers.job import PeerJob, time_batches\n"
        "def run(raw):\n"
        "    job = PeerJob(**raw)\n"
        "    print('a library that prints')\n"
        "    episodes, steps = zip(*job.order)\n"
        "    batches = [(episodes[:2], steps[:2]), (episodes[2:], steps[2:])]\n"
        "    return time_batches(job, lambda: iter(batches), samples=lambda b: b,\n"
        "        library='stand-in 1.0', import_s=0.0, open_s=0.0).to_message()\n"
    )
    (root / "tools/peers/failing.py").write_text(
        "def run(raw):\n    raise OSError('no such disk')\n"
    )
    (root / "tools/peers/missing.py").write_text("import no_such_library\n")
    monkeypatch.setattr("tools.bench.loader_peers._RUN", root / "tools/peers/run.py")
    run = run_peer(sys.executable, "stand_in", JOB)
    assert run.library == "stand-in 1.0"
    assert run.delivered == JOB.order
    with pytest.raises(PeerError, match="no such disk"):
        run_peer(sys.executable, "failing", JOB)
    with pytest.raises(PeerError, match="no module no_such_library"):
        run_peer(sys.executable, "missing", JOB)


def test_an_interpreter_is_found_by_what_its_environment_has() -> None:
    here = Peer(key="a", label="a", script="a", library="numpy")
    nowhere = Peer(key="b", label="b", script="b", library="no_such_library")
    assert find_interpreter(here, [sys.executable]) == sys.executable
    assert find_interpreter(nowhere, [sys.executable]) is None
    assert find_interpreter(here, []) is None
    with pytest.raises(PeerError, match=r"--peers /no/python: .*README"):
        find_interpreter(here, ["/no/python"])


def test_peers_that_are_absent_are_told(recorded: Recorded, tmp_path: Path) -> None:
    contenders, absent = peer_contenders([recorded], [], tmp_path, skip=1, count=1)
    assert contenders == []
    assert absent == list(PEERS)
    assert len({peer.key for peer in PEERS}) == len(PEERS)
    for peer in PEERS:
        assert (Path(__file__).parents[2] / f"tools/peers/{peer.script}.py").exists()


def stretch(cpu_s: float) -> Stretch:
    return Stretch(
        samples=100, wall_s=2.0, cpu_s=cpu_s, read_bytes=0, reads=0, memory_mb=1.0,
        first_batch_s=0.5,
    )  # fmt: skip


def test_ratios_are_named_after_peer_and_coding(recorded: Recorded) -> None:
    delivered = [
        (e, s) for e, s in planned_order(recorded.windows, recorded.shape, packs=2).tolist()
    ]
    runs = [
        PeerRun(
            library="lerobot 9.9", import_s=1.0, open_s=1.0, stretch=stretch(cpu),
            delivered=delivered,
        )
        for cpu in (0.7, 0.8, 1.5)
    ]  # fmt: skip
    key = recorded.coding.key
    alone = PeerContender(peer=PEERS[0], interpreter="python", recorded=recorded, job=JOB)
    assert alone.ratios(runs) == {f"lerobot_window_cpu_ms_{key}": 8.0}
    assert alone.row(runs)["contender"] == "LeRobot DataLoader (9.9)"
    two = PeerContender(
        peer=PEERS[0],
        interpreter="python",
        recorded=recorded,
        job=PeerJob(**{**vars(JOB), "workers": 2}),
    )
    assert two.ratios(runs) == {
        f"lerobot_window_samples_per_s_{key}": 50.0,
        "lerobot_first_batch_s": 0.5,
    }
    assert two.key == ("LeRobot DataLoader, 2 workers", recorded.coding.label)


def test_shuffle_is_judged_by_what_came(recorded: Recorded) -> None:
    def of(delivered: list[tuple[int, int]]) -> dict[str, object]:
        run = PeerRun(
            library="a 1", import_s=0.0, open_s=0.0, stretch=stretch(1.0), delivered=delivered
        )
        return shuffle_of(recorded, run)

    in_a_row = of([(0, step % 40) for step in range(64)])
    assert float(str(in_a_row["Q1"])) < 0.5
    assert in_a_row["near duplicates"] == "1.000"
    assert in_a_row["Q16"] == "-"
    lengths = recorded.shape.lengths()
    every = [(e, s) for e in range(3) for s in range(lengths[e])]
    drawn = [every[at] for at in np.random.default_rng(1).permutation(len(every))[:512]]
    uniform = of(drawn)
    assert float(str(uniform["Q1"])) == pytest.approx(1.0, abs=0.1)
    assert float(str(uniform["Q16"])) == pytest.approx(1.0, abs=0.1)


def test_episodes_as_mp4_show_the_frames_of_the_dataset(recorded: Recorded) -> None:
    from loader.windows.window import Window

    window = Window(recorded.lake, image_dtype="uint8")
    at = 0
    for number, episode in enumerate(episodes(recorded.root)):
        steps = int(recorded.shape.lengths()[number])
        assert episode.episode == number
        assert len(episode.state) == len(episode.action) == steps
        for camera, video in episode.videos.items():
            shown = list(decode(video, episode.first[camera], steps))
            assert len(shown) == steps
            for step in (0, 1, steps // 2, steps - 1):
                sample = window[at + step]
                picture = sample[camera].numpy().transpose(1, 2, 0).astype(np.int16)
                # The scalers differ by rounding; another frame differs by far more.
                assert np.abs(picture - shown[step].astype(np.int16)).mean() < 1.5
                np.testing.assert_array_equal(sample["observation.state"], episode.state[step])
        at += steps
    assert number == 2


def test_windows_of_an_episode_come_in_order_and_a_buffer_shuffles_them(recorded: Recorded) -> None:
    torch = pytest.importorskip("torch")
    episode = next(iter(episodes(recorded.root)))
    videos = {name: (video, episode.first[name]) for name, video in episode.videos.items()}
    made = list(windows(0, episode.state, episode.action, videos, 50))
    assert [one["frame_index"] for one in made] == list(range(len(episode.state)))
    np.testing.assert_array_equal(made[3]["action"], action_chunk(episode.action, 3, 50))
    assert made[-1]["action"].shape == (50, episode.action.shape[1])
    assert made[0]["observation.images.top"].dtype == torch.uint8
    order = [one["frame_index"] for one in shuffled(iter(made), 16, 0)]
    assert sorted(order) == list(range(len(made)))
    assert order != sorted(order)
    assert all(at <= place + 16 for place, at in enumerate(order))


def test_window_face_reads_the_samples_of_the_plan(recorded: Recorded) -> None:
    [run] = face_contenders(recorded, skip=1, count=1, workers=False).values()
    assert [stretch.samples for stretch in run()] == [32]
