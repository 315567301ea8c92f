"""The arrays of a Zarr hierarchy, by the zarr library."""

import itertools
from contextlib import ExitStack
from typing import Any, Final

from ingest.errors import EpisodeError, MissingReaderError
from ingest.zarr.container import Container

_EXTRA_CODECS: Final = "imagecodecs"


class Hierarchy:
    """Open arrays of a container.

    Raises:
        MissingReaderError: zarr is not installed.
        SourceError: a damaged zip.
    """

    def __init__(self, container: Container) -> None:
        try:
            import zarr  # noqa: PLC0415  an extra
            from zarr.storage import LocalStore, ZipStore  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingReaderError(
                f"{container.path}: reading Zarr needs zarr: pip install 'headrace[zarr]'"
            ) from error
        _ = container.names  # a damaged zip is told of here
        self._container = container
        self._open_array: Any = zarr.open_array
        self._store: Any
        self._open = ExitStack()
        if container.is_zip:
            self._store = ZipStore(container.path, mode="r")
            self._open.callback(self._store.close)
        else:
            self._store = LocalStore(container.path, read_only=True)
        self._arrays: dict[str, Any] = {}

    def array(self, name: str) -> Any:  # noqa: ANN401  zarr's types promise less than they hold
        """An array.

        Raises:
            EpisodeError: damaged metadata, or a codec that is not installed.
        """
        if name not in self._arrays:
            _register_codecs()
            try:
                self._arrays[name] = self._open_array(store=self._store, path=name, mode="r")
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                hint = ": pip install 'headrace[zarr]'" if _EXTRA_CODECS in text else ""
                raise EpisodeError(
                    f"{self._container.path}:{name}: cannot be opened ({text}){hint}",
                    reason="unknown-codec" if "codec" in text.lower() else "damaged-stream",
                    stream=name.rsplit("/", 1)[-1],
                ) from error
        return self._arrays[name]

    def missing_chunks(self, name: str, start: int, stop: int) -> int:
        """Chunks of rows [start, stop) that are not stored, and read as the fill value."""
        array = self.array(name)
        sizes = array.shards or array.chunks
        grid = [range(start // sizes[0], -(-stop // sizes[0]))]
        grid += [range(-(-n // size)) for n, size in zip(array.shape[1:], sizes[1:], strict=True)]
        return sum(
            not self._container.has(f"{name}/{array.metadata.encode_chunk_key(where)}")
            for where in itertools.product(*grid)
        )

    def close(self) -> None:
        """Close the zip."""
        self._open.close()


def _register_codecs() -> None:
    """JPEG XL and others, where they are installed; an array that needs one says so otherwise."""
    try:
        from imagecodecs.numcodecs import register_codecs  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        return
    register_codecs(verbose=False)
