"""From streams with clocks of their own to an episode."""

import json

import numpy as np

from ingest.alignment.policy import AlignmentPolicy
from ingest.source import EpisodeEntry, SourceOptions
from ingest.timed_episode import TimedRecording, episode_of
from tests.ingest.alignment.timed_streams import MS, camera, stream


def test_an_episode_carries_its_policy_and_what_was_found() -> None:
    policy = AlignmentPolicy(grid="state", action_lag_steps=1)
    recording = TimedRecording(
        values=[
            stream("state", range(0, 60, 10)),
            stream("action", range(0, 60, 10), np.arange(6), role="action"),
        ],
        cameras=[camera([0, 20, 40])],
        files=("a.mcap",),
        labels={"task": "stack"},
    )
    reading = episode_of(
        recording,
        EpisodeEntry(ingest_key="k", episode_id="d/a", locator="a"),
        format_name="mcap",
        reader="numpy",
        source="a.mcap",
        dataset="d",
        options=SourceOptions(alignment=policy, embodiment="arm"),
    )
    episode = reading.episode
    assert AlignmentPolicy.from_json(episode.provenance.alignment) == policy
    assert json.loads(episode.provenance.alignment)["action_lag_steps"] == 1
    assert (episode.timestamps_ns // MS).tolist() == [0, 10, 20, 30, 40, 50]
    assert episode.fps == 100
    assert episode.features["action"].tolist() == [1, 2, 3, 4, 5, 0]
    assert episode.valid["action"].tolist() == [True] * 5 + [False]
    assert episode.cameras["top"].index.step_to_frame.tolist() == [0, 0, 1, 1, 2, 2]
    assert (episode.task, episode.embodiment) == ("stack", "arm")
    timed = {finding.stream for finding in reading.findings if finding.reason == "stream-timing"}
    assert timed == {"state", "action", "top"}
    assert all(finding.episode == "a" for finding in reading.findings)
