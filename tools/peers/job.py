"""What a peer is asked and what it answers. Only the standard library is imported here."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from tools.bench.stretch import Stretch, measure_stretches

Samples = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class PeerJob:
    """Stream window samples and time a stretch of them.

    Attributes:
        dataset: folder in the peer's own format.
        order: (episode, step) of the samples in the order asked for; peers that shuffle by
            themselves do not look at it.
        lengths: steps of every episode.
        fps: steps per second.
        batch: samples of a batch.
        chunk: actions of a sample.
        workers: worker processes, 0 for none.
        skip: batches taken untimed first.
        count: batches timed then.
        seed: of a peer's own shuffling.
    """

    dataset: str
    order: Samples
    lengths: list[int]
    fps: int
    batch: int
    chunk: int
    workers: int
    skip: int
    count: int
    seed: int = 0

    @property
    def batches(self) -> int:
        """Batches taken in all, those that workers prefetch included."""
        return self.skip + self.count + 2 * self.workers

    def indices(self) -> list[int]:
        """The samples asked for as rows of the dataset, which has its episodes end to end."""
        starts = [0]
        for length in self.lengths:
            starts.append(starts[-1] + length)
        return [starts[episode] + step for episode, step in self.order[: self.batches * self.batch]]


@dataclass(frozen=True, kw_only=True)
class PeerRun:
    """What came of it.

    Attributes:
        library: name and version.
        import_s: importing it.
        open_s: opening the dataset.
        stretch: the timed batches; `first_batch_s` is from making the DataLoader on.
        delivered: (episode, step) of all samples that came, in order.
    """

    library: str
    import_s: float
    open_s: float
    stretch: Stretch
    delivered: Samples

    def to_message(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Self:
        """Inverse of `to_message`."""
        return cls(
            **{
                **message,
                "stretch": Stretch(**message["stretch"]),
                "delivered": [(episode, step) for episode, step in message["delivered"]],
            }
        )


def time_batches(
    job: PeerJob,
    stream: Callable[[], Iterator[Any]],
    *,
    samples: Callable[[Any], tuple[list[int], list[int]]],
    library: str,
    import_s: float,
    open_s: float,
) -> PeerRun:
    """Time a peer's stream.

    Args:
        job: what is asked.
        stream: begins the stream of batches.
        samples: episodes and steps of a batch's samples.
        library: see `PeerRun`.
        import_s: see `PeerRun`.
        open_s: see `PeerRun`.
    """
    batches: list[tuple[list[int], list[int]]] = []

    def noted() -> Iterator[int]:
        for batch in stream():
            batches.append(samples(batch))
            yield len(batches[-1][0])

    [stretch] = measure_stretches(noted, skip=job.skip, count=job.count, size=int)
    return PeerRun(
        library=library,
        import_s=import_s,
        open_s=open_s,
        stretch=stretch,
        delivered=[pair for batch in batches for pair in zip(*batch, strict=True)],
    )
