"""Change the labels of episodes: task, instruction, success, quality, split, tags."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from catalog.errors import LabelError
from catalog.selection import Selection
from lake.edit.apply import Author, edit_of, this_user
from lake.edit.log import append_edit
from lake.store import Lake
from lake.tables import TABLES

LABELS: Final = ("task", "instruction", "success", "quality", "split", "tags")
"""What can be set; all else of an episode is a fact of its recording."""


LabelValue = str | bool | float | Sequence[str] | None


def set_labels(
    lake: Lake,
    episodes: Selection | Sequence[str],
    *,
    by: Author | None = None,
    **labels: LabelValue,
) -> int:
    """Set labels of episodes, the same values for all, as one atomic commit.

    Only the label columns are rewritten; the table `edits` gets a row that says who did it.
    `label_version` of every episode goes up by one; where two label at once, both labels are kept
    and the version may go up once.

    Args:
        lake: an unpinned lake.
        episodes: a selection or distinct episode ids.
        by: who labels and why, kept in the table `edits`; by default the user of this process.
        **labels: of `LABELS`; None clears a label. `success` bool, `quality` number, `tags` list of
            str (replaces the tags that were there), others str.

    Returns:
        Number of episodes labelled.

    Raises:
        LabelError: no such label, a value of another type, unknown or repeated episodes; nothing is
            changed then.
        LakeError: the lake cannot be written.
    """
    ids = list(episodes.episode_ids if isinstance(episodes, Selection) else episodes)
    columns = _columns(labels, len(ids))
    if lake.pinned is not None:
        raise LabelError(f"{lake.uri}: a lake pinned to versions cannot be labelled")
    if not ids:
        raise LabelError("no episodes to label")
    if len(set(ids)) != len(ids):
        raise LabelError(f"{len(ids) - len(set(ids))} episode ids are given twice")
    table = lake.latest("episodes")
    with lake.errors_named("read label versions"):
        known = table.to_table(columns=["episode_id", "label_version"])
    versions = dict(
        zip(known["episode_id"].to_pylist(), known["label_version"].to_pylist(), strict=True)
    )
    unknown = [episode_id for episode_id in ids if episode_id not in versions]
    if unknown:
        raise LabelError(
            f"{lake.uri}: {len(unknown)} of {len(ids)} ids are not episodes of the lake, first"
            f" {unknown[0]!r}; nothing was changed"
        )
    rows = pa.table(
        {
            "episode_id": pa.array(ids, pa.string()),
            **columns,
            "label_version": pa.array([(versions[i] or 0) + 1 for i in ids], pa.int32()),
        }
    )
    # First, so that no label changes without a trace; who was cut short labels again.
    author = by or this_user()
    append_edit(
        lake,
        lambda _: replace(edit_of("relabel", author, ids), detail={"labels": dict(labels)}),
    )
    with lake.errors_named("set labels"):
        merge = table.merge_insert("episode_id").when_matched_update_all()
        done = merge.write_mode("rewrite_columns").execute(rows)["num_updated_rows"]
    if done != len(ids):
        # rewrite_columns passes over ids it does not find.
        raise LabelError(
            f"{lake.uri}: {done} of {len(ids)} episodes were labelled, the others were deleted"
            " meanwhile; look with `headrace sql` and label again"
        )
    return int(done)


def _columns(labels: Mapping[str, LabelValue], count: int) -> dict[str, pa.Array]:
    if not labels:
        raise LabelError(f"no label given; there are: {', '.join(LABELS)}")
    columns = {}
    for name, value in labels.items():
        if name not in LABELS:
            raise LabelError(f"no label {name!r}; there are: {', '.join(LABELS)}")
        kind = TABLES["episodes"].field(name).type
        try:
            columns[name] = pa.array([_plain(value, kind)] * count, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, UnicodeEncodeError) as error:
            raise LabelError(f"label {name}: {value!r} is not {kind}") from error
    return columns


def _plain(value: LabelValue, kind: pa.DataType) -> object:
    """The value as Arrow takes it without a guess.

    Raises:
        TypeError: Arrow would accept it, but it is not meant: text as a list, a bool as a number,
            a number that is not finite.
    """
    if value is None:
        return None
    if isinstance(value, (str, bool, int, float)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if pa.types.is_list(kind) or (pa.types.is_floating(kind) and not number):
            raise TypeError(type(value).__name__)
        if isinstance(value, float) and not math.isfinite(value):
            raise TypeError("not finite")
        return float(value) if pa.types.is_floating(kind) else value
    return list(value)
