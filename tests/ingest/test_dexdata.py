"""Dexdata folders, as they are written and as they are when something is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from ingest.dexdata.source import DexdataSource, recognises
from ingest.errors import EpisodeError, IngestError
from ingest.formats import detect
from ingest.pipeline import ingest_sources
from ingest.source import EpisodeReading, SourceOptions
from lake import Lake, read_frames, visible_episodes
from tests.ingest.hdf5_files import jpeg, pictures

Steps = list[dict[str, Any]]
Change = Callable[[Steps], object]


def write_video(path: Path, frames: int) -> None:
    """Frames that tell themselves apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", 20, options={"g": "4", "bf": "0", "crf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for picture in pictures(frames):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))


def steps_of(count: int = 6, *, first: int = 2, stride: int = 1) -> Steps:
    return [
        {
            "images_1": {
                "type": "video",
                "url": "set/video/a.mp4",
                "frame_idx": first + stride * n,
            },
            "state": [0.1 * n, 1.0, -2],
            "prompt": "pick the cup",
            "is_robot": True,
        }
        for n in range(count)
    ]


def write(folder: Path, steps: Steps, *, frames: int = 12, name: str = "episode1") -> Path:
    write_video(folder / "video" / "a.mp4", frames)
    (folder / "jsonl").mkdir(exist_ok=True)
    text = "".join(json.dumps(step) + "\n" for step in steps)
    (folder / "jsonl" / f"{name}.jsonl").write_text(text)
    return folder


def read(folder: Path, **options: Any) -> EpisodeReading:
    source = DexdataSource(folder, SourceOptions(**options))
    return source.read(source.entries()[0])


@pytest.mark.parametrize("stride", [1, 2])
def test_every_step_shows_its_frame(tmp_path: Path, lake: Lake, stride: int) -> None:
    folder = write(tmp_path / "cups", steps_of(stride=stride), frames=14)
    known = detect(folder)
    assert known is not None
    assert known.name == "dexdata"
    (report,) = ingest_sources([folder], lake, options=SourceOptions(fps=20)).sources
    assert report.written == 1, report
    (row,) = visible_episodes(lake, ["episode_id", "num_steps", "dataset"]).to_pylist()
    assert (row["num_steps"], row["dataset"]) == (6, "cups")
    frames = read_frames(lake, row["episode_id"], "images_1", range(6))
    with av.open(str(folder / "video" / "a.mp4")) as file:
        decoded = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    for step, frame in enumerate(frames):
        shown = decoded[2 + stride * step].astype(int)
        difference = np.abs(np.moveaxis(frame, 0, 2).astype(int) - shown)
        assert difference.max() <= 2


def test_numbers_and_texts_are_kept(tmp_path: Path) -> None:
    steps = steps_of()
    steps[4]["prompt"] = "put it down"
    episode = read(write(tmp_path / "a", steps), fps=20).episode
    np.testing.assert_array_equal(episode.features["state"], [s["state"] for s in steps])
    assert episode.instruction == "pick the cup"
    assert list(episode.features["prompt"]) == [step["prompt"] for step in steps]
    assert "action" not in episode.features


def test_pictures_in_files_are_kept_byte_for_byte(tmp_path: Path) -> None:
    steps = steps_of(3)
    seen = [jpeg(picture) for picture in pictures(3)]
    folder = tmp_path / "a"
    for number, (step, data) in enumerate(zip(steps, seen, strict=True)):
        step["images_1"] = {"type": "image", "url": f"pictures/{number}.jpg"}
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        (folder / "pictures" / f"{number}.jpg").write_bytes(data)
    steps.append({**steps[2], "images_1": None})
    video = read(write(folder, steps), fps=20).episode.cameras["images_1"]
    assert bytes(video.payload) == b"".join(seen)
    assert video.index.step_to_frame.tolist() == [0, 1, 2, -1]


def _set(key: str, value: object, step: int = 1) -> Change:
    return lambda steps: steps[step].__setitem__(key, value)


def _picture(**about: object) -> Change:
    return lambda steps: steps[1]["images_1"].update(about)


@pytest.mark.parametrize(
    ("change", "stream", "reason"),
    [
        (_set("state", [1.0, 2.0]), "state", "not-numbers"),
        (_set("state", [1.0, 2.0, "x"]), "state", "not-numbers"),
        (_set("state", None), "state", "not-numbers"),
        (_set("prompt", 5), "prompt", "not-text"),
        (_set("images_1", "a.mp4"), "images_1", "bad-picture-reference"),
        (_picture(frame_idx=-1), "images_1", "bad-picture-reference"),
        (_picture(frame_idx="3"), "images_1", "bad-picture-reference"),
        (_picture(frame_idx=99), "images_1", "too-few-frames"),
        (_picture(url="video/b.mp4"), "images_1", "several-videos"),
        (_picture(type="image"), "images_1", "mixed-pictures"),
    ],
)
def test_a_stream_that_is_wrong_is_left_out_and_told(
    tmp_path: Path, change: Change, stream: str, reason: str
) -> None:
    steps = steps_of()
    change(steps)
    reading = read(write(tmp_path / "a", steps), fps=20)
    (lost,) = (found for found in reading.findings if found.severity == "error")
    assert (lost.stream, lost.reason) == (stream, reason)
    assert reading.episode.num_steps == 6


@pytest.mark.parametrize("url", ["../secret.mp4", "/etc/passwd", "video/../../secret.mp4"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, url: str) -> None:
    steps = steps_of()
    for step in steps:
        step["images_1"]["url"] = url
    write_video(tmp_path / "secret.mp4", 20)
    reading = read(write(tmp_path / "a", steps), fps=20)
    (lost,) = (found for found in reading.findings if found.severity == "error")
    assert lost.reason == "missing-video"


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.6, 0.95])
def test_a_file_cut_short_keeps_its_whole_lines(tmp_path: Path, keep: float) -> None:
    folder = write(tmp_path / "a", steps_of())
    path = folder / "jsonl" / "episode1.jsonl"
    data = path.read_bytes()[: int(path.stat().st_size * keep)]
    path.write_bytes(data)
    whole = data.count(b"\n")
    if not whole:
        with pytest.raises(EpisodeError, match=r"episode1\.jsonl: line 1 is no JSON"):
            read(folder, fps=20)
        return
    reading = read(folder, fps=20)
    assert reading.episode.num_steps == whole
    (lost,) = (found for found in reading.findings if found.severity == "error")
    assert (lost.reason, lost.detail) == (
        "cut-short",
        f"line {whole + 1} is no JSON object: what follows it is lost",
    )


def test_a_chat_is_no_episode_and_stops_no_other(tmp_path: Path, lake: Lake) -> None:
    chat = [{**step, "is_robot": False} for step in steps_of()]
    write(tmp_path / "a", chat)
    write(tmp_path / "a", steps_of(), name="episode2")
    (report,) = ingest_sources([tmp_path / "a"], lake, options=SourceOptions(fps=20)).sources
    assert (report.written, report.quarantined) == (1, 1)
    (row,) = lake.dataset("quarantine").to_table().to_pylist()
    assert (row["episode"], row["reason"]) == ("episode1", "not-a-robot")


def test_other_json_lines_are_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "jsonl").mkdir()
    (tmp_path / "jsonl" / "tasks.jsonl").write_text('{"task_index": 0, "task": "x"}\n')
    assert not recognises(tmp_path)
    with pytest.raises(IngestError):
        DexdataSource(tmp_path / "jsonl" / "nothing", SourceOptions())
