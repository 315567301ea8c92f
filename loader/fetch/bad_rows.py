"""Rows of episodes that cannot be read as they were written: read again, and what then is known.

As with packets (see `loader.fetch.bad_bytes`), damage in the lake is the same in every read. A row
that is damaged gives up its whole episode; the plan still knows its length and its cameras, and the
row the size of their pictures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from lake.episode_row import facts_checksum
from lake.errors import CorruptDataError, LakeError
from lake.spec import Spec
from lake.tables import FACTS
from lake.video_index import VideoIndex
from loader.bad_spans import Damage
from loader.errors import LoaderError
from loader.storage.tiers import Tiers

MOST_REREADS: Final = 4
UNUSABLE: Final = (LakeError, LoaderError, ValueError, TypeError)
"""What making sense of a damaged row may raise; a text in it may be no Unicode any more."""

_FACTS_CHECKSUM: Final = "facts_checksum"
_SIZE_COLUMNS: Final = ("cameras", "camera_heights", "camera_widths")
_LARGEST_SIDE: Final = 1 << 14
_UNKNOWN_SIZE: Final = (16, 16)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reread(Generic[T]):
    """What came of reading a row again.

    Attributes:
        content: what is in it, None where it is damaged.
        damage: of the row, None where it is sound.
        row: as it lies in the lake, with all that `picture_sizes` asks for.
    """

    content: T | None
    damage: Damage | None
    row: pa.Table


def read_row_again(
    tiers: Tiers, address: int, columns: Sequence[str], parse: Callable[[pa.Table], T], name: str
) -> Reread[T]:
    """Read a row past every cache until it can be parsed, or two reads agree that it cannot.

    Args:
        tiers: where to read.
        address: of the row.
        columns: that `parse` needs.
        parse: makes sense of the row, and raises one of `UNUSABLE` where it cannot.
        name: of the episode, as messages begin.

    Raises:
        LakeError, LoaderError: what `parse` raised, where no checksum says that the row is to
            blame (it is another lake's, say); or the store failed.
        CorruptDataError: every read brings other wrong bytes.
    """
    wanted = list(dict.fromkeys([*columns, *FACTS, _FACTS_CHECKSUM, *_SIZE_COLUMNS]))
    seen: set[bytes] = set()
    for attempt in range(MOST_REREADS):
        # Caches know a row by its columns: the first read renews what they hold.
        row = tiers.rows([address], wanted if attempt else columns, past_caches=True)
        try:
            return Reread(content=parse(row), damage=None, row=row)
        except UNUSABLE as error:
            problem = error
        content = _bytes_of(row.select(list(columns)))
        if content in seen:
            return Reread(content=None, damage=_damage(row, problem, name), row=row)
        seen.add(content)
    raise CorruptDataError(damaged_on_the_way(f"{name}: {_reason(problem, name)}"))


def damaged_on_the_way(problem: str) -> str:
    """The message where no two reads agree."""
    return (
        f"{problem}, and each of {MOST_REREADS} further reads gave other bytes: they are damaged on"
        " the way, not in the lake; check this machine's memory, its network and what lies between"
        " it and the store"
    )


def picture_sizes(row: pa.Table, spec: Spec, cameras: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Camera -> (height, width) of its pictures, where its index is lost.

    They are in columns of their own. Where these do not name the camera any more, its nominal size
    has to do, and in the end any: what matters is that it follows from lake and plan alone.
    """
    sizes = {camera.name: (camera.height, camera.width) for camera in spec.cameras}
    try:
        columns = [row[name].to_pylist()[0] for name in _SIZE_COLUMNS]
        told = {name: (h, w) for name, h, w in zip(*columns, strict=True) if _is_size((h, w))}
    except (ValueError, TypeError):
        told = {}
    found = {**sizes, **told}
    return {
        name: size if _is_size(size := found.get(name, (0, 0))) else _UNKNOWN_SIZE
        for name in cameras
    }


def stand_in(height: int, width: int, num_steps: int) -> VideoIndex:
    """For the lost index of a camera: one picture, shown at every step, that nobody decodes."""
    return VideoIndex(
        codec="",
        width=width,
        height=height,
        pix_fmt="gray",
        time_base=(1, 1),
        packet_size=np.zeros(1, np.int32),
        packet_frame=np.zeros(1, np.int32),
        packet_pts=np.zeros(1, np.int64),
        packet_checksum=np.zeros(1, np.uint64),
        packet_key=np.ones(1, np.bool_),
        step_to_frame=np.zeros(num_steps, np.int32),
    )


def _damage(row: pa.Table, problem: Exception, name: str) -> Damage:
    """What is wrong with a row that every read brings alike.

    Raises:
        LakeError, LoaderError: the problem, where the row's facts are as they were written.
    """
    if isinstance(problem, CorruptDataError):
        return Damage(camera="", reason=_reason(problem, name))
    if not _has_its_facts(row):
        return Damage(camera="", reason="its facts do not match their checksum")
    if isinstance(problem, LakeError | LoaderError):
        raise problem
    return Damage(camera="", reason=f"its row cannot be parsed ({problem})")


def _reason(problem: Exception, name: str) -> str:
    """What an error says beyond the name of the episode and what to do."""
    return str(problem).removeprefix(name).lstrip(":, ").partition(";")[0]


def _has_its_facts(row: pa.Table) -> bool:
    try:
        facts: Mapping[str, Any] = row.to_pylist()[0]
    except UnicodeDecodeError:
        return False
    return bool(facts_checksum(facts) == facts[_FACTS_CHECKSUM])


def _is_size(size: tuple[int, int]) -> bool:
    return all(0 < side <= _LARGEST_SIDE for side in size)


def _bytes_of(row: pa.Table) -> bytes:
    """A row as bytes; equality of tables would not do, since NaN differs from itself."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_table(row)
    content: bytes = sink.getvalue().to_pybytes()
    return content
