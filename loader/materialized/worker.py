"""A process of `headrace plan materialize`: `python -P -m loader.materialized.worker FD`.

Like the decode process it imports neither torch nor the user's program. Its first message is a
`MaterializeJob` with the plan's memfd; then it is told one chunk at a time. Messages in:
`{"chunk": [first, stop]}`, rows of the plan. Messages out: `{"pack_bytes": n}` for each pack,
`{"chunk": [first, stop], "fragments": [...]}`, `{"error": ...}`. It writes data files and commits
nothing, and ends when the channel does: at the latest with the next pack.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import traceback

from lake.errors import HeadraceError
from lake.store import open_lake
from loader.fetch.plan_rows import PlanRows
from loader.materialized.chunk import ChunkWriter
from loader.materialized.job import MaterializeJob
from loader.materialized.pack_set import MaterializedSet
from loader.process.channel import Channel
from loader.process.error_wire import error_to_message
from loader.process.plan_wire import plan_from_memfd
from loader.storage.request_budget import limit_requests_per_read
from loader.storage.settings import StorageSettings


def main() -> None:
    """Serve chunks on the socket whose descriptor is the first argument."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what it means
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        _serve(channel)
    except ConnectionError:
        os._exit(0)  # the parent is gone: nobody to tell
    except BaseException as error:  # noqa: BLE001  # panics of native code are no Exceptions
        if not isinstance(error, HeadraceError):
            traceback.print_exc()
        channel.send(error_to_message(error))
        while channel.receive() is not None:  # unread messages would reset the socket
            pass
    os._exit(0)  # native threads would keep the interpreter from ending


def _serve(channel: Channel) -> None:
    if (first := channel.receive()) is None:
        return
    message, (plan_fd,) = first
    job = MaterializeJob.from_message(message)
    limit_requests_per_read(StorageSettings().requests_per_node)
    lake = open_lake(job.lake_uri, storage_options=job.storage_options)
    plan = plan_from_memfd(plan_fd, lake)
    os.close(plan_fd)
    writer = ChunkWriter(
        target=MaterializedSet.open(lake, plan.header, job.set_name),
        plan=plan,
        rows=PlanRows(plan),
    )
    while (received := channel.receive()) is not None:
        first_pack, stop = received[0]["chunk"]
        fragments = writer.write(first_pack, stop, lambda size: channel.send({"pack_bytes": size}))
        told = [json.dumps(fragment.to_json()) for fragment in fragments]
        channel.send({"chunk": [first_pack, stop], "fragments": told})


if __name__ == "__main__":
    main()
