"""Layout v2.0 and v2.1: one parquet file and one video per camera for each episode."""

from pathlib import Path

from ingest.errors import SourceError
from ingest.lerobot.episodes import EpisodeRecord, VideoPlace
from ingest.lerobot.info import DatasetInfo
from ingest.lerobot.jsonfiles import read_json_lines
from ingest.source import Finding


def list_episodes_v2(root: Path, info: DatasetInfo) -> tuple[list[EpisodeRecord], list[Finding]]:
    """Episodes of `meta/episodes.jsonl`.

    Raises:
        SourceError: the list is missing or empty, or no row of it names an episode.
    """
    path = root / "meta" / "episodes.jsonl"
    rows, findings = read_json_lines(path, root)
    records = []
    for row in rows:
        index, length = row.get("episode_index"), row.get("length")
        if not isinstance(index, int) or index < 0:
            findings.append(
                Finding(
                    severity="error",
                    reason="bad-episode-list",
                    where="meta/episodes.jsonl",
                    detail=f"episode_index is {index!r}; the row is not used",
                )
            )
            continue
        tasks = row.get("tasks")
        place = {"episode_index": index, "episode_chunk": index // info.chunk_episodes}
        records.append(
            EpisodeRecord(
                index=index,
                length=length if isinstance(length, int) and length >= 0 else None,
                tasks=tuple(str(task) for task in tasks) if isinstance(tasks, list) else (),
                data_file=info.data_path.format(**place),
                videos={
                    camera.key: VideoPlace(
                        file=info.video_path.format(video_key=camera.key, **place)
                    )
                    for camera in info.cameras
                    if camera.dtype == "video"
                },
            )
        )
    if not records:
        detail = "; ".join(finding.detail for finding in findings)
        raise SourceError(f"{path}: no episode can be listed ({detail})", reason="bad-episode-list")
    return records, findings
