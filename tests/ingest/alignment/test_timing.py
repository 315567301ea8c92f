"""How streams came, and how their clocks run."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.alignment.timing import percentile_ns, stream_timing
from tests.ingest.alignment.timed_streams import MS, aligned, details, reasons, stream


def test_timing_tells_rates_gaps_and_how_clocks_run() -> None:
    log = np.arange(1000, dtype=np.int64) * 10 * MS
    header = 5_000 * MS + log + log // 20_000  # 50 ppm
    (timing,) = aligned([stream("imu", [0] * 1000, clocks={"log": log, "header": header})]).timing
    assert timing.real_hz == pytest.approx(100)
    assert timing.nominal_hz == pytest.approx(100)
    assert (timing.p50_gap_ns, timing.p95_gap_ns, timing.max_gap_ns) == (10 * MS,) * 3
    (clock,) = timing.clocks
    assert clock.drift_ppm == pytest.approx(50, abs=0.01)
    assert clock.offset_ns == pytest.approx(5_000 * MS + 250_000, abs=1000)


def test_drift_is_found_under_jitter_and_outliers_at_a_great_offset() -> None:
    rng = np.random.default_rng(3)
    true = np.arange(6000, dtype=np.int64) * 10 * MS
    late = rng.exponential(1 * MS, 6000).astype(np.int64)
    late[rng.random(6000) < 0.05] += 300 * MS
    log = 1_760_000_000 * 1000 * MS + true + late
    (clock,) = stream_timing("imu", {"log": log, "device": true - true // 50_000}, "log").clocks
    assert clock.drift_ppm == pytest.approx(-20, abs=2)
    assert clock.offset_ns == pytest.approx(-1_760_000_000 * 1000 * MS, abs=3 * MS)


def test_few_samples_tell_no_drift_and_equal_stamps_no_rate() -> None:
    stamps = np.arange(7, dtype=np.int64)
    (clock,) = stream_timing("x", {"log": stamps, "header": stamps * 2}, "log").clocks
    assert clock.drift_ppm is None
    still = stream_timing("x", {"log": np.zeros(9, np.int64), "header": np.arange(9)}, "log")
    assert (still.real_hz, still.nominal_hz, still.max_gap_ns) == (None, None, 0)
    assert still.duplicate_stamps == 8
    assert still.clocks[0].drift_ppm is None


@settings(max_examples=150)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_counts_are_those_of_a_plain_loop(stamps: list[int]) -> None:
    timing = stream_timing("x", {"log": np.array(stamps, np.int64) * MS}, "log")
    pairs = list(itertools.pairwise(stamps))
    distinct = sorted(set(stamps))
    gaps = sorted((b - a) * MS for a, b in itertools.pairwise(distinct))
    resets = [n for n, (a, b) in enumerate(pairs, 1) if a - b > 1000]
    assert timing.count == len(stamps)
    assert timing.backward_stamps == sum(b < a for a, b in pairs)
    assert timing.duplicate_stamps == len(stamps) - len(distinct)
    assert timing.reset_at == (resets[0] if resets else None)
    assert timing.max_gap_ns == max(gaps, default=0)
    if gaps:
        below = sum(gap <= timing.p95_gap_ns for gap in gaps)
        assert timing.p95_gap_ns in gaps
        assert below >= 0.95 * len(gaps)
        assert timing.p50_gap_ns == gaps[(len(gaps) - 1) // 2]
    assert json.loads(json.dumps(timing.to_dict()))["count"] == len(stamps)


def test_percentiles_are_elements() -> None:
    ten = np.arange(1, 11, dtype=np.int64)
    assert [percentile_ns(ten, p) for p in (0, 10, 50, 51, 95, 100)] == [1, 1, 5, 6, 10, 10]
    assert percentile_ns(ten[:0], 95) == 0


def test_every_stream_reports_its_timing_and_ages() -> None:
    log = np.array([0, 10, 20, 30], np.int64) * MS
    result = aligned(
        [
            stream("imu", [0] * 4, clocks={"log": log, "header": log - 2 * MS}),
            stream("clock", [0, 4, 8, 12, 16, 29]),
        ],
        grid="clock",
    )
    assert details(result, "stream-timing")["imu"] == (
        "4 samples by log at 100.00 Hz (100.00 by the median gap), gaps 10.000 ms median,"
        " 10.000 ms p95, 10.000 ms at most; 0 repeated and 0 backward stamps; header is"
        " -2.000 ms off log; at the steps 9.000 ms old (p95)"
    )


def test_lost_samples_and_bursts_are_told() -> None:
    lost = [0, 10, 20, 30, 100, 110, 120]
    result = aligned([stream("state", lost), stream("clock", range(0, 120, 10))], grid="clock")
    assert ("warning", "state", "rate-below-nominal") in reasons(result)
    assert (
        "50.00 samples/s, 100.00 by the median gap"
        in (details(result, "rate-below-nominal")["state"])
    )
