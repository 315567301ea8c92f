"""Replay buffers, as diffusion policy and UMI write them, and with something wrong in them."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import zarr
from imagecodecs.numcodecs import Jpegxl, register_codecs
from numpy.typing import NDArray

from ingest.errors import SourceError
from ingest.formats import detect, discover
from ingest.pipeline import ingest_sources
from ingest.source import EpisodeReading, SourceOptions
from ingest.zarr.container import is_replay_buffer
from ingest.zarr.replay_buffer import ReplayBufferSource
from lake import Lake, read_frames, read_signals, visible_episodes
from tests.ingest.hdf5_files import pictures

_ENDS = (5, 12, 14)


def arrays_of(steps: int = _ENDS[-1]) -> dict[str, NDArray[Any]]:
    """What PushT's buffer holds."""
    rng = np.random.default_rng(0)
    return {
        "action": rng.normal(size=(steps, 2)).astype(np.float32),
        "state": rng.normal(size=(steps, 5)),
        "img": pictures(steps, height=32, width=48),
        "n_contacts": np.arange(steps, dtype=np.int64)[:, None],
    }


def write(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    ends: Any = _ENDS,
    *,
    zarr_format: Literal[2, 3] = 2,
    chunk: int = 4,
    inside: str = "data/",
) -> Path:
    """Write a buffer; into a zip where the path ends so."""
    is_zip = path.suffix == ".zip"
    store: Any = zarr.storage.ZipStore(path, mode="w") if is_zip else str(path)
    group = zarr.create_group(store=store, zarr_format=zarr_format)
    named = {f"{inside}{name}": values for name, values in arrays.items()}
    named[f"{'meta/' if inside else ''}episode_ends"] = np.asarray(ends)
    for name, values in named.items():
        made = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=(min(chunk, len(values)), *values.shape[1:]),
            config={"write_empty_chunks": True},
        )
        made[...] = values
    if is_zip:
        store.close()
    return path


def read_all(path: Path, **options: Any) -> list[EpisodeReading]:
    source = ReplayBufferSource(path, SourceOptions(**options))
    try:
        return [source.read(entry) for entry in source.entries()]
    finally:
        source.close()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["pusht.zarr", "pusht.zarr.zip"])
@pytest.mark.parametrize("inside", ["data/", ""])
def test_every_row_of_every_episode_is_read(
    tmp_path: Path, lake: Lake, name: str, zarr_format: Literal[2, 3], inside: str
) -> None:
    arrays = arrays_of()
    path = write(tmp_path / name, arrays, zarr_format=zarr_format, inside=inside)
    known = detect(path)
    assert known is not None
    assert known.name == "zarr"
    (report,) = ingest_sources([path], lake, options=SourceOptions(fps=10, images="png")).sources
    assert report.written == 3, report
    rows = visible_episodes(lake, ["episode_id", "num_steps", "dataset"]).to_pylist()
    assert {row["dataset"] for row in rows} == {"pusht"}
    by_id = {row["episode_id"].rsplit("/", 1)[1].partition("-")[0]: row for row in rows}
    begins = (0, *_ENDS[:-1])
    for number, (begin, end) in enumerate(zip(begins, _ENDS, strict=True)):
        row = by_id[f"episode_{number}"]
        assert row["num_steps"] == end - begin
        (signals,) = read_signals(lake, [row["address"]], ["action", "state"])
        for feature in ("action", "state"):
            np.testing.assert_array_equal(signals.features[feature], arrays[feature][begin:end])
        frames = read_frames(lake, row["episode_id"], "img", range(end - begin))
        np.testing.assert_array_equal(np.moveaxis(frames, 1, 3), arrays["img"][begin:end])


def test_pictures_as_floats_are_kept_as_the_bytes_that_they_are(tmp_path: Path) -> None:
    arrays = arrays_of()
    seen = arrays["img"].copy()
    path = write(tmp_path / "a.zarr", {**arrays, "img": seen.astype(np.float32)})
    first = read_all(path, fps=10, images="png")[0].episode
    as_bytes = read_all(write(tmp_path / "b.zarr", arrays), fps=10, images="png")[0].episode
    assert first.cameras["img"].payload == as_bytes.cameras["img"].payload
    seen_at = seen.astype(np.float32)
    seen_at[3] += 0.5
    third = read_all(write(tmp_path / "c.zarr", {**arrays, "img": seen_at}), fps=10)
    assert [finding.reason for finding in third[0].findings if finding.severity == "error"] == [
        "pictures-not-bytes"
    ]
    assert "img" in third[1].episode.cameras


def test_pictures_with_the_channels_first_are_turned(tmp_path: Path) -> None:
    arrays = arrays_of()
    turned = {**arrays, "img": np.moveaxis(arrays["img"], 3, 1)}
    first = read_all(write(tmp_path / "a.zarr", turned), fps=10, images="png")[0].episode
    as_usual = read_all(write(tmp_path / "b.zarr", arrays), fps=10, images="png")[0].episode
    assert first.cameras["img"].payload == as_usual.cameras["img"].payload


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_chunks_are_cut_as_the_writer_likes(tmp_path: Path, chunk: int) -> None:
    arrays = arrays_of()
    readings = read_all(write(tmp_path / "a.zarr", arrays, chunk=chunk), fps=10)
    together = np.concatenate([reading.episode.features["state"] for reading in readings])
    np.testing.assert_array_equal(together, arrays["state"])


def test_roles_follow_from_names(tmp_path: Path) -> None:
    steps = 4
    names = {
        "robot0_eef_pos": "state",
        "robot0_gripper_width": "state",
        "robot0_demo_start_pose": "other",
        "keypoint": "other",
    }
    arrays = {name: np.zeros((steps, 3), np.float32) + 1 for name in names}
    (reading,) = read_all(write(tmp_path / "umi.zarr", arrays, (steps,)))
    assert {f.name: f.role for f in reading.episode.spec.features} == names
    assert {finding.reason for finding in reading.findings} == {"no-action", "no-clock"}


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ((5, 5, 14), "episode 1 ends at row 5"),
        ((5, 3), "episode 1 ends at row 3"),
        ((-1, 4), "episode 0 ends at row -1"),
        (((1, 2), (3, 4)), "not a list of whole numbers"),
        ((1.0, 2.0), "not a list of whole numbers"),
    ],
)
def test_ends_that_do_not_ascend_are_refused(tmp_path: Path, ends: Any, why: str) -> None:
    path = write(tmp_path / "a.zarr", arrays_of(), ends)
    with pytest.raises(SourceError, match=why) as raised:
        ReplayBufferSource(path, SourceOptions())
    assert raised.value.reason == "bad-episode-ends"


def test_an_interrupted_writer_loses_only_what_is_not_there(tmp_path: Path) -> None:
    arrays = arrays_of()
    arrays["state"] = arrays["state"][:13]
    readings = read_all(write(tmp_path / "a.zarr", arrays), fps=10)
    lost = [[f for f in r.findings if f.severity == "error"] for r in readings]
    assert [len(each) for each in lost] == [0, 0, 1]
    assert (lost[2][0].stream, lost[2][0].reason) == ("state", "beyond-data")
    assert "13 rows, the episode has rows 12 to 14" in lost[2][0].detail
    assert "action" in readings[2].episode.features


def test_rows_of_no_episode_are_told_and_quarantined(tmp_path: Path, lake: Lake) -> None:
    path = write(tmp_path / "a.zarr", arrays_of(), (5, 12))
    (report,) = ingest_sources([path], lake, options=SourceOptions(fps=10)).sources
    assert (report.written, report.quarantined) == (2, 4)
    rows = lake.dataset("quarantine").to_table().to_pylist()
    assert {row["reason"] for row in rows} == {"rows-without-episode"}
    assert "2 rows behind the last episode end, 12" in rows[0]["detail"]


def test_chunks_that_were_never_written_are_no_pictures(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zarr", arrays_of(), chunk=1)
    (path / "data" / "img" / "6.0.0.0").unlink()
    (path / "data" / "n_contacts" / "6.0").unlink()
    readings = read_all(path, fps=10)
    reasons = [[(f.severity, f.stream, f.reason) for f in r.findings] for r in readings]
    assert reasons[0] == reasons[2] == []
    assert sorted(reasons[1]) == [
        ("error", "img", "partly-written"),
        ("warning", "n_contacts", "chunks-not-stored"),
    ]


def test_a_damaged_chunk_loses_its_stream_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zarr", arrays_of(), chunk=1)
    (path / "data" / "state" / "6.0").write_bytes(b"nothing")
    readings = read_all(path, fps=10)
    (lost,) = (f for f in readings[1].findings if f.severity == "error")
    assert (lost.stream, lost.reason) == ("state", "damaged-stream")
    assert "action" in readings[1].episode.features
    assert "state" in readings[0].episode.features


def test_a_codec_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zarr", arrays_of())
    about = path / "data" / "img" / ".zarray"
    about.write_text(about.read_text().replace('"blosc"', '"imagecodecs_nothing"'))
    readings = read_all(path, fps=10)
    (lost,) = (f for f in readings[0].findings if f.severity == "error")
    assert (lost.stream, lost.reason) == ("img", "unknown-codec")
    assert "headrace[zarr]" in lost.detail


def test_jpeg_xl_as_umi_writes_it(tmp_path: Path) -> None:
    register_codecs(verbose=False)
    seen = pictures(_ENDS[-1], height=32, width=48)
    store = zarr.storage.ZipStore(tmp_path / "dataset.zarr.zip", mode="w")
    group = zarr.create_group(store=store, zarr_format=2)
    made = group.create_array(
        "data/camera0_rgb",
        shape=seen.shape,
        dtype=seen.dtype,
        chunks=(1, *seen.shape[1:]),
        compressors=Jpegxl(lossless=True),
    )
    made[...] = seen
    group.create_array("meta/episode_ends", shape=(3,), dtype="i8", chunks=(3,))[...] = _ENDS
    store.close()
    readings = read_all(tmp_path / "dataset.zarr.zip", images="png")
    assert [r.episode.cameras["camera0_rgb"].index.num_frames for r in readings] == [5, 7, 2]


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_a_zip_cut_short_is_refused_or_not_recognised(tmp_path: Path, keep: float) -> None:
    path = write(tmp_path / "a.zarr.zip", arrays_of())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert not is_replay_buffer(path)
    with pytest.raises(Exception, match=r"a\.zarr\.zip"):
        discover(path)


def test_what_is_no_buffer_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "notes.zip").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "empty.zarr").mkdir()
    assert not is_replay_buffer(tmp_path / "notes.zip")
    assert not is_replay_buffer(tmp_path / "empty.zarr")
    assert not is_replay_buffer(tmp_path / "nothing")


def test_a_copy_has_the_same_keys_and_a_change_has_others(tmp_path: Path) -> None:
    path = write(tmp_path / "one" / "a.zarr", arrays_of())
    shutil.copytree(path, tmp_path / "two" / "a.zarr")

    def keys(folder: str) -> list[str]:
        source = ReplayBufferSource(tmp_path / folder / "a.zarr", SourceOptions())
        return [entry.ingest_key for entry in source.entries()]

    before = keys("one")
    assert before == keys("two")
    (tmp_path / "two" / "a.zarr" / "data" / "action" / "0.0").write_bytes(b"other")
    assert not set(before) & set(keys("two"))
