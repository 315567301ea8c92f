"""Names that one process has at a time."""

from pathlib import Path

from loader.storage.claims import Claims


def test_a_file_that_is_no_claim_holds_nothing(tmp_path: Path) -> None:
    """Left by another version, say: to wait for it would be to wait for ever."""
    (tmp_path / "slot-0").write_bytes(b"")
    claims = Claims(tmp_path)
    claims.wait(["slot-0"], 60.0)
    with claims.claim(["slot-0"]) as ours:
        assert ours == {"slot-0"}
        with claims.claim(["slot-0"]) as others:
            assert others == set()
    assert list(tmp_path.iterdir()) == []
