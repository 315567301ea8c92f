"""Episodes of coming packs, held while they are needed, within a bound."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from loader.assembly.signals import PackSignals, pack_signals
from loader.fetch.episodes import EPISODE_BYTES, PACKET_BYTES, EpisodeData, EpisodeReader
from loader.fetch.plan_rows import PackRow, PlanRows
from loader.observe.metrics import LoaderMetrics
from loader.storage.tiers import Tiers


class EpisodeCache:
    """Episodes read for the plan, the least recently used ones dropped beyond `limit_bytes`.

    A block of coming packs is asked for (`request`), what it lacks is read (`read`, in any thread),
    and becomes its own (`add`); its packs hold their episodes from the request until they are let
    go, so that these are not dropped. The caller stops asking where held ones alone exceed the
    limit (`full`); of those still being read the plan tells the size.
    """

    def __init__(
        self, tiers: Tiers, rows: PlanRows, *, limit_bytes: int, metrics: LoaderMetrics
    ) -> None:
        self._reader = EpisodeReader(tiers, rows)
        self._rows = rows
        self._limit = limit_bytes
        self._metrics = metrics
        # None while it is read. Those asked for last stand last.
        self._known: OrderedDict[int, EpisodeData | None] = OrderedDict()
        self._bytes = 0
        self._holders: Counter[int] = Counter()  # episode -> coming packs that hold it
        self._holders_bytes = 0
        header = rows.plan.header
        self._state_size = max((spec.state_size for spec in header.specs), default=0)
        self._action_size = max((spec.action_size for spec in header.specs), default=0)

    def request(self, packs: Iterable[PackRow]) -> list[int]:
        """Hold the episodes of some packs; returns those that `read` and `add` have yet to bring.

        What another request has asked for before is brought by that one, which is to be added
        first.
        """
        missing = []
        for pack in packs:
            for episode in _episodes_of(pack):
                if episode not in self._known:
                    missing.append(episode)
                self._known[episode] = self._known.pop(episode, None)
                if not self._holders[episode]:
                    self._holders_bytes += self._size(episode)
                self._holders[episode] += 1
        if missing:
            self._metrics.add(requests=1)
        return missing

    def read(self, episodes: Sequence[int]) -> dict[int, EpisodeData]:
        """Read episodes of the plan; changes nothing here, so that any thread may.

        Raises:
            LakeError, LoaderError: see `EpisodeReader.read`.
        """
        return self._reader.read(episodes)

    def add(self, read: Mapping[int, EpisodeData]) -> None:
        """Take in what was read for the oldest request that is not answered yet."""
        for episode, data in read.items():
            self._holders_bytes += data.nbytes - self._size(episode)
            self._known[episode] = data
            self._bytes += data.nbytes
        # Packs leave in the order in which they came, so behind a held episode all are held.
        while self._bytes > self._limit and next(iter(self._known)) not in self._holders:
            _, dropped = self._known.popitem(last=False)
            assert dropped is not None
            self._bytes -= dropped.nbytes

    def of(self, pack: PackRow) -> dict[int, EpisodeData]:
        """The episodes of a pack that was asked for, all of them here."""
        found = {}
        for episode in _episodes_of(pack):
            data = self._known[episode]
            assert data is not None
            found[episode] = data
        return found

    def let_go(self, pack: PackRow) -> None:
        """The pack that was asked for first is done with its episodes."""
        for episode in _episodes_of(pack):
            self._holders[episode] -= 1
            if not self._holders[episode]:
                del self._holders[episode]
                self._holders_bytes -= self._size(episode)

    @property
    def full(self) -> bool:
        """Whether the episodes that coming packs hold exceed the limit."""
        return self._holders_bytes > self._limit

    def signals(self, row: PackRow, episodes: Mapping[int, EpisodeData]) -> PackSignals:
        """The signals of a pack, of its episodes; any thread may ask."""
        return pack_signals(
            row,
            episodes,
            self._rows.plan.header.layout,
            state_size=self._state_size,
            action_size=self._action_size,
        )

    def _size(self, episode: int) -> int:
        """Bytes of an episode, expected ones where it is not here."""
        data = self._known[episode]
        if data is not None:
            return data.nbytes
        cameras = len(self._rows.cameras(episode))
        per_step = 4 * (self._state_size + self._action_size) + (4 + PACKET_BYTES) * cameras
        return int(self._rows.num_steps[episode]) * per_step + EPISODE_BYTES


def _episodes_of(pack: PackRow) -> dict[int, None]:
    """The episodes of a pack, each once, in the order of its spans."""
    return dict.fromkeys(pack.episode.tolist())
