"""The Rerun SDK, in a process of its own (see `ingest.rerun.sdk_process`)."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

import ingest
from ingest.errors import EpisodeError, MissingReaderError, SourceError
from ingest.rerun.sdk_process import ENTITY, STATIC

_ROOT: Final = str(Path(ingest.__file__).resolve().parents[1])
_MOST_WORDS: Final = 300


def list_recordings(path: Path, root: Path) -> dict[str, str]:
    """Recording id -> application id.

    Args:
        path: to read.
        root: the recording's own path, for errors.

    Raises:
        MissingReaderError: rerun-sdk is not installed.
        SourceError: the SDK cannot read it, or there is none.
    """
    if find_spec("rerun") is None:
        raise MissingReaderError(
            f"{root}: reading .rrd needs rerun-sdk: pip install 'headrace[rerun]'"
        )
    with _process(path) as (process, errors):
        said = process.stdout.read() if process.stdout else b""
        if process.wait():
            raise SourceError(
                f"{root}: cannot be read ({_why(process, errors)}); if another version of Rerun"
                " wrote it, `rerun rrd migrate` makes a new one of it",
                reason="damaged-file",
            )
    if not (found := dict(json.loads(said))):
        raise SourceError(f"{root}: no recording in it", reason="no-episode")
    return found


def read_chunks(
    path: Path, recording_id: str, root: Path
) -> Iterator[tuple[str, bool, pa.RecordBatch]]:
    """(entity path, whether static, rows) of each chunk.

    Raises:
        EpisodeError: the SDK gave up, or died, on damaged bytes.
    """
    with _process(path, recording_id) as (process, errors):
        assert process.stdout is not None
        while size := process.stdout.read(8):
            data = process.stdout.read(int.from_bytes(size, "little"))
            if len(size) < 8 or len(data) < int.from_bytes(size, "little"):
                break
            batch = pa.ipc.open_stream(data).read_next_batch()
            about = batch.schema.metadata
            yield about[ENTITY].decode("utf-8", "replace"), about[STATIC] == b"1", batch
        if process.wait():
            raise EpisodeError(
                f"{root}: {recording_id} cannot be read ({_why(process, errors)})",
                reason="damaged-file",
            )


@contextmanager
def _process(*arguments: object) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ingest.rerun.sdk_process", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            yield process, errors
        finally:
            process.kill()
            process.communicate()


def _why(process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> str:
    """How it ended, and the last line that it wrote."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines() or [""]
    how = f"its reader died of signal {-process.returncode}: " if process.returncode < 0 else ""
    return f"{how}{lines[-1][:_MOST_WORDS]}"
