"""The samples of a dataset: every step of the chosen episodes, in order, found by number."""

import operator
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.selection import Selection
from lake.spec import Spec
from lake.store import Lake
from lake.visible import visible_episodes
from loader.errors import LoaderError
from packing.choose_episodes import choose_episodes

_COLUMNS: Final = (
    *("episode_id", "spec_id", "dataset", "embodiment", "num_steps", "fps", "content_sha256"),
    *("features", "cameras", "camera_missing_steps", "camera_heights", "camera_widths"),
)
_LABELS: Final = ("instruction", "task", "tags")
_TASK_TAG: Final = "task="


@dataclass(frozen=True, kw_only=True)
class WindowIndex:
    """The chosen episodes, sorted by id, and their steps laid end to end.

    Attributes:
        versions: lake table -> version at which everything is read.
        episodes: one row per episode: the columns of `trajectories` named above, `address`, its
            label `tags`, and `text`: its instruction, else its task, else "".
        specs: of the episodes.
        spec: int32 [E], which of them.
        offsets: int64 [E+1], the first sample of each episode, and the number of samples.
        tasks: the distinct texts, sorted.
    """

    versions: dict[str, int]
    episodes: pa.Table
    specs: tuple[Spec, ...]
    spec: NDArray[np.int32]
    offsets: NDArray[np.int64] = field(init=False)
    tasks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        steps = self.episodes["num_steps"].to_numpy().astype(np.int64)
        object.__setattr__(self, "offsets", np.concatenate([[0], np.cumsum(steps)]))
        texts = pc.unique(self.episodes["text"]).to_pylist()
        object.__setattr__(self, "tasks", tuple(sorted(texts)))

    @classmethod
    def of(cls, lake: Lake, episodes: Selection | Sequence[str] | str | None) -> Self:
        """Choose episodes: a selection or its name, a condition, ids, or None for all.

        Raises:
            LoaderError: an id that is no text or not in the lake, or no episode at all.
            PackingError, CatalogError: a text that is neither a selection nor a condition.
        """
        if not isinstance(episodes, (str, Selection)) and any(
            not isinstance(name, str) for name in episodes or ()
        ):
            raise LoaderError(
                f"episodes={list(episodes or ())[:3]}: give episode ids (text), a condition such as"
                " 'success and num_steps > 30', a selection, or None for all"
            )
        chosen = choose_episodes(lake, episodes)
        pinned = lake.at(chosen.versions)
        rows = visible_episodes(pinned, _COLUMNS)
        wanted = pa.array(sorted(set(chosen.episode_ids)), pa.string())
        at = pc.index_in(wanted, value_set=rows["episode_id"])
        if at.null_count:
            gone = wanted.filter(at.is_null())
            raise LoaderError(
                f"{lake.uri}: {len(gone)} of {len(wanted)} episodes are not in the lake, first"
                f" {gone[0]}"
            )
        if not len(wanted):
            raise LoaderError(f"{lake.uri}: no episode to take samples from")
        rows = rows.take(at).combine_chunks()
        spec_ids = sorted(set(rows["spec_id"].to_pylist()))
        number = pc.index_in(rows["spec_id"], value_set=pa.array(spec_ids, pa.string()))
        return cls(
            versions=dict(chosen.versions),
            episodes=_with_labels(pinned, rows),
            specs=tuple(pinned.spec(spec_id) for spec_id in spec_ids),
            spec=number.to_numpy().astype(np.int32),
        )

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def num_episodes(self) -> int:
        """Number of episodes, E."""
        return len(self.spec)

    def locate(self, sample: int) -> tuple[int, int]:
        """(row of the episode, step) of a sample; negative numbers count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        count, sample = len(self), operator.index(sample)
        at = sample + count if sample < 0 else sample
        if not 0 <= at < count:
            raise IndexError(f"sample {sample} of {count}")
        row = int(np.searchsorted(self.offsets, at, side="right")) - 1
        return row, at - int(self.offsets[row])

    def episode_id(self, row: int) -> str:
        """Id of an episode."""
        return str(self.episodes["episode_id"][row].as_py())

    def streams(self, spec: int) -> tuple[dict[str, bool], dict[str, bool]]:
        """Feature columns and cameras that episodes of a spec have, and whether all of them do.

        A spec may declare more.
        """
        ours = self.episodes.filter(pa.array(self.spec == spec))
        features, cameras = (
            {
                each["values"]: each["counts"] == len(ours)
                for each in pc.value_counts(pc.list_flatten(ours[name])).to_pylist()
            }
            for name in ("features", "cameras")
        )
        return features, cameras

    def picture_sizes(self, names: Sequence[str | None]) -> set[tuple[int, int]]:
        """The sizes (height, width) of a camera's pictures in all episodes that have it.

        Args:
            names: what each of the specs calls it, None where it does not have it.
        """
        wanted = pa.array(names, pa.string()).take(pa.array(self.spec))
        each = {
            name: pc.list_flatten(self.episodes[name])
            for name in ("cameras", "camera_heights", "camera_widths")
        }
        owner = pc.list_parent_indices(self.episodes["cameras"])
        ours = pc.fill_null(pc.equal(each["cameras"], wanted.take(owner)), fill_value=False)
        sizes = (
            each[name].filter(ours).to_pylist() for name in ("camera_heights", "camera_widths")
        )
        return set(zip(*sizes, strict=True))

    def fps(self, row: int) -> float | None:
        """Nominal steps per second of an episode, None where it has none."""
        rate: float | None = self.episodes["fps"][row].as_py()
        return rate

    @cached_property
    def rates(self) -> list[float | None]:
        """The distinct nominal rates of the episodes, None among them where one has none."""
        rates: list[float | None] = pc.unique(self.episodes["fps"]).to_pylist()
        return rates

    def texts(self, row: int) -> list[str]:
        """Task texts of an episode in the order in which its steps come to them; "" for none."""
        tags = self.episodes["tags"][row].as_py() or ()
        others = (t.removeprefix(_TASK_TAG) for t in tags if t.startswith(_TASK_TAG))
        return [self.episodes["text"][row].as_py(), *others]

    def task_number(self, row: int) -> int:
        """Number of an episode's text among `tasks`."""
        return bisect_left(self.tasks, self.episodes["text"][row].as_py())

    @cached_property
    def _by_address(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        addresses = self.episodes["address"].to_numpy()
        order = np.argsort(addresses)
        return addresses[order], order

    def rows_by_address(self) -> dict[int, int]:
        """Row address in the lake -> row here."""
        return {address: row for row, address in enumerate(self.episodes["address"].to_pylist())}

    def content_key(self, address: int) -> bytes:
        """SHA-256 of the episode at a row address."""
        addresses, order = self._by_address
        row = int(order[np.searchsorted(addresses, np.uint64(address))])
        key: bytes = self.episodes["content_sha256"][row].as_py()
        return key


def _with_labels(lake: Lake, rows: pa.Table) -> pa.Table:
    with lake.errors_named("read labels"):
        labels = lake.dataset("episodes").to_table(columns=["episode_id", *_LABELS])
    at = pc.index_in(rows["episode_id"], value_set=labels["episode_id"])
    labels = labels.take(at).combine_chunks()
    silent = pc.equal(pc.fill_null(labels["instruction"], ""), "")
    text = pc.if_else(silent, labels["task"], labels["instruction"])
    rows = rows.append_column("text", pc.fill_null(text, ""))
    return rows.append_column("tags", labels["tags"])
