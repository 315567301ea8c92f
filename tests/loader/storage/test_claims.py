"""Names that one process has at a time."""

from pathlib import Path

from loader.storage.claims import Claims


def test_a_file_that_is_no_claim_holds_nothing(tmp_path: Path) -> None:
    """Left by another version, say: to wait for it would be to wait for ever."""
    (tmp_path / "entry").write_bytes(b"")
    claims = Claims(tmp_path)
    claims.wait(["entry"], 60.0)
    with claims.claim(["entry"]) as ours:
        assert ours == {"entry"}
        with claims.claim(["entry"]) as others:
            assert others == set()
    assert list(tmp_path.iterdir()) == []
