"""Other loaders on the same recordings: each in its own environment, taking turns with ours.

LeRobot and lerobot-lancedb are asked for the very samples of our plan, in its order. webdataset and
Mosaic streaming shuffle by themselves; how well is computed from the samples that came.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from lake.errors import HeadraceError
from packing.shuffle_quality import near_duplicates
from packing.spans import Int64s
from tools.bench.loader_data import CHUNK, WINDOWS_PER_PACK, Recorded, planned_order
from tools.bench.loader_windows import stretch_row
from tools.peers.job import PeerJob, PeerRun

NOT_INSTALLED: Final = "not installed"
_RUN: Final = Path(__file__).resolve().parents[1] / "peers" / "run.py"
_RUN_TIMEOUT_S: Final = 1800.0


class PeerError(HeadraceError):
    """A peer that is installed failed."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A loader, reading one format.

    Attributes:
        key: prefix of its ratios.
        label: as the table shows it.
        script: its module in `tools.peers`.
        library: what must be installed, as imported.
        form: of `write_streams` (`episodes` or `steps`), `lance` for lerobot-lancedb's converter,
            or None where it reads the LeRobot dataset.
        stream_format: `webdataset`, `mosaic` or None.
    """

    key: str
    label: str
    script: str
    library: str
    form: str | None = None
    stream_format: str | None = None

    @property
    def takes_orders(self) -> bool:
        """Whether it delivers the samples asked for; else it shuffles by itself."""
        return self.stream_format is None


PEERS: Final = (
    Peer(key="lerobot", label="LeRobot DataLoader", script="lerobot_loader", library="lerobot"),
    Peer(
        key="lancedb",
        label="lerobot-lancedb",
        script="lancedb_loader",
        library="lerobot_lancedb",
        form="lance",
    ),
    *(
        Peer(
            key=f"{stream_format}_{form}",
            label=f"{name}, {what}",
            script=f"{stream_format}_loader",
            library=library,
            form=form,
            stream_format=stream_format,
        )
        for stream_format, name, library in (
            ("webdataset", "webdataset", "webdataset"),
            ("mosaic", "Mosaic streaming", "streaming"),
        )
        for form, what in (("episodes", "MP4 per episode"), ("steps", "JPEG per step"))
    ),
)


@dataclass(frozen=True, kw_only=True)
class PeerBench:
    """How peers are measured.

    Attributes:
        interpreters: of the environments that are searched for peers, in this order.
        repetitions: rounds.
        skip: batches of 32 before the timed ones.
        count: batches timed.
    """

    interpreters: tuple[str, ...]
    repetitions: int
    skip: int
    count: int


@dataclass(frozen=True, kw_only=True)
class _Contender:
    peer: Peer
    recorded: Recorded
    workers: int
    run: Callable[[], PeerRun]


def measure_peers(
    recordings: Sequence[Recorded], bench: PeerBench, folder: Path
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Lines of the table, one for every peer that is absent too, and the ratios.

    Args:
        recordings: what is read; the first in all forms, with and without workers.
        bench: how.
        folder: for copies in the peers' formats.

    Raises:
        PeerError: a peer that is installed failed.
    """
    rows: list[dict[str, Any]] = []
    contenders: list[_Contender] = []
    for peer in PEERS:
        found = find_interpreter(peer, bench.interpreters)
        if found is None:
            rows.append({"contender": peer.label, "video": NOT_INSTALLED})
            continue
        for number, recorded in enumerate(recordings):
            if number and peer.form == "steps":
                continue  # pictures of its own: the video's coding is not read
            dataset = convert(peer, recorded, found, folder)
            for workers in (0, 2) if number == 0 else (0,):
                job = _job(peer, recorded, dataset, workers, bench)
                run = partial(run_peer, found, peer.script, job)
                contenders.append(
                    _Contender(peer=peer, recorded=recorded, workers=workers, run=run)
                )
    runs: list[list[PeerRun]] = [[] for _ in contenders]
    for _ in range(bench.repetitions):
        for contender, done in zip(contenders, runs, strict=True):
            done.append(contender.run())
    ratios: dict[str, float] = {}
    for contender, done in zip(contenders, runs, strict=True):
        rows.append(_row(contender, done))
        ratios |= _ratios(contender, done)
    return rows, ratios


def find_interpreter(peer: Peer, interpreters: Sequence[str]) -> str | None:
    """The first interpreter whose environment has the peer.

    Raises:
        PeerError: an interpreter cannot be run.
    """
    code = (
        "import importlib.util, sys;"
        f" sys.exit(0 if importlib.util.find_spec({peer.library!r}) else 3)"
    )
    for interpreter in interpreters:
        try:
            done = subprocess.run(
                [interpreter, "-P", "-c", code], check=False, timeout=_RUN_TIMEOUT_S
            )
        except OSError as error:
            raise PeerError(
                f"--peers {interpreter}: {error.strerror}; give the path of the interpreter of an"
                " environment that has peers (see tools/peers/README.md)"
            ) from error
        if done.returncode == 0:
            return interpreter
    return None


def convert(peer: Peer, recorded: Recorded, interpreter: str, folder: Path) -> Path:
    """The recording in the peer's format, written on first use."""
    if peer.form is None:
        return recorded.root
    target = folder / f"{recorded.coding.key}-{peer.stream_format or 'lancedb'}-{peer.form}"
    if target.exists():
        return target
    folder.mkdir(exist_ok=True)
    if peer.form == "lance":
        program = Path(interpreter).parent / "lerobot-lance-convert"
        _run([str(program), "--root", str(recorded.root), "--out", str(target)], "")
        return target
    job = {
        "source": str(recorded.root),
        "target": str(target),
        "format": peer.stream_format,
        "form": peer.form,
        "chunk": CHUNK,
        "seed": 0,
    }
    _run([interpreter, str(_RUN), "write_streams"], json.dumps(job))
    return target


def run_peer(interpreter: str, script: str, job: PeerJob) -> PeerRun:
    """Run a peer in a process of its own.

    Raises:
        PeerError: it failed, or is not there after all.
    """
    answer = json.loads(_run([interpreter, str(_RUN), script], json.dumps(asdict(job))))
    if "absent" in answer:
        raise PeerError(f"{script} of {interpreter}: {answer['absent']}")
    return PeerRun.from_message(answer)


def _run(command: list[str], stdin: str) -> str:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }
    environment.pop("PYTHONPATH", None)  # it is this environment's
    done = subprocess.run(
        command,
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=_RUN_TIMEOUT_S,
    )
    if done.returncode:
        raise PeerError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _job(peer: Peer, recorded: Recorded, dataset: Path, workers: int, bench: PeerBench) -> PeerJob:
    packs = bench.skip + bench.count + 2 * workers + 1
    order = planned_order(recorded.windows, recorded.shape, packs=packs)
    return PeerJob(
        dataset=str(dataset),
        order=[(episode, step) for episode, step in order.tolist()] if peer.takes_orders else [],
        lengths=recorded.shape.lengths().tolist(),
        cameras=[f"observation.images.{camera}" for camera in recorded.shape.cameras],
        fps=recorded.shape.fps,
        batch=WINDOWS_PER_PACK,
        chunk=CHUNK,
        workers=workers,
        skip=bench.skip,
        count=bench.count,
    )


def _row(contender: _Contender, runs: Sequence[PeerRun]) -> dict[str, Any]:
    workers = f", {contender.workers} workers" if contender.workers else ""
    return stretch_row(
        f"{contender.peer.label}{workers} ({runs[0].library.split()[-1]})",
        contender.recorded.coding.label,
        [run.stretch for run in runs],
        shuffle_of(contender.recorded, runs[0]),
    )


def shuffle_of(recorded: Recorded, run: PeerRun) -> dict[str, Any]:
    """How well the samples that came were shuffled, against as many drawn from all windows."""
    episode, position = np.array(run.delivered, np.int64).T
    lengths = recorded.shape.lengths()
    every = np.repeat(np.arange(len(lengths)), lengths)
    drawn = np.random.default_rng(0).permutation(every)
    step = np.arange(len(episode)) // WINDOWS_PER_PACK
    return {
        "Q1": _diversity(episode, drawn, 1),
        "Q16": _diversity(episode, drawn, 16),
        "near duplicates": f"{near_duplicates(step, episode, position):.3f}",
        "batches": f"{len(every) // WINDOWS_PER_PACK:,}",
        "run": "-",
    }


def _diversity(episode: Int64s, drawn: Int64s, batches: int) -> str:
    """Q_k: the effective number of episodes in k batches over that of a uniform draw."""
    size = batches * WINDOWS_PER_PACK
    if len(episode) < size:
        return "-"
    return f"{_effective(episode, size) / _effective(drawn, size):.2f}"


def _effective(episode: Int64s, size: int) -> float:
    """Mean of exp(entropy of the episodes) over windows of `size` samples."""
    found = []
    for begin in range(0, len(episode) - size + 1, size):
        share = np.unique(episode[begin : begin + size], return_counts=True)[1] / size
        found.append(np.exp(-(share * np.log(share)).sum()))
    return float(np.mean(found))


def _ratios(contender: _Contender, runs: Sequence[PeerRun]) -> dict[str, float]:
    key = f"{contender.peer.key}_window"
    coding = contender.recorded.coding.key
    median = statistics.median
    if contender.workers:
        return {
            f"{key}_samples_per_s_{coding}": median([r.stretch.samples_per_s for r in runs]),
            f"{contender.peer.key}_first_batch_s": median([r.stretch.first_batch_s for r in runs]),
        }
    return {f"{key}_cpu_ms_{coding}": median([r.stretch.cpu_ms for r in runs])}
