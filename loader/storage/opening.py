"""Opening a lake as patiently as it is read from then on."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from lake.errors import LakeError
from lake.store import Lake, normal_uri, open_lake
from loader.observe.metrics import LoaderMetrics
from loader.storage.origin import Origin, bounded
from loader.storage.settings import StorageSettings


def opened_lake(
    lake: Lake | str | Path,
    settings: StorageSettings,
    metrics: LoaderMetrics,
    *,
    storage_options: Mapping[str, str] | None = None,
    versions: Mapping[str, int] | None = None,
) -> Lake:
    """Open a lake with time-outs for its requests; what failed in passing is repeated.

    Args:
        lake: its URI, see `lake.store.open_lake`; one that is open already is given back.
        settings: see `StorageSettings`.
        metrics: where repeats are counted.
        storage_options: options of the object store.
        versions: table -> version to pin to.

    Raises:
        LakeError: as `open_lake`.
        StorageTimeoutError: the store failed until the deadline.
    """
    if isinstance(lake, Lake):
        return lake
    asked = bounded(Lake(normal_uri(lake), storage_options or {}, versions), settings)

    def attempt() -> Lake:
        try:
            return open_lake(asked.uri, storage_options=asked.storage_options, versions=versions)
        except OSError as error:  # of a folder on a mount, as Lance would name it
            raise LakeError(
                f"{asked.uri}: cannot be opened: {error.strerror} (os error {error.errno})"
            ) from error

    with closing(Origin(asked, settings, metrics)) as origin:
        return origin.read(lambda: "the ledger", attempt)
