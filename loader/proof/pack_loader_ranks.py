"""Headrace's own loader as a rank program."""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from lake.store import Lake, open_lake
from loader.pack_loader import PackLoader
from loader.process.plan_wire import plan_from_memfd, plan_to_memfd
from loader.proof.digest import batch_digest
from loader.proof.elastic import Variant
from loader.proof.program import PackReport, RankProgram, RankSetup, Reports
from loader.storage.settings import StorageSettings
from packing.stored_plan import AnyPlan

_TARGET: Final = "loader.proof.pack_loader_ranks:rank"
_SMALL_BUFFER_BYTES: Final = 1 << 20  # the least that a loader takes


class PackLoaderRanks:
    """Makes programs that stream one plan of a lake; a context manager.

    The plan is handed to ranks in memory, so it need not be saved; nothing is written to the lake.

    Args:
        lake: that holds the plan's episodes.
        plan: to stream.
        target: the rank function, where it is not this module's.
    """

    def __init__(self, lake: Lake, plan: AnyPlan, *, target: str = _TARGET) -> None:
        self.plan: Final = plan
        self._lake = lake
        self._target = target
        self._fd = plan_to_memfd(plan)

    def program(
        self,
        *,
        digests: bool = False,
        storage: StorageSettings | None = None,
        extra: Mapping[str, Any] | None = None,
        **options: Any,  # noqa: ANN401  # those of `PackLoader`, checked there
    ) -> RankProgram:
        """A program.

        Args:
            digests: whether every byte of each batch is digested.
            storage: see `PackLoader`.
            extra: more arguments, for a rank function of one's own.
            **options: keyword arguments of `PackLoader`.
        """
        arguments = {
            **(extra or {}),
            "lake": self._lake.uri,
            "storage_options": dict(self._lake.storage_options),
            "plan_fd": self._fd,
            "digests": digests,
            "storage": storage and storage.to_dict(),
            "options": options,
        }
        return RankProgram(target=self._target, arguments=arguments, fds=(self._fd,))

    def variants(self, world_sizes: Sequence[int], *, num_workers: int = 2) -> list[Variant]:
        """Ways to stream the plan that must give the same bytes; the first is one rank, inline.

        Args:
            world_sizes: to try.
            num_workers: decode processes where several are tried.
        """
        small = _SMALL_BUFFER_BYTES
        inline = self.program(digests=True, process="inline")
        child = self.program(digests=True)
        tight = self.program(digests=True, process="inline", buffer_bytes=small)
        workers = self.program(
            digests=True, num_workers=num_workers, buffer_bytes=num_workers * small
        )
        most, least = max(world_sizes), min(world_sizes)
        chain = tuple(dict.fromkeys((most, 1, *world_sizes)))
        ways = [
            ("1 rank", inline, (1,)),
            *((f"{size} ranks", inline, (size,)) for size in world_sizes if size > 1),
            ("a decode process", child, (1,)),
            (f"{num_workers} decode processes per rank of {least}", workers, (least,)),
            (f"{most} ranks in 1 MiB each", tight, (most,)),
            (f"{' then '.join(map(str, chain))} ranks", inline, chain),
        ]
        return [Variant(label=label, program=p, world_sizes=worlds) for label, p, worlds in ways]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)


def rank(setup: RankSetup) -> Reports:
    """Stream a rank's packs."""
    arguments = setup.arguments
    lake = open_lake(arguments["lake"], storage_options=arguments["storage_options"])
    with make_loader(setup, lake) as loader:
        yield from reports(setup, loader)


def make_loader(setup: RankSetup, lake: Lake) -> PackLoader:
    """The loader that a setup asks for, where it starts; on any handle of the lake."""
    arguments = setup.arguments
    storage = arguments["storage"]
    loader = PackLoader(
        lake,
        plan_from_memfd(arguments["plan_fd"], lake),
        setup.rank,
        setup.world_size,
        framework="numpy",
        storage=StorageSettings(**storage) if storage else None,
        **arguments["options"],
    )
    start = {**loader.state_dict(), "next_step": setup.first_step}
    loader.load_state_dict(start if setup.state is None else setup.state)
    return loader


def reports(setup: RankSetup, loader: PackLoader) -> Reports:
    """What a trainer that iterates over the loader consumes."""
    digests: bool = setup.arguments["digests"]
    for batch in loader:
        spans = batch.span_ids[: batch.num_spans].tolist()
        times = batch.occurrence_ids[: batch.num_spans].tolist()
        yield PackReport(
            step=batch.step,
            slot=batch.slot,
            spans=tuple((batch.epoch, s, k) for s, k in zip(spans, times, strict=True)),
            ends_step=loader.next_step == batch.step + 1,
            state=loader.state_dict(),
            digest=batch_digest(batch) if digests else "",
            counts=dict(loader.metrics.counts),
        )
