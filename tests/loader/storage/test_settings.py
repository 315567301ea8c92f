"""Settings of storage that cannot work are refused when they are made."""

from typing import Any

import pytest

from loader.errors import LoaderError
from loader.storage.settings import StorageSettings


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cache_dir": "s3://bucket/cache"}, "a folder on a local disk"),
        ({"cache_bytes": 0}, "cache_bytes must be positive"),
        ({"cache_bytes": 1 << 30}, "there is no cache; say where by cache_dir"),
        ({"request_timeout_s": -1.0}, "request_timeout_s must be positive"),
        ({"deadline_s": 0.0}, "deadline_s must be positive"),
        ({"stall_warning_s": float("nan")}, "stall_warning_s must be positive"),
        ({"requests_per_node": 0}, "at least 1"),
        ({"deadline_s": 100.0, "batch_timeout_s": 100.0}, "more than deadline_s"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(LoaderError, match=says):
        StorageSettings(**wrong)


def test_settings_cross_to_another_process_as_plain_values() -> None:
    settings = StorageSettings(cache_dir="/cache", cache_bytes=5, requests_per_node=7)
    assert StorageSettings(**settings.to_dict()) == settings


def test_a_batch_is_waited_for_longer_than_a_read_may_take_and_less_than_nccl_waits() -> None:
    assert StorageSettings().deadline_s < StorageSettings().patience_s < 600
    assert StorageSettings(deadline_s=1000).patience_s > 1000
    assert StorageSettings(batch_timeout_s=7200.0).patience_s == 7200
