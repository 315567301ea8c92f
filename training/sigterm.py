"""SIGTERM as a request to stop after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_flag() -> Iterator[threading.Event]:
    """An event that SIGTERM sets; schedulers send it before they kill.

    Outside the main thread, where Python takes no signal handlers, the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def on_sigterm(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001  (signal's form)
        event.set()

    before = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)
