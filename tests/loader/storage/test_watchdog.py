"""What takes long is reported: once per interval, with what it is and where every thread stands."""

import threading

import pytest

from loader.storage.watchdog import WaitNotice, Watchdog


class Clock:
    """Monotonic seconds that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _quiet(clock: Clock, reports: list[str], slow: list[int]) -> Watchdog:
    """A watchdog whose thread never wakes, to be asked by hand."""
    watchdog = Watchdog(30.0, lambda: slow.append(1), report=reports.append, clock=clock)
    watchdog._closed.set()
    return watchdog


def test_a_read_is_reported_once_per_interval() -> None:
    clock, reports, slow = Clock(), list[str](), list[int]()
    watchdog = _quiet(clock, reports, slow)
    said = []
    with watchdog.watching(lambda: f"reading after {clock.now - 100:.0f} s"):
        for after in (0, 29.9, 30, 31, 59, 60.5, 61, 130, 149, 150):
            clock.now = 100.0 + after
            before = len(reports)
            watchdog.check()
            if len(reports) > before:
                said.append(after)
    clock.now = 1000.0
    assert watchdog.check() == 30.0
    assert said == [30, 60.5, 130, 150]
    assert len(slow) == 1
    assert "headrace: reading after 30 s takes 30 s already, in thread MainThread" in reports[0]


def test_check_tells_when_the_next_report_is_due() -> None:
    clock, reports = Clock(), list[str]()
    watchdog = _quiet(clock, reports, [])
    assert watchdog.check() == 30.0
    with watchdog.watching(lambda: "a"):
        clock.now += 10
        with watchdog.watching(lambda: "b"):
            assert watchdog.check() == 20.0
            clock.now += 21
            assert watchdog.check() == 9.0
            assert len(reports) == 1
            assert "b takes" not in reports[0]
            clock.now += 30
            watchdog.check()
            assert [line[:18] for line in reports[1].splitlines()[:2]] == [
                "headrace: a takes ",
                "headrace: b takes ",
            ]


def test_stacks_of_all_threads_are_shown() -> None:
    """By the real thread, of a read that hangs until the report has come."""
    reported, reports = threading.Event(), list[str]()
    started = threading.Event()

    def report(text: str) -> None:
        reports.append(text)
        reported.set()

    def a_decoder_that_waits() -> None:
        started.set()
        assert reported.wait(20)

    other = threading.Thread(target=a_decoder_that_waits, name="decoder")
    other.start()
    assert started.wait(20)
    watchdog = Watchdog(0.01, report=report)
    with watchdog.watching(lambda: "reading 5 ranges"):
        assert reported.wait(20)
    other.join()
    watchdog.close()
    assert "reading 5 ranges takes" in reports[0]
    assert "thread decoder:" in reports[0]
    assert "in a_decoder_that_waits" in reports[0]
    assert "in test_stacks_of_all_threads_are_shown" in reports[0]


def test_its_thread_starts_when_needed_and_ends() -> None:
    before = set(threading.enumerate())

    def running() -> bool:
        return bool(set(threading.enumerate()) - before)

    assert not running()
    watchdog = Watchdog(30.0)
    assert not running()
    for _ in range(2):
        with watchdog.watching(lambda: "x"):
            assert running()
    watchdog.close()
    assert not running()
    with watchdog.watching(lambda: "late"):
        assert not running()
    watchdog.close()


def test_its_thread_ends_with_it() -> None:
    watchdog = Watchdog(30.0)
    with watchdog.watching(lambda: "x"):
        thread = watchdog._thread
    assert thread is not None
    assert thread.is_alive()
    del watchdog
    thread.join(20)
    assert not thread.is_alive()


def test_a_report_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watchdog = Watchdog(1.0, clock=clock)
    watchdog._closed.set()
    with watchdog.watching(lambda: "reading"):
        clock.now += 1
        watchdog.check()
    captured = capsys.readouterr()
    assert captured.err.startswith("headrace: reading takes 1 s")
    assert not captured.out


def test_a_wait_is_reported_once_per_interval() -> None:
    clock, reports = Clock(), list[str]()
    notice = WaitNotice(10.0, lambda: "step 7", report=reports.append, clock=clock)
    for after in (1, 9, 10, 11, 19, 35, 36, 40):
        clock.now = 100.0 + after
        notice.check()
    assert reports == [f"headrace: waited {after} s for step 7" for after in (10, 35, 40)]
