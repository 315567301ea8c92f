"""The process in which the Rerun SDK reads: `python -P -m ingest.rerun.sdk_process FILE [ID]`.

On damaged bytes the SDK may abort its process, or ask for any amount of memory: neither must end
an ingest. Without an id it writes JSON, [[recording id, application id], ...]; with one the chunks
of that recording, each as eight bytes of length and an Arrow stream of one batch.
"""

import json
import resource
import sys
import warnings
from contextlib import suppress
from typing import Final

import pyarrow as pa

ENTITY: Final = b"headrace:entity"
STATIC: Final = b"headrace:static"
_MOST_MEMORY_BYTES: Final = 16 << 30


def main() -> None:
    """List recordings, or write the chunks of one."""
    # Some containers forbid it; then the machine's own limit holds.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    warnings.filterwarnings("ignore", message=".*footer.*")
    from rerun.chunk import RrdReader  # noqa: PLC0415  an extra

    path, *wanted = sys.argv[1:]
    reader = RrdReader(path)
    stores = {store.recording_id: store for store in reader.recordings()}
    out = sys.stdout.buffer
    if not wanted:
        listed = [[name, store.application_id] for name, store in stores.items()]
        out.write(json.dumps(listed).encode())
        return
    for chunk in reader.stream(store=stores[wanted[0]]).to_chunks():
        batch = chunk.to_record_batch()
        about = {ENTITY: chunk.entity_path.encode(), STATIC: str(int(chunk.is_static)).encode()}
        sink = pa.BufferOutputStream()
        marked = batch.replace_schema_metadata({**(batch.schema.metadata or {}), **about})
        with pa.ipc.new_stream(sink, marked.schema) as stream:
            stream.write_batch(marked)
        data = sink.getvalue()
        out.write(len(data).to_bytes(8, "little"))
        out.write(data)
    out.flush()


if __name__ == "__main__":
    main()
