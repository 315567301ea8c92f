"""Fixtures of the ingest tests."""

from collections.abc import Iterator

import pytest

from tests.ingest import lerobot_data


@pytest.fixture(autouse=True)
def close_sources() -> Iterator[None]:
    """Close what a test opened by `open_source`."""
    yield
    while lerobot_data.OPENED:
        lerobot_data.OPENED.pop().close()
