"""PackLoader: the packs of a plan, in the plan's order, as batches."""

import contextlib
import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from lake.store import Lake
from loader.arguments import check_arguments
from loader.bad_spans import BadSpan, BadSpans
from loader.batch import ImageFormat, PackedBatch
from loader.cursor import Cursor
from loader.errors import LoaderError
from loader.materialized.pack_set import MaterializedSet
from loader.observe.log_lines import LogLines
from loader.observe.metrics import LoaderMetrics
from loader.process.job import Job
from loader.process.receive import received_in_order
from loader.process.received import Received, numpy_batch
from loader.storage.opening import opened_lake
from loader.storage.origin import Origin, bounded
from loader.storage.settings import StorageSettings
from packing.layout import TokenLayout
from packing.stored_plan import AnyPlan, open_plan

if TYPE_CHECKING:
    from catalog.selection import Selection
    from packing.mixture import Mixture
    from packing.spans import SpanMaker
    from packing.tokenizer import Tokenizer

Process = Literal["child", "inline"]
Framework = Literal["torch", "numpy"]
BatchesOf = Callable[[Iterator[Received]], Iterator[PackedBatch[Any]]]

_COPY: Final = "copy"  # the set that holds the recorded packets


class PackLoader:
    """Streams a rank's share of a plan, from `next_step` to the plan's end, over all its epochs.

    Iterating gives one `PackedBatch` per pack; `batch.step` and `batch.slot` tell which. A rank
    with several slots gets them as consecutive micro-batches of the step. What is streamed depends
    on the plan alone: any world size, process mode and byte bound gives the same packs, bit for
    bit.

    The position moves when the last pack of a step is handed out, so a state saved after an
    optimizer step resumes at the next one. Starting a new iteration ends the one before and goes on
    at `next_step`; at the plan's end it yields nothing (more passes: a plan of more epochs).

    Args:
        lake: a lake, or its URI.
        plan: a plan, or the name or hash of one that the lake holds.
        rank: of this process.
        world_size: number of ranks, at most the plan's slots per step.
        process: `child` decodes in a process of its own, ahead of the consumer; `inline` in the
            caller's thread.
        decode_threads: threads in each decode process. They decode a pack together, and share the
            frames that it has in common with other packs.
        num_workers: decode processes. Each takes 8 packs in a row and shares nothing with the
            others: what two of them both need is decoded twice.
        buffer_bytes: bound of what this rank holds ahead of its consumer, in bytes, over all its
            decode processes; a single pack above it still passes.
        image_size: (height, width) to which pictures are resized, None to keep theirs.
        image_format: `rgb` [I,3,h,w], or `yuv` [I,3h/2,w] to convert on the device.
        framework: `torch` tensors or `numpy` arrays.
        decode_device: None decodes with PyAV, on the CPU. A device of torch such as `cuda` decodes
            there with torchcodec (see `loader.decode.torchcodec_frames`), in the caller's process,
            so with `process="inline"`; the pictures of a batch are then on that device.
        materialized: read packs that `headrace plan materialize` wrote in place of the episodes:
            True for the recorded packets (the same batches, bit for bit), or the name of a set,
            whose pictures may have been scaled and encoded again; see `source`.
        storage: time-outs, request budget and the node's cache.
        max_bad_share: the most spans damaged in the lake (`bad_spans`) that this rank hands out as
            padding, as a share of the plan's spans over all epochs and ranks; one more is a
            `BadDataError`. In a plan of fewer than 10,000 spans the default allows none.
        log_every_s: seconds between lines of figures in the log `headrace.loader` (level INFO),
            None for no lines.

    Raises:
        LoaderError: an argument is not usable with this plan; or there are no such materialised
            packs, or not all of them.
        PlanError: the lake has no such plan, or it is damaged.
        LakeError: the lake cannot be opened.
        StorageTimeoutError: its store failed until the deadline.
    """

    def __init__(
        self,
        lake: Lake | str | Path,
        plan: AnyPlan | str,
        rank: int = 0,
        world_size: int = 1,
        *,
        process: Process = "child",
        decode_threads: int = 1,
        num_workers: int = 1,
        buffer_bytes: int = 1 << 30,
        image_size: tuple[int, int] | None = None,
        image_format: ImageFormat = "rgb",
        framework: Framework = "torch",
        decode_device: str | None = None,
        materialized: bool | str = False,
        storage: StorageSettings | None = None,
        max_bad_share: float = 1e-4,
        log_every_s: float | None = None,
    ) -> None:
        check_arguments(
            process=process,
            decode_threads=decode_threads,
            num_workers=num_workers,
            buffer_bytes=buffer_bytes,
            image_size=image_size,
            image_format=image_format,
            framework=framework,
            decode_device=decode_device,
            max_bad_share=max_bad_share,
            log_every_s=log_every_s,
        )
        self._storage = storage or StorageSettings()
        self.metrics = LoaderMetrics()
        self._lake = opened_lake(lake, self._storage, self.metrics)
        asked = bounded(self._lake, self._storage)
        with contextlib.closing(Origin(asked, self._storage, self.metrics)) as origin:
            self._plan = open_plan(asked, plan, origin.read) if isinstance(plan, str) else plan
            self._materialized: str | None = None
            if materialized is not False:
                name = _COPY if materialized is True else materialized
                packs = origin.read(
                    lambda: "materialised packs",
                    partial(MaterializedSet.open, asked, self._plan.header, name),
                ).require_complete()
                self._materialized = packs.settings.name
                image_size = packs.settings.image_size_for(image_size)
        self._cursor = Cursor(
            plan_hash=self._plan.plan_hash,
            num_steps=self._plan.num_steps,
            slots_per_step=self._plan.header.slots_per_step,
            rank=rank,
            world_size=world_size,
            ancestors=self._plan.header.ancestors,
        )
        self._process = process
        self._decode_threads = decode_threads
        self._num_workers = num_workers
        self._buffer_bytes = buffer_bytes
        self._image_size = image_size
        self._image_format = image_format
        self._decode_device = decode_device
        self._max_bad_share = max_bad_share
        self._log_every_s = log_every_s
        self._next_step = 0
        self._pid = os.getpid()
        self._running: Iterator[PackedBatch[Any]] | None = None
        self.framework: Final = framework
        self._bad = BadSpans(self._plan.header.num_occurrences, self._max_bad_share, self.metrics)

    @classmethod
    def from_episodes(
        cls,
        lake: Lake | str | Path,
        episodes: "Selection | Sequence[str] | str | None" = None,
        *,
        budget_tokens: int,
        spans: "SpanMaker | None" = None,
        layout: TokenLayout | str | None = None,
        tokenizer: "Tokenizer | str | Path | None" = None,
        slots_per_step: int | None = None,
        mixture: "Mixture | None" = None,
        epochs: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        **options: Any,  # noqa: ANN401  # those of the constructor, checked there
    ) -> Self:
        """Plan in memory first, then stream; nothing is written to the lake.

        Args:
            lake: a lake, or its URI.
            episodes: what `make_plan` takes: a condition such as `"success and num_steps > 30"`,
                ids, a selection, or None for all.
            budget_tokens: tokens of a pack.
            spans: windows of the layout's horizon, else of 16 steps, where not given.
            layout: what costs tokens (see `make_plan`), the packing default where not given.
            tokenizer: of the texts (see `make_plan`), the layout's where not given.
            slots_per_step: packs of a step, one per rank where not given.
            mixture: what each dataset, embodiment or selection gives of an epoch (see `make_plan`).
            epochs: passes.
            seed: of the plan.
            rank: of this process.
            world_size: number of ranks.
            **options: keyword arguments of the constructor.

        Raises:
            PackingError: the plan cannot be made.
        """
        # Imported where plans are made: who streams a saved plan needs no DuckDB.
        from packing.known_layouts import find_layout  # noqa: PLC0415
        from packing.make_plan import make_plan  # noqa: PLC0415
        from packing.window_spans import WindowSpans  # noqa: PLC0415

        storage: StorageSettings = options.get("storage") or StorageSettings()
        opened = opened_lake(lake, storage, LoaderMetrics())
        chosen = find_layout(layout) if isinstance(layout, str) else layout or TokenLayout()
        plan = make_plan(
            opened,
            episodes,
            spans=spans or WindowSpans(horizon=chosen.padded.horizon or 16),
            layout=chosen,
            tokenizer=tokenizer,
            budget_tokens=budget_tokens,
            slots_per_step=world_size if slots_per_step is None else slots_per_step,
            mixture=mixture,
            epochs=epochs,
            seed=seed,
        )
        return cls(opened, plan, rank, world_size, **options)

    @property
    def plan(self) -> AnyPlan:
        """The plan that is streamed; one that was named is a `StoredPlan`, left in the lake."""
        return self._plan

    @property
    def source(self) -> str:
        """What batches are read from: `episodes`, or `materialized NAME`.

        Batches from `episodes` and `materialized copy` are equal. Those of other sets have other
        pixels; a position saved with one source goes on with any.
        """
        return "episodes" if self._materialized is None else f"materialized {self._materialized}"

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole plan."""
        return self._cursor.num_steps

    @property
    def packs_per_step(self) -> int:
        """Micro-batches of this rank (of every rank) per step."""
        return self._cursor.packs_per_step

    @property
    def next_step(self) -> int:
        """The first step that has not been handed out wholly."""
        return self._next_step

    @property
    def bad_spans(self) -> list[BadSpan]:
        """The spans of this iteration that were handed out as padding: damaged in the lake."""
        return list(self._bad.handed_out)

    def state_dict(self) -> dict[str, Any]:
        """The position: `plan_hash`, `next_step`, `layout_version`; alike on all ranks."""
        return self._cursor.state(self._next_step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken, on any rank of any world size; ends a running iteration.

        Raises:
            LoaderStateError: the state is of another plan or layout.
        """
        next_step = self._cursor.next_step(state)
        self.close()
        self._next_step = next_step

    def __iter__(self) -> Iterator[PackedBatch[Any]]:
        return self.hand_out(self._wrapped)

    def hand_out(self, batches_of: BatchesOf) -> Iterator[PackedBatch[Any]]:
        """Iterate as `iter(self)` does, over what `batches_of` makes of the memory received.

        It may take memory before its batch is asked for (as `loader.device.on_device` does): the
        position follows the batches handed out.
        """
        self.close()
        self.metrics = LoaderMetrics()
        self._bad = BadSpans(self._plan.header.num_occurrences, self._max_bad_share, self.metrics)
        self._running = self._handed_out(batches_of)
        return self._running

    def close(self) -> None:
        """End the running iteration and its processes; batches handed out stay valid."""
        running, self._running = self._running, None
        if running is not None:
            running.close()  # type: ignore[attr-defined]  # it is the generator made in __iter__

    def __getstate__(self) -> dict[str, Any]:
        """To be sent to a worker of torch's DataLoader: all but what is open in this process."""
        options = dict(self._lake.storage_options)
        return {**self.__dict__, "_running": None, "_lake": (self._lake.uri, options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        uri, options = state["_lake"]
        opened = opened_lake(uri, state["_storage"], LoaderMetrics(), storage_options=options)
        self.__dict__.update({**state, "_lake": opened, "_pid": os.getpid()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _handed_out(self, batches_of: BatchesOf) -> Iterator[PackedBatch[Any]]:
        with contextlib.closing(self._counted()) as received:
            for batch in batches_of(received):
                self._bad.hand_out(batch.step, batch.slot)
                if batch.slot == self._cursor.last_slot:
                    self._next_step = batch.step + 1
                yield batch
                del batch

    def _counted(self) -> Generator[Received]:
        metrics = self.metrics
        every_s = math.inf if self._log_every_s is None else self._log_every_s
        lines = LogLines(metrics, every_s=every_s, rank=self._cursor.rank)
        jobs = [self._job(worker) for worker in range(self._num_workers)]
        if self._process == "inline" and os.getpid() != self._pid:
            raise LoaderError(
                "process='inline' in a fork of the process that opened the lake would hang:"
                " use process='child', or start this process by spawn"
            )
        lake = self._lake if self._process == "inline" else None
        with contextlib.closing(
            received_in_order(lake, self._plan, self._cursor, jobs, metrics)
        ) as batches:
            for received in batches:
                self._bad.receive(received.bad)
                metrics.packs += 1
                metrics.spans += received.spans
                metrics.steps += received.steps
                lines.look(self._cursor.place(received.position).step)
                yield received
                del received  # its memory is the consumer's alone

    def _job(self, worker: int) -> Job:
        return Job(
            lake_uri=self._lake.uri,
            storage_options=dict(self._lake.storage_options),
            rank=self._cursor.rank,
            world_size=self._cursor.world_size,
            first_step=self._next_step,
            worker=worker,
            num_workers=self._num_workers,
            decode_threads=self._decode_threads,
            buffer_bytes=self._buffer_bytes // self._num_workers,
            image_size=self._image_size,
            image_format=self._image_format,
            decode_device=self._decode_device,
            materialized=self._materialized,
            storage=self._storage,
        )

    def _wrapped(self, received: Iterator[Received]) -> Iterator[PackedBatch[Any]]:
        make: Callable[[Received], PackedBatch[Any]] = numpy_batch
        if self.framework == "torch":
            # Torch is imported where tensors are made, so that the package loads without it.
            from loader.torch_face import tensor_batch  # noqa: PLC0415

            make = tensor_batch
        for each in received:
            batch = make(each)
            del each  # its memory is the batch's alone from here on
            yield batch
            del batch
