"""Refusals are kept whatever the names in them."""

from lake import EpisodeWriter, Lake, QuarantineEntry


def test_a_file_name_that_is_not_unicode_is_written_out(lake: Lake) -> None:
    entry = QuarantineEntry(
        source="/data/e\udcfe.hdf5", episode="", stream="", reason="r", detail="d"
    )
    for _ in range(2):
        with EpisodeWriter(lake) as writer:
            writer.refuse(entry)
    [row] = lake.latest("quarantine").to_table().to_pylist()
    assert row["source"] == r"/data/e\udcfe.hdf5"
