"""Files of logs as recorders write them: MCAP by its library, bags by rosbags, db3 by sqlite3."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from mcap.writer import CompressionType, Writer
from rosbags.rosbag1 import Writer as BagWriter

from ingest.messages.log import Channel, Message
from tests.ingest.messages.message_logs import definition_of, store


def write_mcap(
    path: Path,
    rows: Sequence[Message],
    *,
    compression: CompressionType = CompressionType.NONE,
    chunk_size: int = 1 << 20,
    chunked: bool = True,
    summary: bool = True,
) -> Path:
    """Write messages; without a summary as rosbag2's fastwrite profile does."""
    with path.open("wb") as file:
        writer = Writer(
            file,
            chunk_size=chunk_size,
            compression=compression,
            use_chunking=chunked,
            use_statistics=summary,
            use_summary_offsets=summary,
            repeat_schemas=summary,
            repeat_channels=summary,
        )
        writer.start(profile="ros2", library="tests")
        known: dict[int, int] = {}
        for row in rows:
            channel = row.channel
            if channel.id not in known:
                schema = (
                    writer.register_schema(
                        channel.schema_name, channel.schema_encoding, channel.schema
                    )
                    if channel.schema_name
                    else 0
                )
                known[channel.id] = writer.register_channel(
                    channel.topic, channel.message_encoding, schema
                )
            writer.add_message(
                known[channel.id], row.log_time_ns, row.payload, row.publish_time_ns, row.sequence
            )
        writer.finish()  # type: ignore[no-untyped-call]
    return path


def write_bag(
    path: Path,
    rows: Sequence[tuple[str, str, int, Mapping[str, Any]]],
    *,
    compression: BagWriter.CompressionFormat | None = None,
    chunk_bytes: int = 1 << 20,
) -> Path:
    """Write a ROS 1 bag of (topic, type, time, values)."""
    from tests.ingest.messages.message_logs import payload

    writer = BagWriter(path)
    if compression is not None:
        writer.set_compression(compression)
    writer.chunk_threshold = chunk_bytes
    types = store(1)
    with writer:
        known: dict[str, Any] = {}
        for topic, name, time, values in rows:
            if topic not in known:
                known[topic] = writer.add_connection(topic, name, typestore=types)
            writer.write(known[topic], time, payload(name, values, encoding="ros1"))
    return path


def write_db3(
    path: Path, rows: Sequence[Message], *, definitions: bool = True, journal: bool = False
) -> Path:
    """Write a storage file, of schema version 4 where it has definitions, else as before it.

    With `journal` what was written stays in the write-ahead log, as when the recorder is killed.
    """
    database = sqlite3.connect(path, isolation_level=None)
    if journal:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA wal_autocheckpoint=0")
    database.executescript(
        "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,"
        " serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);"
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,"
        " timestamp INTEGER NOT NULL, data BLOB NOT NULL);"
    )
    if definitions:
        database.execute(
            "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY, topic_type TEXT NOT NULL,"
            " encoding TEXT NOT NULL, encoded_message_definition TEXT NOT NULL,"
            " type_description_hash TEXT NOT NULL)"
        )
    channels: dict[int, Channel] = {row.channel.id: row.channel for row in rows}
    for number, channel in enumerate(channels.values(), 1):
        database.execute(
            "INSERT INTO topics VALUES(?, ?, ?, 'cdr', '')",
            (number, channel.topic, channel.schema_name),
        )
        if definitions:
            database.execute(
                "INSERT INTO message_definitions VALUES(?, ?, 'ros2msg', ?, '')",
                (number, channel.schema_name, definition_of(channel.schema_name).decode()),
            )
    numbers = {each: number for number, each in enumerate(channels, 1)}
    database.executemany(
        "INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)",
        [(numbers[row.channel.id], row.log_time_ns, row.payload) for row in rows],
    )
    if journal:
        data = path.read_bytes(), path.with_name(f"{path.name}-wal").read_bytes()
        database.close()
        path.write_bytes(data[0])
        path.with_name(f"{path.name}-wal").write_bytes(data[1])
    else:
        database.close()
    return path


def write_metadata(
    folder: Path, files: Sequence[str], counts: Mapping[str, int], **about: Any
) -> None:
    """`metadata.yaml` of a bag."""
    topics = [
        {
            "topic_metadata": {
                "name": topic,
                "type": "std_msgs/msg/Float64",
                "serialization_format": "cdr",
                "offered_qos_profiles": "- history: 1\n  depth: 10",  # never as in the storage
            },
            "message_count": count,
        }
        for topic, count in counts.items()
    ]
    described = {
        "version": 6,
        "storage_identifier": "mcap",
        "relative_file_paths": list(files),
        "message_count": sum(counts.values()),
        "topics_with_message_count": topics,
        "compression_format": "",
        "compression_mode": "",
        **about,
    }
    (folder / "metadata.yaml").write_text(
        yaml.safe_dump({"rosbag2_bagfile_information": described})
    )
