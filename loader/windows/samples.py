"""Every step of the chosen episodes as a sample of numpy arrays, in any process."""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from catalog.selection import Selection
from lake.object_store import is_object_store
from lake.store import Lake
from loader.decode.kept_frames import KeptFrames
from loader.errors import LoaderError
from loader.observe.metrics import LoaderMetrics
from loader.storage.opening import opened_lake
from loader.storage.origin import Origin
from loader.storage.request_budget import limit_requests_per_read
from loader.storage.settings import StorageSettings
from loader.storage.tiers import Tiers
from loader.windows.index import WindowIndex
from loader.windows.keys import Names, choose_keys, keys_of
from loader.windows.meta import Stats, WindowMeta, window_meta, window_stats
from loader.windows.missing import require_complete
from loader.windows.reader import Missing, Sample, WindowReader, WindowSpec
from loader.windows.steps import Deltas, resolve_deltas

FRAME_CACHE_BYTES: Final = 1 << 30

Read = TypeVar("Read")


@dataclass(frozen=True)
class _Place:
    """What a process needs to open the lake by itself."""

    uri: str
    storage_options: dict[str, str]
    versions: dict[str, int]

    def open(self, settings: StorageSettings, metrics: LoaderMetrics) -> Lake:
        return opened_lake(
            self.uri,
            settings,
            metrics,
            storage_options=self.storage_options,
            versions=self.versions,
        )


class WindowSamples:
    """What `loader.Window` reads, without torch: pictures are uint8, the rest as described there.

    It may be sent to other processes, and each opens the lake by itself. A fork cannot read.

    Args:
        lake: see `Window`, also for all other arguments.
        delta_timestamps: seconds.
        delta_steps: steps.
        episodes: which.
        keys: which.
        names: `source` or `canonical`.
        image_size: (height, width) or None.
        missing: `error` or `pad`.
        cache_bytes: of signals and frame indexes.
        run_steps: of runs that are decoded together, or None.
        frame_cache_bytes: of decoded frames, with `run_steps`.
        storage: time-outs, request budget and the node's cache.

    Attributes:
        index: the episodes, and where their samples lie.
        spec: what samples hold.
        run_steps, frame_cache_bytes: as given.
        metrics: what this process read and decoded.

    Raises:
        LoaderError: an argument does not fit the lake; says what would.
        PackingError, CatalogError: `episodes` is neither a selection nor a condition.
        LakeError: the lake cannot be opened.
    """

    def __init__(
        self,
        lake: Lake | str | Path,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        *,
        delta_steps: Mapping[str, Sequence[int]] | None = None,
        episodes: Selection | Sequence[str] | str | None = None,
        keys: Sequence[str] | None = None,
        names: Names = "source",
        image_size: tuple[int, int] | None = None,
        missing: Missing = "error",
        cache_bytes: int = 256 << 20,
        run_steps: int | None = None,
        frame_cache_bytes: int = FRAME_CACHE_BYTES,
        storage: StorageSettings | None = None,
    ) -> None:
        require_one_of("names", names, ("source", "canonical"))
        require_one_of("missing", missing, ("error", "pad"))
        if image_size is not None and not _is_size(image_size):
            raise LoaderError(f"image_size={image_size}: (height, width) in pixels, at least 1")
        if min(cache_bytes, frame_cache_bytes) < 0:
            raise LoaderError(
                f"cache_bytes={cache_bytes}, frame_cache_bytes={frame_cache_bytes}: negative"
            )
        if run_steps is not None and not _is_count(run_steps):
            raise LoaderError(f"run_steps={run_steps}: at least 1 step, or None")
        if run_steps is None and frame_cache_bytes != FRAME_CACHE_BYTES:
            raise LoaderError(
                f"frame_cache_bytes={frame_cache_bytes}: without run_steps no frames are kept; give"
                " run_steps too"
            )
        if isinstance(keys, str):
            raise LoaderError(f"keys={keys!r}: a list of keys")
        self._storage = storage or StorageSettings()
        self.metrics = LoaderMetrics()
        opened = opened_lake(lake, self._storage, self.metrics)
        self.index = self._read_patiently(
            opened, "the episodes of samples", partial(WindowIndex.of, opened, episodes)
        )
        self._place = _Place(opened.uri, dict(opened.storage_options), self.index.versions)
        every = [keys_of(self.index, spec, names) for spec in range(len(self.index.specs))]
        chosen = choose_keys(every, keys)
        self.spec = WindowSpec(
            keys=chosen,
            deltas=resolve_deltas(self.index, chosen, Deltas(delta_timestamps, delta_steps)),
            image_size=None if image_size is None else (int(image_size[0]), int(image_size[1])),
            missing=missing,
        )
        if missing == "error":
            pinned = opened.at(self.index.versions)
            looked = partial(require_complete, pinned, self.index, chosen)
            self._read_patiently(pinned, "which steps have no valid value", looked)
        self.run_steps = run_steps
        self.frame_cache_bytes = frame_cache_bytes
        self._cache_bytes = cache_bytes
        self._reader: WindowReader | None = None
        self._closer: Callable[[], object] = _nothing
        self._pid = os.getpid()

    def __len__(self) -> int:
        return len(self.index)

    def read(self, samples: Sequence[int]) -> list[Sample]:
        """Many samples, read and decoded together, see `WindowReader.read`.

        Raises:
            LoaderError: in a fork of the process that opened the lake.
        """
        return self._opened().read(samples)

    @cached_property
    def meta(self) -> WindowMeta:
        """Features, cameras, tasks and episodes."""
        return window_meta(self.index, self.spec.keys, self.spec.image_size)

    @cached_property
    def stats(self) -> Stats:
        """Statistics of the features, see `window_stats`."""
        lake = self._place.open(self._storage, self.metrics)
        stats = partial(window_stats, lake, self.index, self.spec.keys)
        return self._read_patiently(lake, "statistics", stats)

    def close(self) -> None:
        """End what this process opened; a sample asked for later opens it again."""
        self._closer()
        self._reader = None

    def __getstate__(self) -> dict[str, Any]:
        """To be sent to another process: all but what is open in this one."""
        return {**self.__dict__, "_reader": None, "_closer": _nothing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_pid": os.getpid()})
        if state["_pid"] != self._pid and is_object_store(self._place.uri):
            # A worker, which reads what it is asked for and nothing before.
            limit_requests_per_read(self._storage.requests_per_node)

    def _read_patiently(self, lake: Lake, what: str, read: Callable[[], Read]) -> Read:
        """Read something else than samples, as patiently as those."""
        with closing(Origin(lake, self._storage, self.metrics)) as origin:
            return origin.read(lambda: what, read)

    def _opened(self) -> WindowReader:
        """This process's reader.

        Of forked workers that open the lake anew, one in forty hung or crashed: Lance's threads
        are gone there, and what they had locked is not. So a fork is told, instead.
        """
        if self._pid != os.getpid():
            raise LoaderError(
                "a fork of the process that opened the lake cannot read it: Lance's threads are not"
                " in the fork. Use DataLoader(..., multiprocessing_context='forkserver') (or"
                " 'spawn'), or torch.multiprocessing.set_start_method('forkserver') at the begin of"
                " the program"
            )
        if self._reader is None:
            lake = self._place.open(self._storage, self.metrics)
            tiers = Tiers(lake, self.index.content_key, self._storage, self.metrics)
            self._closer = weakref.finalize(self, _close, tiers, self._pid)
            kept = None
            if self.run_steps is not None:
                kept = KeptFrames(self.run_steps, self.frame_cache_bytes)
            self._reader = WindowReader(
                tiers,
                self.index,
                self.spec,
                cache_bytes=self._cache_bytes,
                kept=kept,
                metrics=self.metrics,
            )
        return self._reader


def require_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse an argument that is none of the known ones.

    Raises:
        LoaderError: lists them.
    """
    if value not in known:
        raise LoaderError(f"{name}={value!r}: use one of {', '.join(known)}")


def _is_size(value: object) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_count, value))


def _is_count(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return int(value) >= 1


def _nothing() -> None:
    """Nothing is open."""


def _close(tiers: Tiers, pid: int) -> None:
    """End the threads of the process that started them; a fork has none of them."""
    if os.getpid() == pid:
        tiers.close()
