"""Reads of the lake: repeated where that may help, until the deadline."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lake import Lake
from lake.errors import CorruptDataError, EpisodeNotFoundError, LakeError
from loader.errors import LoaderError, StorageTimeoutError
from loader.observe.metrics import LoaderMetrics
from loader.storage.origin import Origin, bounded, full_jitter
from loader.storage.settings import StorageSettings

URI = "s3://bucket/robots.lake"
BUSY = LakeError(f"{URI}: read video: LanceError(IO): status code: 503 Service Unavailable")
RESET = LakeError(f"{URI}: read video: LanceError(IO): HTTP error: error sending request")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def _origin(
    tmp_path: Path, time: Time, uri: str = URI, **settings: Any
) -> tuple[Origin, LoaderMetrics]:
    metrics = LoaderMetrics()
    lake = Lake(uri, {"aws_secret_access_key": "hidden-secret"})
    chosen = StorageSettings(cache_dir=str(tmp_path), **settings)
    return Origin(lake, chosen, metrics, clock=time.clock, sleep=time.sleep), metrics


def _failing(*errors: LakeError, result: str = "data") -> Callable[[], str]:
    """Raises these one after the other, then gives the result."""
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return result

    return attempt


def test_waits_double_up_to_a_limit_and_are_drawn_from_nought_on() -> None:
    ceilings = list(itertools.islice(full_jitter(0.5, 5.0, lambda: 1.0), 6))
    assert ceilings == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    draws = iter([0.0, 0.5, 0.25])
    waits = full_jitter(1.0, 100.0, lambda: next(draws))
    assert [next(waits) for _ in range(3)] == [0.0, 1.0, 1.0]


def test_what_passes_is_repeated_and_counted(tmp_path: Path) -> None:
    time = Time()
    origin, metrics = _origin(tmp_path, time)
    assert origin.read(lambda: "rows", _failing(BUSY, RESET, BUSY)) == "data"
    assert metrics.counts["retries"] == 3
    assert len([wait for wait in time.slept if wait]) <= 3
    assert sum(time.slept) <= 0.2 + 0.4 + 0.8
    origin.close()


def test_the_deadline_ends_in_a_named_error(tmp_path: Path) -> None:
    time = Time()
    origin, metrics = _origin(tmp_path, time, deadline_s=100.0)
    attempts = 0

    def attempt() -> str:
        nonlocal attempts
        attempts += 1
        raise RESET

    with pytest.raises(StorageTimeoutError) as failed:
        origin.read(lambda: "3 ranges of video", attempt)
    text = str(failed.value)
    assert text.startswith(f"{URI}: 3 ranges of video could not be read")
    assert f"failed {attempts} times" in text
    assert "error sending request" in text
    assert "deadline_s (100)" in text
    assert failed.value.__cause__ is RESET
    assert time.now <= 100.0
    assert attempts > 6
    assert metrics.counts["retries"] == attempts - 1
    origin.close()


def test_a_stall_of_a_minute_is_survived(tmp_path: Path) -> None:
    """The store answers nothing for 60 s: every request times out after its 30."""
    time = Time()
    origin, metrics = _origin(tmp_path, time)

    def attempt() -> str:
        if time.now < 60:
            time.now += 30
            raise RESET
        return "data"

    assert origin.read(lambda: "rows", attempt) == "data"
    assert metrics.counts["retries"] == 2
    origin.close()


@pytest.mark.parametrize(
    "error",
    [
        EpisodeNotFoundError("gone"),
        CorruptDataError("damaged: connection reset"),
        LakeError(f"{URI}: LanceError(IO): status code: 403 Forbidden: AccessDenied"),
        LakeError(f"{URI}: LanceError(IO): status code: 404 Not Found"),
        LakeError(f"{URI}: Not found: data/x.lance"),
        LakeError(f"{URI}: Invalid user input: Blob range end 5 exceeds blob size 4"),
    ],
)
def test_what_stays_is_raised_after_a_second_look(tmp_path: Path, error: LakeError) -> None:
    time = Time()
    origin, metrics = _origin(tmp_path, time)
    reopened: list[bool] = []
    origin._reopen = lambda: reopened.append(True)
    with pytest.raises(type(error)) as failed:
        origin.read(lambda: "rows", _failing(error, error))
    assert failed.value is error
    assert reopened == [True]
    assert sum(time.slept) == 0
    assert metrics.counts["retries"] == 1
    assert origin.read(lambda: "rows", _failing(error)) == "data"  # it was damaged on its way
    with pytest.raises(type(error)):  # between failures that pass, too
        origin.read(lambda: "rows", _failing(error, RESET, error))
    origin.close()


def test_each_attempt_opens_the_table_anew_unless_the_store_asks_for_patience(
    tmp_path: Path,
) -> None:
    origin, _ = _origin(tmp_path, Time())
    reopened: list[bool] = []
    origin._reopen = lambda: reopened.append(True)
    assert origin.read(lambda: "rows", _failing(BUSY, RESET, BUSY, RESET)) == "data"
    assert len(reopened) == 2
    origin.close()


@pytest.mark.parametrize(
    ("reason", "attempts"),
    [
        ("Stale file handle (os error 116)", 5),
        ("Connection timed out (os error 110)", 5),
        ("Input/output error (os error 5)", 5),
        ("No such file or directory (os error 2)", 2),
        ("Permission denied (os error 13)", 2),
        ("LanceError(IO): something with a connection", 2),
    ],
)
def test_a_mount_may_come_back_a_missing_file_does_not(
    tmp_path: Path, reason: str, attempts: int
) -> None:
    origin, metrics = _origin(tmp_path, Time(), uri="/mnt/timeout/robots.lake")
    attempt = _failing(*[LakeError(f"/mnt/timeout/robots.lake: read rows: {reason}")] * 4)
    if attempts == 5:
        assert origin.read(lambda: "rows", attempt) == "data"
    else:
        with pytest.raises(LakeError, match=r"os error|connection"):
            origin.read(lambda: "rows", attempt)
    assert metrics.counts["retries"] == attempts - 1
    origin.close()


def test_who_is_throttled_waits_with_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_IO_THREADS", "16")
    time = Time()
    origin, _ = _origin(tmp_path, time, requests_per_node=16)
    held: list[bool] = []

    class OneSlot:
        taken = False

        def slot(self, *_: object) -> "OneSlot":
            return self

        def __enter__(self) -> None:
            self.taken = True

        def __exit__(self, *_: object) -> None:
            self.taken = False

    budget = OneSlot()
    origin._budget = budget  # type: ignore[assignment]
    origin._sleep = lambda _: held.append(budget.taken)
    origin.read(lambda: "rows", _failing(BUSY, RESET, BUSY))
    assert held == [True, False, True]
    origin.close()


def test_closing_ends_a_wait(tmp_path: Path) -> None:
    metrics = LoaderMetrics()
    settings = StorageSettings(cache_dir=str(tmp_path))
    origin = Origin(Lake(URI, {}), settings, metrics)
    attempted = threading.Event()
    raised: list[BaseException] = []

    def attempt() -> str:
        attempted.set()
        raise RESET

    def read() -> None:
        try:
            origin.read(lambda: "rows", attempt)
        except LoaderError as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert attempted.wait(20)
    origin.close()
    thread.join(20)
    assert not thread.is_alive()
    assert "was closed while it read" in str(raised[0])


def test_refused_credentials_are_renewed_once(tmp_path: Path) -> None:
    refused = LakeError(f"{URI}: LanceError(IO): status code: 403 Forbidden: ExpiredToken")
    time = Time()
    origin, _ = _origin(tmp_path, time)
    renewals = 0

    def renew() -> bool:
        nonlocal renewals
        renewals += 1
        return True

    origin._lake.renew_credentials = renew  # type: ignore[method-assign]
    assert origin.read(lambda: "rows", _failing(refused)) == "data"
    with pytest.raises(LakeError, match="ExpiredToken"):
        origin.read(lambda: "rows", _failing(refused, refused))
    assert renewals == 2
    origin.close()


def test_requests_get_time_outs_and_the_users_own_win() -> None:
    settings = StorageSettings(request_timeout_s=12.5)
    lake = bounded(Lake(URI, {"timeout": "1s", "aws_region": "eu"}), settings)
    assert lake.storage_options["timeout"] == "1s"
    assert lake.storage_options["aws_region"] == "eu"
    assert lake.storage_options["connect_timeout"] == "5000ms"
    assert lake.storage_options["client_retry_timeout"] == "13"
    assert bounded(Lake(URI, {}), settings).storage_options["timeout"] == "12500ms"
    local = Lake("/data/robots.lake", {})
    assert bounded(local, settings) is local
