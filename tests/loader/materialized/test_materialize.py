"""Writing materialised packs: complete or resumable, whoever writes, and named where damaged."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lake import Lake, open_lake
from lake.errors import CorruptDataError, LakeError
from loader import LoaderError, PackLoader, WorkerDiedError
from loader.fetch.plan_rows import PlanRows
from loader.materialized.chunk import ChunkWriter
from loader.materialized.materialize import materialize
from loader.materialized.pack_set import MaterializedSet, list_sets, remove_set, set_uri
from loader.materialized.report import report_of
from loader.materialized.settings import MaterializedSettings
from loader.pack_loader import Process
from packing.errors import PlanError
from packing.plan import Plan
from packing.plan_store import save_plan
from tests.loader import scenes

_INLINE: dict[str, Any] = {"process": "inline", "framework": "numpy"}
COPY = MaterializedSettings()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a saved plan; never written to."""
    lake = scenes.scene_lake(tmp_path_factory.mktemp("materialize"))
    save_plan(lake, scenes.scene_plan(lake), "mix")
    return lake


@pytest.fixture(scope="module")
def plan(base: Lake) -> Plan:
    return scenes.scene_plan(base)


@pytest.fixture
def lake(base: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(base.uri, tmp_path / "x.lake")
    return open_lake(tmp_path / "x.lake")


@pytest.fixture(scope="module")
def whole(base: Lake, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """All rows of the complete set, written in one go."""
    folder = tmp_path_factory.mktemp("whole") / "x.lake"
    shutil.copytree(base.uri, folder)
    return rows(materialize(open_lake(folder), plan, workers=0))


def rows(target: MaterializedSet) -> pa.Table:
    return target.dataset.to_table().combine_chunks()


def stopped_after(packs: int) -> Callable[[int, int, int], None]:
    def progress(done: int, _total: int, _size: int) -> None:
        if done >= packs:
            raise KeyboardInterrupt

    return progress


def test_rows_are_the_packs_of_the_plan(plan: Plan, whole: pa.Table) -> None:
    assert whole["pack"].to_pylist() == list(range(plan.packs.num_rows))
    assert whole["spans"].to_pylist() == [len(ids) for ids in plan.packs["span_id"].to_pylist()]
    assert whole["pictures"].to_pylist() == [sum(n) for n in plan.packs["images"].to_pylist()]
    assert whole["data_bytes"].to_pylist() == [len(data) for data in whole["data"].to_pylist()]


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_processes_gives_the_same_rows(
    lake: Lake, plan: Plan, whole: pa.Table, workers: int
) -> None:
    seen: list[tuple[int, int, int]] = []
    target = materialize(
        lake, plan, workers=workers, chunk_packs=4, on_progress=lambda *told: seen.append(told)
    )
    assert rows(target).equals(whole)
    assert seen[0] == (0, plan.packs.num_rows, 0)
    assert seen[-1] == (plan.packs.num_rows,) * 2 + (sum(whole["data_bytes"].to_pylist()),)
    assert [told[0] for told in seen] == list(range(plan.packs.num_rows + 1))


def test_large_chunks_become_several_files(
    lake: Lake, plan: Plan, whole: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loader.materialized.chunk._FILE_BYTES", 100_000)
    target = materialize(lake, plan, workers=0)
    assert rows(target).equals(whole)
    held = [
        sum(whole["data_bytes"].slice(at, count).to_pylist())
        for at, count in _places([f.physical_rows for f in target.dataset.get_fragments()])
    ]
    largest = max(whole["data_bytes"].to_pylist())
    assert len(held) > 5
    assert all(100_000 <= size < 100_000 + largest for size in held[:-1])


def _places(counts: list[int]) -> list[tuple[int, int]]:
    return [(sum(counts[:number]), count) for number, count in enumerate(counts)]


def test_what_was_stopped_goes_on_behind_what_is_there(
    lake: Lake, plan: Plan, whole: pa.Table
) -> None:
    for packs in (11, 23):
        with pytest.raises(KeyboardInterrupt):
            materialize(lake, plan, workers=0, chunk_packs=5, on_progress=stopped_after(packs))
        target = MaterializedSet.open(lake, plan.header, "copy")
        assert target.packs == packs // 5 * 5
        assert rows(target).equals(whole.slice(0, target.packs))
        with pytest.raises(
            LoaderError, match=rf"holds {target.packs} of the plan's 36 packs; `hea"
        ):
            PackLoader(lake, plan, materialized=True)
        assert [(s.name, s.packs, s.num_packs) for s in list_sets(lake, plan.plan_hash)] == [
            ("copy", target.packs, 36)
        ]
    assert rows(materialize(lake, plan, workers=0, chunk_packs=5)).equals(whole)


def test_a_complete_set_is_left_as_it_is(lake: Lake, plan: Plan) -> None:
    version = materialize(lake, plan, workers=0).dataset.version
    told: list[tuple[int, int, int]] = []
    again = materialize(lake, plan, on_progress=lambda *figures: told.append(figures))
    assert (again.dataset.version, told) == (version, [])


def test_files_of_the_dead_go_with_the_last_commit(lake: Lake, plan: Plan) -> None:
    with pytest.raises(KeyboardInterrupt):
        materialize(lake, plan, workers=0, chunk_packs=5, on_progress=stopped_after(12))
    target = MaterializedSet.open(lake, plan.header, "copy")
    _chunk(target, plan, 10, 15)
    done = materialize(lake, plan, workers=0, chunk_packs=5)
    files = {file.name for file in (Path(done.uri) / "data").iterdir()}
    assert files == {f.metadata.files[0].path for f in done.dataset.get_fragments()}
    assert len(list((Path(done.uri) / "_versions").glob("*.manifest"))) == 1


def _chunk(target: MaterializedSet, plan: Plan, first: int, stop: int) -> list[Any]:
    writer = ChunkWriter(target=target, plan=plan, rows=PlanRows(plan))
    return writer.write(first, stop, lambda _size: None)


def test_of_two_writers_one_adds_the_next_rows(lake: Lake, plan: Plan, whole: pa.Table) -> None:
    mine = MaterializedSet.create(lake, plan.header, COPY)
    theirs = MaterializedSet.create(lake, plan.header, COPY)
    written = [_chunk(target, plan, 0, 6) for target in (mine, theirs)]
    assert theirs.commit(written[1])
    assert not mine.commit(written[0])
    assert (mine.packs, theirs.packs) == (6, 6)
    assert rows(materialize(lake, plan, workers=0, chunk_packs=4)).equals(whole)


def test_racing_writers_of_different_chunks_join(lake: Lake, plan: Plan, whole: pa.Table) -> None:
    barrier = threading.Barrier(3)
    errors: list[BaseException] = []

    def write(chunk_packs: int) -> None:
        try:
            mine = open_lake(lake.uri)
            barrier.wait()
            assert rows(materialize(mine, plan, workers=0, chunk_packs=chunk_packs)).equals(whole)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in (2, 3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_commit_whose_reply_got_lost_is_not_repeated(
    lake: Lake, plan: Plan, whole: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    MaterializedSet.create(lake, plan.header, COPY)
    real, lost = lance.LanceDataset.commit, 0

    def reply_lost(*args: Any, **kwargs: Any) -> Any:
        nonlocal lost
        lost += 1
        real(*args, **kwargs)
        raise OSError("connection reset")

    monkeypatch.setattr(lance.LanceDataset, "commit", reply_lost)
    assert rows(materialize(lake, plan, workers=0, chunk_packs=9)).equals(whole)
    assert lost == 4


def test_a_store_that_refuses_commits_is_an_error(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    MaterializedSet.create(lake, plan.header, COPY)

    def refused(*_args: Any, **_kwargs: Any) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(lance.LanceDataset, "commit", refused)
    with pytest.raises(LakeError, match="commit materialised packs: disk full"):
        materialize(lake, plan, workers=0)


def test_many_chunks_need_few_commits(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, commits = MaterializedSet.commit, []
    monkeypatch.setattr("loader.materialized.materialize._CHUNKS_PER_COMMIT", 0.5)

    def counted(self: MaterializedSet, fragments: list[Any]) -> bool:
        commits.append(len(fragments))
        return real(self, fragments)

    monkeypatch.setattr(MaterializedSet, "commit", counted)
    materialize(lake, plan, workers=0, chunk_packs=1)
    assert sum(commits) == plan.packs.num_rows
    assert commits == [1, 1, 1, 2, 3, 4, 6, 9, 9]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("settings", [COPY, MaterializedSettings(codec="png")])
def test_a_damaged_episode_is_named_and_what_is_there_stays(
    lake: Lake, plan: Plan, settings: MaterializedSettings, workers: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        materialize(lake, plan, settings, workers=0, chunk_packs=1, on_progress=stopped_after(2))
    payload = bytes(scenes.scene_episode(5).cameras["top"].payload)
    _damage(Path(lake.uri) / "trajectories.lance", payload[-60:])
    with pytest.raises(CorruptDataError, match=r"span \d+, episode synthetic/episode_000005.*top"):
        materialize(lake, plan, settings, workers=workers, chunk_packs=36)
    assert MaterializedSet.open(lake, plan.header, settings.name).packs == 1


def test_a_process_that_dies_is_told_of(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loader.materialized.process_pool._MODULE", "loader.no_such_module")
    with pytest.raises(WorkerDiedError, match=r"materialising process ended .*no_such_module"):
        materialize(lake, plan, workers=1)


def test_what_cannot_be_materialised(lake: Lake, plan: Plan) -> None:
    with pytest.raises(PlanError, match="no plan"):
        materialize(lake, scenes.scene_plan(lake, seed=9))
    with pytest.raises(LakeError, match="pinned"):
        materialize(lake.at(lake.versions()), plan)
    with pytest.raises(LoaderError, match="workers=-1"):
        materialize(lake, plan, workers=-1)


@pytest.mark.parametrize("process", ["inline", "child"])
def test_a_flipped_bit_is_named_with_its_file(lake: Lake, plan: Plan, process: Process) -> None:
    target = materialize(lake, plan, workers=0, chunk_packs=20)
    _damage(Path(target.uri), rows(target)["data"][25].as_py())
    with (
        PackLoader(lake, plan, process=process, framework="numpy", materialized=True) as loader,
        pytest.raises(
            CorruptDataError,
            match=rf"materialised pack 25 in {target.file_of(25)}: does not match its checksum",
        ),
    ):
        list(loader)
    assert target.file_of(25) != target.file_of(5)


def test_a_file_cut_short_is_named(lake: Lake, plan: Plan) -> None:
    target = materialize(lake, plan, workers=0, chunk_packs=20)
    file = Path(target.file_of(25))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    loader = PackLoader(lake, plan, **_INLINE, materialized=True)
    with pytest.raises(LakeError, match=rf"materialised pack 20 in {file}"):
        list(loader)


def test_a_row_of_another_pack_is_not_taken_for_it(lake: Lake, plan: Plan) -> None:
    target = MaterializedSet.create(lake, plan.header, COPY)
    for first, stop in ((0, 9), (10, 11), (9, 10), (11, 36)):
        assert target.commit(_chunk(target, plan, first, stop))
    loader = PackLoader(lake, plan, **_INLINE, materialized=True)
    with pytest.raises(CorruptDataError, match="materialised pack 9 in"):
        list(loader)


def test_a_set_of_another_plan_is_refused(lake: Lake, plan: Plan) -> None:
    other = scenes.scene_plan(lake, seed=9)
    target = materialize(lake, plan, workers=0)
    shutil.copytree(target.uri, set_uri(lake, other.plan_hash, "copy"))
    with pytest.raises(LakeError, match=f"holds packs of plan {plan.plan_hash}, not of"):
        PackLoader(lake, other, materialized=True)


def test_what_is_not_there_says_what_to_run(lake: Lake, plan: Plan) -> None:
    digits = plan.plan_hash[:16]
    with pytest.raises(LoaderError, match=f"`headrace plan materialize {lake.uri} {digits}` makes"):
        PackLoader(lake, plan, materialized=True)
    materialize(lake, plan, workers=0)
    with pytest.raises(
        LoaderError, match=r"it has copy; .* --codec h264 --image-size 8x16 --quality 18` makes"
    ):
        PackLoader(lake, plan, materialized="8x16-h264-q18")
    with pytest.raises(LoaderError, match=r"'\.\./x' names no materialised packs"):
        PackLoader(lake, plan, materialized="../x")
    remove_set(lake, plan.plan_hash, COPY)
    assert not Path(set_uri(lake, plan.plan_hash, "copy")).exists()
    assert list_sets(lake, plan.plan_hash) == []
    with pytest.raises(LoaderError, match="has no materialised packs 'copy'"):
        remove_set(lake, plan.plan_hash, COPY)


def test_the_report_counts(lake: Lake, plan: Plan, whole: pa.Table) -> None:
    report = report_of(materialize(lake, plan, workers=0), plan)
    assert (report.packs, report.num_packs, report.exact) == (36, 36, True)
    assert report.spans == sum(whole["spans"].to_pylist())
    assert report.data_bytes == sum(len(data) for data in whole["data"].to_pylist())
    episodes = [scenes.scene_episode(number) for number in range(scenes.EPISODES)]
    assert report.episode_bytes == sum(
        sum(video.index.num_bytes for video in episode.cameras.values())
        + 4 * (4 + 3) * episode.num_steps
        for episode in episodes
    )
    assert report.psnr_db is None
    assert report.amplification == report.data_bytes / report.episode_bytes


@pytest.mark.parametrize(
    "settings",
    [
        MaterializedSettings(),
        MaterializedSettings(codec="png"),
        MaterializedSettings(codec="h264", image_size=(224, 256)),
        MaterializedSettings(codec="mjpeg", quality=7),
    ],
    ids=lambda settings: settings.name,
)
def test_a_name_means_its_settings(settings: MaterializedSettings) -> None:
    assert MaterializedSettings.from_name(settings.name) == settings
    assert replace(settings) == settings


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"codec": "webp"}, "use one of copy, h264, mjpeg, png"),
        ({"image_size": (8, 8)}, "packets cannot be scaled"),
        ({"codec": "png", "image_size": (0, 8)}, "at least 1 pixel"),
        ({"codec": "png", "quality": 3}, "has no quality"),
        ({"codec": "h264", "quality": 52}, r"h264 takes 0\.\.51"),
        ({"codec": "mjpeg", "quality": 1}, r"mjpeg takes 2\.\.31"),
    ],
)
def test_settings_that_do_not_go_together(given: dict[str, Any], match: str) -> None:
    with pytest.raises(LoaderError, match=match):
        MaterializedSettings(**given)


def _damage(folder: Path, needle: bytes) -> None:
    """Flip one bit of every place in the files below a folder that holds `needle`."""
    flips = 0
    for file in folder.rglob("*"):
        if file.is_file() and (at := (content := file.read_bytes()).find(needle)) >= 0:
            damaged = bytearray(content)
            damaged[at + len(needle) // 2] ^= 4
            file.write_bytes(damaged)
            flips += 1
    assert flips
