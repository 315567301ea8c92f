"""A small ingest of known episodes, and what makes two lakes equal."""

from multiprocessing.connection import Connection

from lake import Episode, EpisodeWriter, Lake, open_lake, visible_episodes
from tests.episodes import make_episode

EPISODES = 9
BATCH = 3

State = dict[str, tuple[str, ...]]


def episodes() -> list[Episode]:
    return [
        make_episode(number, steps=4 + number, camera_names=("top",) if number % 2 else ())
        for number in range(EPISODES)
    ]


def ingest(lake: Lake, wanted: list[Episode]) -> EpisodeWriter:
    writer = EpisodeWriter(lake, batch_episodes=BATCH)
    with writer:
        for episode in wanted:
            if not writer.has(episode.ingest_key):
                writer.add(episode)
    return writer


def state(lake: Lake) -> State:
    """What makes two lakes equal: ids, content hashes and labels, in any order of rows."""
    lake.refresh()
    rows = visible_episodes(lake, ["episode_id", "content_sha256"]).to_pylist()
    ids = {row["episode_id"] for row in rows}
    assert len(ids) == len(rows), "an episode is visible twice"
    labels = {
        row.pop("episode_id"): repr(sorted(row.items()))
        for row in lake.dataset("episodes").to_table().to_pylist()
    }
    stats: dict[str, list[str]] = {}
    for row in lake.dataset("stats").to_table().to_pylist():
        stats.setdefault(row["episode_id"], []).append(repr(sorted(row.items())))
    return {
        row["episode_id"]: (
            row["content_sha256"].hex(),
            labels[row["episode_id"]],
            *sorted(stats[row["episode_id"]]),
        )
        for row in rows
    }


def ingest_in_process(uri: str, pipe: Connection, *, backwards: bool = False) -> None:
    """All of it in a process of its own; backwards, so that two writers meet in the middle.

    Says when it is ready, waits for a word, and sends the report if it lives.
    """
    wanted = episodes()
    if backwards:
        wanted.reverse()
    lake = open_lake(uri)
    pipe.send("ready")
    pipe.recv()
    pipe.send(ingest(lake, wanted).report)
