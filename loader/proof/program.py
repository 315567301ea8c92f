"""What is put to the proof: a rank of a training job, as a generator of what it consumed.

A loader of any make is proved by writing one such function in an importable module:

```python
def rank(setup: RankSetup) -> Reports:
    loader = MyLoader(setup.arguments["path"], setup.rank, setup.world_size)
    if setup.state is not None:
        loader.load_state_dict(setup.state)
    for batch in loader:
        yield PackReport(step=batch.step, spans=..., ends_step=..., state=loader.state_dict())
```

It stands for a trainer that has the batch in hand when it yields, and asks for the next one when it
is resumed. The harness runs it in processes of its own and kills them, or in its own process.
"""

import importlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from loader.proof.errors import ProofError

Occurrence = tuple[int, int, int]
"""(epoch, span id, how often the span was consumed in this epoch before)."""

State = Mapping[str, Any]
"""A position as JSON can hold it."""

_HEADRACE_ERROR: Final = "lake.errors:HeadraceError"


@dataclass(frozen=True, kw_only=True)
class PackReport:
    """One batch that a rank was handed.

    Attributes:
        step: the optimizer step that it belongs to.
        spans: the samples in it, in order.
        ends_step: whether it is the rank's last of its step; with gradient accumulation a rank
            has several.
        state: what a trainer that saved now would save, to resume at the begin of this step or,
            where it ends the step, of the next one; None where nothing may be saved now.
        slot: which of the step's packs it is, the same in every world size; None where the loader
            knows no slots.
        digest: of every byte of the batch; "" where bytes are not compared.
        counts: what the rank counted so far, such as retries; for the report only.
    """

    step: int
    spans: tuple[Occurrence, ...]
    ends_step: bool
    state: State | None
    slot: int | None = None
    digest: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_message(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON, as `dataclasses.asdict` gave it."""
        spans = tuple((int(e), int(s), int(k)) for e, s, k in raw["spans"])
        return cls(**{**raw, "spans": spans})


@dataclass(frozen=True, kw_only=True)
class RankSetup:
    """Where a rank starts.

    Attributes:
        rank, world_size: of it.
        state: to resume from, None at the first start.
        first_step: step to begin at where there is no state.
        arguments: of the program.
    """

    rank: int
    world_size: int
    state: State | None
    first_step: int
    arguments: Mapping[str, Any]


Reports = Generator[PackReport, None, None]
"""What a rank function returns, by `yield`; closing it ends the loader."""

Rank = Callable[[RankSetup], Reports]


@dataclass(frozen=True, kw_only=True)
class RankProgram:
    """A rank function, and what it is called with.

    Attributes:
        target: `module:function`, importable in another process with our `sys.path`.
        arguments: as JSON can hold them; they cross a pipe, so credentials show in no process list.
        fds: descriptors that the rank's process inherits.
        named_errors: `module:class` of the errors by which the loader says that it gives up.
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    named_errors: tuple[str, ...] = (_HEADRACE_ERROR,)

    def start(
        self, rank: int, world_size: int, state: State | None = None, first_step: int = 0
    ) -> Reports:
        """Start a rank in this process.

        Raises:
            ProofError: there is no such function.
        """
        function: Rank = resolve(self.target)
        return function(
            RankSetup(
                rank=rank,
                world_size=world_size,
                state=state,
                first_step=first_step,
                arguments=self.arguments,
            )
        )

    def names(self, error: BaseException) -> bool:
        """Whether an error is one by which the loader says that it gives up."""
        return isinstance(error, tuple(resolve(name) for name in self.named_errors))


def resolve(target: str) -> Any:  # noqa: ANN401  # a function or a class, as the caller knows
    """What `module:name` names.

    Raises:
        ProofError: nothing.
    """
    module, sign, name = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProofError(f"{target!r} cannot be imported ({error}); write module:name") from error
    if not sign:
        raise ProofError(f"{target!r}: write module:name")
    return found
