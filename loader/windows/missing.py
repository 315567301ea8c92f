"""Steps that have no picture or no valid value, found before the first sample is asked for."""

import pyarrow as pa

from lake.edit.view import is_view
from lake.store import Lake
from lake.tables import VALID_SUFFIX
from lake.take import take_rows
from loader.errors import LoaderError
from loader.windows.index import WindowIndex
from loader.windows.keys import SpecKeys

_ADVICE = (
    "choose other episodes (episodes=), leave the key out (keys=), or take zeros that are marked"
    " in `<key>_is_pad` (missing='pad')"
)


def require_complete(lake: Lake, index: WindowIndex, keys: list[SpecKeys]) -> None:
    """Refuse episodes with steps that samples could not show.

    A training run should not learn of them after hours, from the sample that touches them.

    Raises:
        LoaderError: names how many episodes, the first of them, and what is missing.
    """
    _require_pictures(index, keys)
    _require_values(lake, index, keys)


def _require_pictures(index: WindowIndex, keys: list[SpecKeys]) -> None:
    named = [{camera.name: key for key, camera in spec.cameras.items()} for spec in keys]
    short: dict[str, list[int]] = {}
    columns = (index.episodes[name].to_pylist() for name in ("cameras", "camera_missing_steps"))
    for row, (cameras, missing) in enumerate(zip(*columns, strict=True)):
        for camera, steps in zip(cameras, missing, strict=True):
            if steps and camera in named[index.spec[row]]:
                short.setdefault(named[index.spec[row]][camera], []).append(row)
    for key, rows in short.items():
        raise LoaderError(
            f"{len(rows)} of {index.num_episodes} episodes have steps without a picture of {key},"
            f" first {index.episode_id(rows[0])}; {_ADVICE}"
        )


def _require_values(lake: Lake, index: WindowIndex, keys: list[SpecKeys]) -> None:
    dataset = lake.dataset("trajectories")
    stored = set(dataset.schema.names)
    columns = {
        feature.column + VALID_SUFFIX: key
        for spec in keys
        for key, feature in spec.features.items()
        if feature.column + VALID_SUFFIX in stored
    }
    ours = index.rows_by_address()
    for column, key in columns.items():
        with lake.errors_named("read validity"):
            masks: pa.Table = dataset.scanner(
                columns=[column], filter=f"`{column}` IS NOT NULL", with_row_address=True
            ).to_table()
        made = [address for address in ours if is_view(address)]
        found = dict(
            zip(masks["_rowaddr"].to_pylist(), masks[column].to_pylist(), strict=True)
        ) | dict(zip(made, take_rows(lake, made, [column])[column].to_pylist(), strict=True))
        rows = [
            ours[address]
            for address, mask in found.items()
            if address in ours and mask is not None and not all(mask)
        ]
        if rows:
            raise LoaderError(
                f"{len(rows)} of {index.num_episodes} episodes have steps without a valid value of"
                f" {key}, first {index.episode_id(min(rows))}; {_ADVICE}"
            )
