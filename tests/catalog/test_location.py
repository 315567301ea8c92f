"""Where the catalog of a lake lies."""

from pathlib import Path

import pytest

from catalog import catalog_path
from lake import Lake


def test_a_local_lake_holds_its_catalog(lake: Lake) -> None:
    assert catalog_path(lake) == Path(lake.uri) / "catalog.duckdb"


def test_object_stores_and_read_only_lakes_use_the_cache(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one = catalog_path(Lake("s3://bucket/one.lake", {}))
    two = catalog_path(Lake("s3://bucket/two.lake", {}))
    assert one.parent == two.parent == tmp_path / "cache" / "headrace"
    assert one != two
    assert one == catalog_path(Lake("s3://bucket/one.lake", {"secret": "x"}))

    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert catalog_path(lake).parent == one.parent
