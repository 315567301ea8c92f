"""What a backend of varlen attention is, and what those that call a kernel share.

Shape suffixes: T tokens of queries, S tokens of keys, N segments, H heads of queries, Hk heads of
keys and values, D head size.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from training.attention.segments import Segments
from training.errors import ConfigError

Attend = Callable[[Tensor, Tensor, Tensor, Segments], Tensor]
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One way to attend.

    Attributes:
        name: in configurations and records.
        unfit: why it cannot train on a device in a dtype, whatever is installed; None where it can.
        load: imports its library and returns the function; raises ConfigError where that fails.
        prepare: makes what the function reads of segments, outside of compiled code.
    """

    name: str
    unfit: Callable[[torch.device, torch.dtype], str | None]
    load: Callable[[], Attend]
    prepare: Callable[[Segments], object]

    def refusal(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why this machine cannot train with it, None where it can."""
        reason = self.unfit(device, dtype)
        if reason is None:
            try:
                self.load()
            except ConfigError as error:
                return str(error)
        return reason


def half_on_cuda(
    device: torch.device,
    dtype: torch.dtype,
    *,
    least: tuple[int, int] = (8, 0),
    most: tuple[int, int] | None = None,
) -> str | None:
    """Why a kernel in half precision for a range of compute capabilities cannot run, if so."""
    if device.type != "cuda":
        return f"runs on CUDA devices only, not on {device.type}"
    if dtype not in {torch.float16, torch.bfloat16}:
        name = str(dtype).removeprefix("torch.")
        return f"takes float16 and bfloat16, not {name} (precision.dtype=bf16)"
    found = torch.cuda.get_device_capability(device)
    if found < least or (most is not None and found > most):
        wanted = f"{least[0]}.{least[1]} " + (f"to {most[0]}.{most[1]}" if most else "or more")
        return f"wants compute capability {wanted}, this device has {found[0]}.{found[1]}"
    return None


def imported(module: str, name: str) -> Any:  # noqa: ANN401  # of a library without types
    """A name of an optional library.

    Raises:
        ConfigError: it cannot be imported.
    """
    # Libraries for GPUs raise whatever they like where there is none: Transformer Engine a
    # RuntimeError, others an OSError for a missing CUDA.
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        raise ConfigError(
            f"{module}.{name} cannot be imported: {type(error).__name__}: {lines[0]}"
        ) from error


def untraced(function: _F) -> _F:
    """The function as it is: compiled code has a graph break where it calls it."""
    disable: Callable[[_F], _F] = torch.compiler.disable
    return disable(function)


def attend_by_kernel(
    kernel: Attend, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, name: str
) -> Tensor:
    """Call a kernel that knows segments, and keep it from rows of which kernels say nothing.

    Queries that see no key are zero on the way in and on the way out, and so are their gradients,
    whatever a kernel leaves in memory that it had nothing to write to.

    Raises:
        ConfigError: the segments hide keys, which such kernels cannot.
    """
    if segments.key_mask is not None:
        raise ConfigError(
            f"attention backend {name} takes no key mask: padded batches need sdpa or flex"
        )
    if not len(q) or not len(k):
        return attend_to_nothing(q, k, v)
    sees_keys = segments.sees_keys
    if sees_keys is None:
        return kernel(q, k, v, segments)
    return kernel(q.where(sees_keys, 0.0), k, v, segments).where(sees_keys, 0.0)


def attend_to_nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Zeros [T, H, D], of which all inputs are part.

    Under DDP every parameter must get a gradient on every rank, be it zero. Sums over no rows are 0
    whatever the rows hold.
    """
    return torch.zeros_like(q) + (q[:0].sum() + k[:0].sum() + v[:0].sum())
