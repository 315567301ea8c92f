"""Verifying a lake: the ledger against the tables, and every stored byte against its checksum."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ingest.source import Finding
from lake.edit.view import is_view
from lake.episode import CameraVideo, Episode, Provenance
from lake.episode_row import facts_checksum
from lake.errors import CorruptDataError, LakeError
from lake.ledger import ledger_rows, orphans
from lake.raw_read import read_raw
from lake.read import Signals, read_signals
from lake.read_video import ByteRange, read_ranges, read_video_indexes
from lake.store import Lake
from lake.tables import FACTS, OPTIONAL_TABLES, TABLES
from lake.take import take_rows
from lake.video_runs import verify_packets
from lake.visible import ADDRESS, stored_episodes, visible_episodes

# Signals are small next to video: several episodes per request, the packets of one at a time.
_BATCH: Final = 16


def _no_progress(done: int, total: int) -> None:
    del done, total


def check_lake(lake: Lake, *, progress: Callable[[int, int], None] = _no_progress) -> list[Finding]:
    """Everything that is wrong with a lake.

    Checked: every table but `trajectories` and `raw` can be read wholly; each ledger row has its
    episode and each episode its labels, spec and statistics; rows that no ledger row names;
    checksums of the facts, times, features, packet indexes, packets and raw chunks; the content
    hash; frame maps against the steps.

    Args:
        lake: as seen by this handle.
        progress: called with episodes verified and episodes in total.

    Raises:
        LakeError: the ledger, or the ids in `trajectories`, cannot be read.
    """
    unreadable = list(_check_readable(lake))
    visible = visible_episodes(lake, ("episode_id", "ingest_key", "spec_id"))
    sound = {"episodes", "stats", "specs"} - {finding.where for finding in unreadable}
    findings = [*unreadable, *_check_ledger(lake), *_check_tables(lake, visible, sound)]
    ids, addresses = visible["episode_id"].to_pylist(), visible[ADDRESS].to_pylist()
    for start in range(0, len(addresses), _BATCH):
        batch = addresses[start : start + _BATCH]
        findings += _check_content(lake, ids[start : start + _BATCH], batch)
        progress(start + len(batch), len(addresses))
    return findings


def _check_readable(lake: Lake) -> Iterator[Finding]:
    for table in filter(lake.has_table, (*TABLES, *OPTIONAL_TABLES)):
        if table in (
            "trajectories",
            "raw",
        ):  # too large to read for this alone; its rows have checksums
            continue
        try:
            with lake.errors_named(f"read {table}"):
                for _ in lake.dataset(table).to_batches():
                    pass
        except LakeError as error:
            yield _finding("unreadable-table", str(error), table=table, episode="")


def _check_ledger(lake: Lake) -> Iterator[Finding]:
    ledger = ledger_rows(lake)
    stored = stored_episodes(lake, ["ingest_key"])
    lost = pc.invert(pc.is_in(ledger["ingest_key"], value_set=stored["ingest_key"]))
    for row in ledger.filter(lost).to_pylist():
        yield _finding(
            "ledger-without-row",
            "the ledger names this episode, but `trajectories` has no such row",
            table="commits",
            episode=row["episode_id"],
        )
    left = orphans(lake, ledger)
    if left:
        yield Finding(
            severity="info",
            reason="uncommitted-rows",
            where="trajectories",
            detail=f"{len(left)} episodes were written but not committed (a writer was stopped);"
            " the same ingest again adopts them, nobody sees them until then",
        )


def _check_tables(lake: Lake, visible: pa.Table, sound: AbstractSet[str]) -> Iterator[Finding]:
    """Each visible episode has one label row, its spec and its statistics, in `sound` tables."""
    ids = visible["episode_id"]
    for table, reason in (("episodes", "no-labels"), ("stats", "no-stats")):
        if table not in sound:
            continue
        known = lake.dataset(table).to_table(columns=["episode_id"])["episode_id"]
        missing = ids.filter(pc.invert(pc.is_in(ids, value_set=known)))
        for episode in missing.to_pylist():
            yield _finding(reason, f"no row in `{table}`", table=table, episode=episode)
    if "specs" not in sound:
        return
    specs = lake.dataset("specs").to_table(columns=["spec_id"])["spec_id"]
    without = visible.filter(pc.invert(pc.is_in(visible["spec_id"], value_set=specs)))
    for row in without.to_pylist():
        yield _finding(
            "no-spec", f"spec {row['spec_id']} is missing", table="specs", episode=row["episode_id"]
        )


def _check_content(lake: Lake, ids: Sequence[str], addresses: Sequence[int]) -> Iterator[Finding]:
    try:
        signals = read_signals(lake, addresses)
    except LakeError as error:
        if len(addresses) == 1:
            yield _finding("corrupt-data", str(error), table="trajectories", episode=ids[0])
            return
        # One bad episode must not hide the state of the others: look at each alone.
        for episode, address in zip(ids, addresses, strict=True):
            yield from _check_content(lake, [episode], [address])
        return
    for one in signals:
        try:
            yield from _check_episode(lake, one)
        except LakeError as error:
            yield _finding("corrupt-data", str(error), table="trajectories", episode=one.episode_id)


def _check_episode(lake: Lake, signals: Signals) -> Iterator[Finding]:
    """Packets, frame maps, facts and content hash of one episode."""
    videos = read_video_indexes(lake, [signals.address])[0]
    ranges = [
        ByteRange(signals.address, videos.base_offsets[name], index.num_bytes)
        for name, index in videos.cameras.items()
    ]
    cameras: dict[str, CameraVideo] = {}
    for (name, index), data in zip(videos.cameras.items(), read_ranges(lake, ranges), strict=True):
        try:
            verify_packets(index, 0, data)
        except CorruptDataError as error:
            yield _finding(
                "corrupt-data",
                str(error),
                table="trajectories",
                episode=signals.episode_id,
                stream=name,
            )
            continue
        if len(index.step_to_frame) != signals.num_steps:
            yield _finding(
                "frame-map",
                f"maps {len(index.step_to_frame)} steps of {signals.num_steps}",
                table="trajectories",
                episode=signals.episode_id,
                stream=name,
            )
            return
        cameras[name] = CameraVideo(index=index, payload=data)
    yield from _check_raw(lake, signals)
    columns = [*FACTS, "facts_checksum", "content_sha256"]
    row = take_rows(lake, [signals.address], columns).to_pylist()[0]
    if facts_checksum(row) != row["facts_checksum"]:
        yield _finding(
            "corrupt-data",
            "its facts do not match their checksum",
            table="trajectories",
            episode=signals.episode_id,
        )
    if len(cameras) < len(videos.cameras):
        return  # what is damaged has been named
    episode = Episode(
        episode_id=signals.episode_id,
        ingest_key="",
        source="",
        dataset="",
        embodiment="",
        spec=signals.spec,
        fps=None,
        timestamps_ns=signals.timestamps_ns,
        features=signals.features,
        valid=signals.valid,
        cameras=cameras,
        provenance=Provenance(format="", files=(), locator="", reader=""),
    )
    if episode.content_sha256() != row["content_sha256"]:
        yield _finding(
            "content-hash",
            "the stored content does not match its SHA-256",
            table="trajectories",
            episode=signals.episode_id,
        )


def _check_raw(lake: Lake, signals: Signals) -> Iterator[Finding]:
    """Every chunk of an episode's recording, where it has one."""
    if is_view(signals.address):
        return
    try:
        for _ in read_raw(lake, signals.episode_id):
            pass
    except LakeError as error:
        yield _finding("corrupt-data", str(error), table="raw", episode=signals.episode_id)


def _finding(reason: str, detail: str, *, table: str, episode: str, stream: str = "") -> Finding:
    return Finding(
        severity="error",
        reason=reason,
        where=table,
        detail=detail,
        episode=episode,
        stream=stream,
    )
