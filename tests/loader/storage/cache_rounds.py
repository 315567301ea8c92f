"""Processes that use one cache folder and are killed: `python cache_rounds.py FOLDER SEED ROUNDS`.

A process of its own, since it forks: three users of the cache per round, each reading random
entries and telling after each read that it goes on; after a random number of reads one or all of
them are killed, wherever they are. Prints what was seen as JSON.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from loader.observe.metrics import LoaderMetrics
from loader.storage.cache_folder import ENTRIES, FLIGHTS, TEMPORARY, cache_folder
from loader.storage.node_cache import NodeCache, entry_name
from loader.storage.room import disk_bytes

USERS = 3
LIMIT = 400_000
LARGEST = 30_000
NAMES = 60


def payload(number: int) -> bytes:
    """Content of an entry: its length and bytes follow from its number."""
    rng = random.Random(number)
    return rng.randbytes(rng.randrange(1, LARGEST))


def use(folder: Path, seed: int, tell: int) -> None:
    """Read random entries until killed; the exit code tells of a wrong byte."""
    cache = NodeCache(folder, LIMIT, wait_s=5.0, metrics=LoaderMetrics())
    rng = random.Random(seed)
    while True:
        numbers = rng.sample(range(NAMES), rng.randrange(1, 5))

        def load(indexes: Sequence[int], numbers: list[int] = numbers) -> list[bytes]:
            return [payload(numbers[index]) for index in indexes]

        names = [entry_name(str(number)) for number in numbers]
        sizes = [LARGEST] * len(numbers)
        for index, found, _ in cache.read(names, sizes, load, renew=rng.random() < 0.1):
            if bytes(found) != payload(numbers[index]):
                os._exit(3)
        os.write(tell, b".")


def held(folder: Path) -> int:
    """Disk bytes of all entries and temporary files."""
    total = 0
    for part in (ENTRIES, TEMPORARY):
        for path in (cache_folder(folder) / part).rglob("*"):
            try:
                if path.is_file():
                    total += disk_bytes(path.stat().st_size)
            except FileNotFoundError:
                continue
    return total


def one_round(folder: Path, rng: random.Random) -> tuple[int, int]:
    """(most disk bytes seen, users that found a wrong byte)."""
    listen, tell = os.pipe()
    users = []
    for _ in range(USERS):
        seed = rng.random()
        pid = os.fork()
        if not pid:
            os.close(listen)
            try:
                use(folder, hash(seed), tell)
            finally:
                os._exit(4)
        users.append(pid)
    os.close(tell)
    most = wrong = 0
    rng.shuffle(users)
    while users:
        for _ in range(rng.randrange(25)):
            if not os.read(listen, rng.randrange(1, 4)):
                break
        most = max(most, held(folder))
        doomed = users if rng.random() < 0.5 else users[:1]
        for pid in list(doomed):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            wrong += not os.WIFSIGNALED(status)
            users.remove(pid)
    os.close(listen)
    return most, wrong


def main() -> None:
    """Run the rounds."""
    folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    most = wrong = 0
    for _ in range(rounds):
        seen, failed = one_round(folder, rng)
        most, wrong = max(most, seen), wrong + failed
    left = len(list((cache_folder(folder) / TEMPORARY).iterdir()))
    metrics = LoaderMetrics()
    cache = NodeCache(folder, LIMIT, wait_s=5.0, metrics=metrics)
    found = 0
    for number in range(NAMES):
        content = cache.get(entry_name(str(number)))
        wrong += content is not None and bytes(content) != payload(number)
        found += content is not None
    assert cache._room is not None
    print(
        json.dumps(
            {
                "most": most,
                "wrong": wrong,
                "damaged": metrics.counts["cache_damaged"],
                "left_by_the_dead": left,
                "temporary": len(list((cache_folder(folder) / TEMPORARY).iterdir())),
                "flights": len(
                    [p for p in (cache_folder(folder) / FLIGHTS).iterdir() if "-" not in p.name]
                ),
                "found": found,
                "held": held(folder),
                "counted": cache._room.counted_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
