"""`headrace bench cost`: what a pack costs to compute on this device.

Forward and backward of a stack of transformer layers (linear layers, and attention through the
backend that training uses there) are timed on packs of several token counts, each cut into spans
of several lengths, and weights of pack, token, squared length and image are fitted. The fit is
checked on packs of mixed lengths, which it has not seen. `headrace pack --cost` takes the result,
so that ranks are balanced by what steps really take.
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from lake.errors import HeadraceError
from packing.cost import CostModel, MeasuredCost
from tools.bench.cost_fit import CostFit, CostSample, fit_cost
from tools.bench.cost_stack import (
    SHORTEST,
    TimedPack,
    TimedStack,
    even_packs,
    image_packs,
    mixed_packs,
)
from tools.bench.framework import BenchResult, Timing, interleave, provenance, spread
from training.attention.calls import calls_of
from training.attention.choose import choose_backend
from training.attention.varlen import use_backend
from training.models.film.config import FilmConfig

MAX_ERROR: Final = 0.1
_MAX_TOKENS: Final = (2048, 8192)  # on a CPU, on a GPU


class CostBenchError(HeadraceError):
    """The cost cannot be measured as asked, or was measured too badly to be used."""


@dataclass(frozen=True, kw_only=True)
class CostSetup:
    """What is measured.

    Attributes:
        d_model, heads, layers, mlp_ratio: of the transformer; `layers` matters where images or the
            launch of a pack weigh in.
        max_tokens: of the largest pack; the others have a half and a quarter of it. None takes
            8192 on a GPU and 2048 on a CPU, which would be at it for an hour.
        image_size: height and width in pixels of images through the vision encoder of Headrace's
            own policy; 0 leaves images out.
        device: a torch device, or None for the GPU where there is one.
        repetitions: timed rounds over all packs.
    """

    d_model: int = 1024
    heads: int = 16
    layers: int = 2
    mlp_ratio: int = 4
    max_tokens: int | None = None
    image_size: int = 0
    device: str | None = None
    repetitions: int = 7

    def __post_init__(self) -> None:
        for name in ("d_model", "heads", "layers", "mlp_ratio", "repetitions"):
            if getattr(self, name) < 1:
                raise CostBenchError(f"{name} must be at least 1, is {getattr(self, name)}")
        if self.d_model % (2 * self.heads):
            raise CostBenchError(
                f"d_model {self.d_model} must be an even number of features for each of"
                f" {self.heads} heads"
            )
        if self.max_tokens is not None and self.max_tokens < 16 * SHORTEST:
            raise CostBenchError(f"max_tokens must be at least {16 * SHORTEST}")
        if self.image_size < 0:
            raise CostBenchError(f"image_size must not be negative, is {self.image_size}")


QUICK: Final = CostSetup(d_model=256, heads=4, max_tokens=1024, repetitions=5)
FULL: Final = CostSetup()


def run(quick: bool) -> BenchResult:  # noqa: FBT001  (the signature of every bench)
    """Measure with the default setup."""
    return measure_cost(QUICK if quick else FULL)[0]


def measure_cost(setup: CostSetup) -> tuple[BenchResult, MeasuredCost]:
    """Time, fit and check.

    Raises:
        CostBenchError: the device is not there, or its timings do not grow with tokens.
    """
    device = _device(setup.device)
    config = FilmConfig(
        width=setup.d_model,
        layers=setup.layers,
        heads=setup.heads,
        head_dim=setup.d_model // setup.heads,
        mlp_ratio=setup.mlp_ratio,
        film=False,
    )
    stack = TimedStack(config, device, image_size=setup.image_size)
    most = setup.max_tokens or _MAX_TOKENS[device.type == "cuda"]
    fitted = even_packs(most)
    if setup.image_size:
        fitted |= image_packs(most)
    packs = fitted | mixed_packs(most)
    longest = packs[next(reversed(packs))]
    choice = choose_backend("auto", device, stack.dtype, lambda: calls_of(stack.step(longest)))
    with use_backend(choice.name):
        seconds = _time(packs, stack, device, setup.repetitions)
    samples = {
        name: packs[name].sample(statistics.median(taken)) for name, taken in seconds.items()
    }
    fit = fit_cost([samples[name] for name in fitted])
    if fit.per_token + fit.per_square <= 0:
        raise CostBenchError(
            "the timings do not grow with tokens: the device is too busy, or the packs are too"
            " small; measure on an idle device, with more --repetitions or --max-tokens"
        )
    cost, unit_s = CostModel.of_seconds(
        **asdict(fit),
        reference_s=statistics.median(sample.seconds for sample in samples.values()),
    )
    measured = MeasuredCost(
        cost=cost,
        unit_s=unit_s,
        relative_error=fit.root_mean_square_error([samples[name] for name in fitted]),
        check_error=fit.root_mean_square_error(
            [sample for name, sample in samples.items() if name not in fitted]
        ),
        measured={**_where(setup, stack, device, choice.name), "max_tokens": most},
    )
    return _result(fit, measured, samples, seconds, fitted), measured


def make_folder(path: Path) -> None:
    """Make the folder of a file that is to be written: a wrong path is known before measuring.

    Raises:
        CostBenchError: it cannot be made, or the path is a folder itself.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CostBenchError(f"{path} cannot be written: {error}; give another --out") from error
    if path.is_dir():
        raise CostBenchError(f"{path} is a folder; give --out a file, as {path / 'cost.json'}")


def write_measured(measured: MeasuredCost, path: Path) -> None:
    """Write the file that `headrace pack --cost` takes.

    Raises:
        CostBenchError: the fit is too far from what was measured to balance by.
    """
    worst = max(measured.relative_error, measured.check_error)
    if worst > MAX_ERROR:
        raise CostBenchError(
            f"{path} is not written: the fit is off by {worst:.1%}, more than {MAX_ERROR:.0%}; the"
            " table above tells where; measure on an idle device, or with more --repetitions"
        )
    measured.write(path)


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise CostBenchError(f"device {name!r} cannot be used: {first}") from error
    return device


def _seconds(timing: Timing, device: torch.device) -> float:
    """CPU seconds on one thread, which other processes disturb less; elapsed ones on a device."""
    return timing.cpu_s if device.type == "cpu" else timing.wall_s


def _time(
    packs: Mapping[str, TimedPack], stack: TimedStack, device: torch.device, repetitions: int
) -> dict[str, list[float]]:
    """Seconds of each repetition, one thread where it is a CPU that computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timings = interleave(
            {name: stack.step(pack) for name, pack in packs.items()}, repetitions=repetitions
        )
    finally:
        torch.set_num_threads(threads)
    return {name: [_seconds(timing, device) for timing in timed] for name, timed in timings.items()}


def _where(
    setup: CostSetup, stack: TimedStack, device: torch.device, attention: str
) -> dict[str, str | int | float]:
    found = provenance()
    gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if gpu else found["machine"]["cpu"],
        "dtype": str(stack.dtype).removeprefix("torch."),
        "attention": attention,
        "d_model": setup.d_model,
        "heads": setup.heads,
        "layers": setup.layers,
        "mlp_ratio": setup.mlp_ratio,
        "image_size": setup.image_size,
        "torch": found["versions"]["torch"],
        "headrace": found["versions"]["headrace"],
    }


def _result(
    fit: CostFit,
    measured: MeasuredCost,
    samples: Mapping[str, CostSample],
    seconds: Mapping[str, list[float]],
    fitted: Mapping[str, TimedPack],
) -> BenchResult:
    where = measured.measured
    counted = 6 * int(where["d_model"])
    weights: dict[str, Any] = {
        "us_per_pack": 1e6 * fit.per_pack,
        "us_per_span": 1e6 * fit.per_span,
        "us_per_image": 1e6 * fit.per_image,
        "ns_per_token": 1e9 * fit.per_token,
        "ns_per_square": 1e9 * fit.per_square,
    }
    if fit.per_square:
        weights["even_length"] = fit.per_token / fit.per_square
        weights["even_length_over_counted"] = weights["even_length"] / counted
    model = (
        f"{where['layers']} layers of width {where['d_model']}, {where['heads']} heads,"
        f" MLP {where['mlp_ratio']}x"
    )
    counting = f"by counting operations it is {counted} tokens"
    return BenchResult(
        name="cost",
        rows=[
            {
                "pack": name,
                "measured_ms": spread([1e3 * value for value in seconds[name]]),
                "fit_ms": 1e3 * fit.seconds(sample),
                "off_by": f"{fit.error(sample):+.1%}",
                "used_to": "fit" if name in fitted else "check",
            }
            for name, sample in samples.items()
        ],
        ratios={
            "fit_error": measured.relative_error,
            "check_error": measured.check_error,
            **weights,
        },
        notes=[
            f"{where['device']}, {where['dtype']}, attention {where['attention']}; {model}",
            "forward and backward; no optimizer, no loading; medians of interleaved repetitions",
            "fit_error, check_error: root mean square of (fit - measured) / measured",
            "checked on packs of mixed lengths, which the fit has not seen",
            f"even_length: where attention costs as much as linear layers; {counting}",
        ],
    )
