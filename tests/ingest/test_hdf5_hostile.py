"""HDF5 files with anything in them: each ends in episodes, or in a reason."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ingest.errors import EpisodeError, IngestError, SourceError, UnknownFormatError
from ingest.formats import discover
from ingest.hdf5.aloha import AlohaSource
from ingest.hdf5.files import datasets_below
from ingest.hdf5.robomimic import RobomimicSource, recognises
from ingest.pipeline import ingest_sources
from ingest.source import EpisodeReading, SourceOptions
from lake import Lake, visible_episodes
from tests.ingest.hdf5_files import write_aloha, write_robomimic

Change = Callable[[Any], None]


def _aloha(folder: Path, change: Change) -> EpisodeReading:
    write_aloha(folder / "a.hdf5", cameras=(), steps=6)
    with h5py.File(folder / "a.hdf5", "r+") as file:
        change(file)
    source = AlohaSource(folder, SourceOptions())
    return source.read(source.entries()[0])


def _robomimic(path: Path, change: Change) -> RobomimicSource:
    write_robomimic(path, demos=2)
    with h5py.File(path, "r+") as file:
        change(file)
    assert recognises(path)
    return RobomimicSource(path, SourceOptions())


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "?", "u2", ">f4", ">i8"])
def test_every_number_keeps_its_type(tmp_path: Path, dtype: str) -> None:
    values = np.arange(12).reshape(6, 2).astype(dtype)
    reading = _aloha(tmp_path, lambda file: file.__setitem__("observations/x", values))
    native = np.dtype(dtype).newbyteorder("=")
    assert reading.episode.features["x"].dtype == native
    np.testing.assert_array_equal(reading.episode.features["x"], values)


def _reserved(file: Any) -> None:
    file.create_dataset("observations/x", shape=(6, 10**6, 10**6), dtype="f8", chunks=(1, 64, 64))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: f.__setitem__("observations/x", h5py.Empty("f4")), "length-differs"),
        (lambda f: f.__setitem__("observations/images/x", h5py.Empty("u1")), "length-differs"),
        (lambda f: f.__setitem__("observations/x", 3.0), "length-differs"),
        (lambda f: f.__setitem__("observations/x", np.zeros(6, "c8")), "unsupported-type"),
        (lambda f: f.__setitem__("observations/x", np.zeros(6, "g")), "unsupported-type"),
        (lambda f: f.__setitem__("observations/x", np.zeros(6, [("a", "f4")])), "unsupported-type"),
        (_reserved, "never-written"),
    ],
)
def test_a_stream_that_cannot_be_kept_is_left_out_alone(
    tmp_path: Path, change: Change, reason: str
) -> None:
    reading = _aloha(tmp_path, change)
    assert set(reading.episode.features) == {"state", "qvel", "effort", "action"}
    [error] = [f for f in reading.findings if f.severity == "error"]
    assert (error.reason, error.stream) == (reason, "x")


def test_rows_that_were_only_reserved_are_not_zeros(tmp_path: Path) -> None:
    reading = _aloha(
        tmp_path, lambda file: file.create_dataset("observations/late", shape=(6, 3), dtype="f4")
    )
    assert "late" not in reading.episode.features
    assert "never-written" in {finding.reason for finding in reading.findings}


def test_chunks_that_were_never_written_are_not_zeros(tmp_path: Path) -> None:
    def stop_half_way(file: Any) -> None:
        for name, shape in (
            ("observations/late", (6, 3)),
            ("observations/images/top", (6, 8, 8, 3)),
        ):
            stored = file.create_dataset(name, shape=shape, dtype="u1", chunks=(1, *shape[1:]))
            stored[:4] = 7
            whole = file.create_dataset(f"{name}_whole", shape=shape, dtype="u1", chunks=shape)
            whole[:4] = 7  # in one chunk, so the rest of it is written too

    reading = _aloha(tmp_path, stop_half_way)
    left_out = {f.stream: f.reason for f in reading.findings if f.severity == "error"}
    assert left_out == {"late": "partly-written", "top": "partly-written"}
    assert "late_whole" in reading.episode.features
    assert set(reading.episode.cameras) == {"top_whole"}


def test_an_episode_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    def stop_half_way(file: Any) -> None:
        del file["observations"], file["action"]
        file.create_group("observations")
        stored = file.create_dataset("action", shape=(6, 3), dtype="f4", chunks=(1, 3))
        stored[:4] = 7

    with pytest.raises(EpisodeError, match="partly-written") as error:
        _aloha(tmp_path, stop_half_way)
    assert error.value.reason == "nothing-left"


def test_loops_of_links_end(tmp_path: Path) -> None:
    def link(file: Any) -> None:
        file["observations/itself"] = file["observations"]
        file["observations/top"] = h5py.SoftLink("/")
        file["observations/gone"] = h5py.SoftLink("/nowhere")
        file["observations/elsewhere"] = h5py.ExternalLink("gone.hdf5", "/x")

    reading = _aloha(tmp_path, link)
    assert set(reading.episode.features) == {"state", "qvel", "effort", "action"}
    broken = [f.stream for f in reading.findings if f.reason == "broken-link"]
    assert broken == ["observations/elsewhere", "observations/gone"]


def test_groups_nested_deeper_than_python_recurses(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "deep.hdf5", "w") as file:
        group = file
        for _ in range(1200):
            group = group.create_group("g")
        group["x"] = 1
        [(path, _)] = datasets_below(file, [])
    assert path.count("/") == 1200


def test_text_that_is_not_unicode_becomes_text(tmp_path: Path) -> None:
    def say(file: Any) -> None:
        utf8 = h5py.string_dtype("utf-8")
        file.attrs.create("task", b"bad\xff", dtype=utf8)
        file.attrs["instruction"] = np.bytes_(b"\xff pick")

    episode = _aloha(tmp_path, say).episode
    assert (episode.task, episode.instruction) == (r"bad\udcff", "\ufffd pick")


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 1e300, float("nan"), -50.0])
def test_a_rate_that_is_none_is_not_used(tmp_path: Path, rate: float) -> None:
    reading = _aloha(tmp_path, lambda file: file.attrs.__setitem__("fps", rate))
    assert reading.episode.fps == 50.0
    assert np.diff(reading.episode.timestamps_ns).tolist() == [20_000_000] * 5


@pytest.mark.parametrize("fps", [0.0, 1e-300, float("inf"), float("nan")])
def test_a_rate_of_the_users_that_is_none_is_refused(fps: float) -> None:
    with pytest.raises(IngestError, match="steps/s: give one of"):
        SourceOptions(fps=fps)


def test_files_of_one_stem_are_two_episodes(tmp_path: Path, lake: Lake) -> None:
    for number, name in enumerate(("e.h5", "e.hdf5", "f.hdf5")):
        write_aloha(tmp_path / name, cameras=(), seed=number)
    report = ingest_sources([tmp_path], lake)
    assert sum(source.written for source in report.sources) == 3
    locators = visible_episodes(lake, ["locator"])["locator"].to_pylist()
    assert sorted(locators) == ["e.h5", "e.hdf5", "f"]


def test_recordings_in_subfolders_are_told(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write_aloha(tmp_path / "a.hdf5", cameras=())
    write_aloha(tmp_path / "more/b.hdf5", cameras=())
    [finding] = AlohaSource(tmp_path, SourceOptions()).findings()
    assert (finding.reason, finding.where) == ("files-in-subfolders", "more/b.hdf5")


def test_file_names_of_any_bytes(tmp_path: Path, lake: Lake) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xfe [x] '\""))
    folder.mkdir()
    write_aloha(tmp_path / "a.hdf5", cameras=())
    (tmp_path / "a.hdf5").rename(folder / os.fsdecode(b"e\xff.hdf5"))
    ingest_sources([folder], lake)
    [row] = visible_episodes(lake, ["dataset", "source_files"]).to_pylist()
    assert (row["dataset"], row["source_files"]) == ("f\\udcfe [x] '\"", [r"e\udcff.hdf5"])


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f["data"].__setitem__("a_link", h5py.SoftLink("/nowhere")),
        lambda f: f["data"].__setitem__("a_number", 5),
        lambda f: f.__setitem__("mask/odd", h5py.Empty("S3")),
        lambda f: f["data"].attrs.__setitem__("env_args", "[" * 20_000),
        lambda f: f["data"].attrs.__setitem__(
            "env_args", '{"env_name": {"a": 1}, "env_kwargs": {"robots": [1], "control_freq": []}}'
        ),
    ],
)
def test_what_lies_beside_the_episodes_does_no_harm(
    tmp_path: Path, lake: Lake, change: Change
) -> None:
    _robomimic(tmp_path / "r.hdf5", change).close()
    [source] = ingest_sources([tmp_path / "r.hdf5"], lake).sources
    assert (source.written, source.quarantined) == (2, 0)


def test_a_lost_mask_costs_its_tags_only(tmp_path: Path, lake: Lake) -> None:
    _robomimic(
        tmp_path / "r.hdf5", lambda f: f.__setitem__("mask/gone", h5py.SoftLink("/nowhere"))
    ).close()
    [counts] = ingest_sources([tmp_path / "r.hdf5"], lake).sources
    assert (counts.written, counts.quarantined) == (2, 1)
    [row] = lake.latest("quarantine").to_table().to_pylist()
    assert (row["reason"], row["episode"]) == ("lost-mask", "")


@pytest.mark.parametrize(
    "actions", [3.0, h5py.Empty("f4"), np.zeros((0, 7))], ids=["scalar", "null", "no rows"]
)
def test_an_episode_without_actions_is_refused_alone(
    tmp_path: Path, lake: Lake, actions: object
) -> None:
    source = _robomimic(
        tmp_path / "r.hdf5", lambda f: f.__setitem__("data/demo_x/actions", actions)
    )
    source.close()
    [counts] = ingest_sources([tmp_path / "r.hdf5"], lake).sources
    assert (counts.written, counts.quarantined) == (2, 1)


def test_more_steps_than_anybody_records(tmp_path: Path) -> None:
    def reserve(file: Any) -> None:
        file.create_dataset("data/demo_x/actions", shape=(10**12, 7), dtype="f8", chunks=(64, 7))

    source = _robomimic(tmp_path / "r.hdf5", reserve)
    with pytest.raises(EpisodeError, match="1000000000000 steps") as raised:
        source.read(source.entries()[-1])
    source.close()
    assert raised.value.reason == "too-many-steps"


def test_names_that_differ_in_foreign_characters_only(tmp_path: Path) -> None:
    def add(file: Any) -> None:
        for name in ("a-b", "a_b", "A b", "日本", "中国"):
            file[f"data/demo_0/obs/{name}"] = np.zeros((4, 1))

    source = _robomimic(tmp_path / "r.hdf5", add)
    spec = source.read(source.entries()[0]).episode.spec
    source.close()
    names = {feature.source_name: feature.name for feature in spec.features}
    assert len(set(names.values())) == len(names)
    assert {names[f"obs/{name}"] for name in ("a-b", "a_b", "A b")} == {
        "obs_a_b",
        "obs_a_b_2",
        "obs_a_b_3",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"noise" * 99, "not an HDF5 file"), (None, "damaged or cut short")],
)
def test_a_damaged_file_alone_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "a.hdf5"
    write_aloha(path, cameras=())
    path.write_bytes(path.read_bytes()[:3000] if content is None else content)
    for given in (tmp_path, path):
        with pytest.raises(UnknownFormatError, match=rf"a\.hdf5: .*{message}"):
            discover(given)


@pytest.mark.parametrize("layout", ["aloha", "robomimic"])
def test_flipped_bytes_end_in_a_reason(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "a.hdf5"
    if layout == "aloha":
        write_aloha(path, steps=3, compress=True)
    else:
        write_robomimic(path, demos=2, masks={"train": ("demo_0",)})
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    outcomes: set[type] = set()
    for _ in range(60):
        broken = bytearray(whole)
        # Structure lies in the first kilobytes of each object; pictures and numbers take any byte.
        for at in random.integers(0, len(broken), 40):
            broken[at] ^= 1 << random.integers(8)
        path.write_bytes(broken)
        try:
            for found in discover(path).sources:
                source = found.format.open(path, SourceOptions())
                try:
                    for entry in source.entries():
                        try:
                            outcomes.add(type(source.read(entry)))
                        except EpisodeError as error:
                            outcomes.add(type(error))
                finally:
                    source.close()
        except (UnknownFormatError, SourceError) as error:
            outcomes.add(type(error))
    assert EpisodeReading in outcomes
