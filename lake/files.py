"""Files below a lake, on any store: those that no version of a table names, and their removal."""

from collections.abc import Iterable

from lance.file import LanceFileSession

from lake.store import Lake


def files_under(lake: Lake, folder: str) -> list[str]:
    """Paths of all files in a folder of the lake, relative to the lake.

    Raises:
        LakeError: the store cannot be listed.
    """
    with lake.errors_named(f"list {folder}"):
        found: list[str] = _session(lake).list(folder)
    return [path if path.startswith(f"{folder}/") else f"{folder}/{path}" for path in found]


def delete_files(lake: Lake, paths: Iterable[str]) -> None:
    """Delete files, given relative to the lake; one that is not there is none.

    Raises:
        LakeError: the store refuses.
    """
    session = _session(lake)
    for path in paths:
        with lake.errors_named(f"delete {path}"):
            if session.contains(path):
                session.delete_file(path)


def unnamed_files(lake: Lake, table: str) -> list[str]:
    """Data files of a table that no version names, relative to the lake.

    They are those of a writer at work, or of one that was killed before its commit.

    Raises:
        LakeError: the store cannot be listed.
    """
    with lake.errors_named(f"list the files of {table}"):
        dataset = lake.latest(table)
        present = dataset.all_files().read_all()["path"].to_pylist()
        named = dataset.tracked_files().read_all()["path"].to_pylist()
    known = {_file_of(path) for path in named}
    return [
        f"{table}.lance/{path}"
        for path in present
        if path.startswith("data/") and _file_of(path) not in known
    ]


def _file_of(path: str) -> str:
    """`data/X` of `data/X.lance` and of `data/X/Y.blob`, where the blobs of X lie."""
    return "/".join(path.removesuffix(".lance").split("/")[:2])


def _session(lake: Lake) -> LanceFileSession:
    return LanceFileSession(lake.uri, storage_options=dict(lake.storage_options))
