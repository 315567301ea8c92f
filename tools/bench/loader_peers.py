"""Other loaders on the same recordings: each in its own environment, taking turns with ours.

LeRobot and lerobot-lancedb are asked for the very samples of our plan, in its order. webdataset and
Mosaic streaming shuffle by themselves; how well is computed from the samples that came.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
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
class PeerContender:
    """A peer on a recording.

    Attributes:
        peer: which.
        interpreter: of the environment that has it.
        recorded: what it reads.
        job: what it is asked.
    """

    peer: Peer
    interpreter: str
    recorded: Recorded
    job: PeerJob

    @property
    def key(self) -> tuple[str, str]:
        """Name and video, as the table shows them."""
        workers = f", {self.job.workers} workers" if self.job.workers else ""
        return f"{self.peer.label}{workers}", self.recorded.coding.label

    def run(self) -> list[PeerRun]:
        """One round.

        Raises:
            PeerError: it failed.
        """
        return [run_peer(self.interpreter, self.peer.script, self.job)]

    def row(self, runs: Sequence[PeerRun]) -> dict[str, Any]:
        """The line of the table."""
        name, video = self.key
        return stretch_row(
            f"{name} ({runs[0].library.split()[-1]})",
            video,
            [run.stretch for run in runs],
            shuffle_of(self.recorded, runs[0]),
        )

    def ratios(self, runs: Sequence[PeerRun]) -> dict[str, float]:
        """Its figures."""
        name, coding = self.peer.key, self.recorded.coding.key
        found = [run.stretch for run in runs]
        if not self.job.workers:
            return {f"{name}_window_cpu_ms_{coding}": median([s.cpu_ms for s in found])}
        return {
            f"{name}_window_samples_per_s_{coding}": median([s.samples_per_s for s in found]),
            f"{name}_first_batch_s": median([s.first_batch_s for s in found]),
        }


def peer_contenders(
    recordings: Sequence[Recorded],
    interpreters: Sequence[str],
    folder: Path,
    *,
    skip: int,
    count: int,
) -> tuple[list[PeerContender], list[Peer]]:
    """The peers that are installed, on recordings in their formats, and those that are not.

    Args:
        recordings: what is read; the first also with two workers.
        interpreters: of the environments that are searched, in this order.
        folder: for copies in the peers' formats.
        skip: batches of 32 before the timed ones.
        count: batches timed.

    Raises:
        PeerError: an interpreter cannot be run, or a recording not be converted.
    """
    contenders, absent = [], []
    for peer in PEERS:
        found = find_interpreter(peer, interpreters)
        if found is None:
            absent.append(peer)
            continue
        for number, recorded in enumerate(recordings):
            if number and peer.form == "steps":
                continue  # it has pictures of its own, whatever the video's coding
            dataset = convert(peer, recorded, found, folder)
            contenders += [
                PeerContender(
                    peer=peer,
                    interpreter=found,
                    recorded=recorded,
                    job=_job(peer, recorded, dataset, workers=workers, skip=skip, count=count),
                )
                for workers in ((0, 2) if number == 0 else (0,))
            ]
    return contenders, absent


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


def _job(
    peer: Peer, recorded: Recorded, dataset: Path, *, workers: int, skip: int, count: int
) -> PeerJob:
    packs = skip + count + 2 * workers + 1
    order = planned_order(recorded.windows, recorded.shape, packs=packs)
    return PeerJob(
        dataset=str(dataset),
        order=[(episode, step) for episode, step in order.tolist()] if peer.takes_orders else [],
        lengths=recorded.shape.lengths().tolist(),
        fps=recorded.shape.fps,
        batch=WINDOWS_PER_PACK,
        chunk=CHUNK,
        workers=workers,
        skip=skip,
        count=count,
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
