"""What a proof found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as promised.

    Attributes:
        what: in words.
        step, slot, span_id: where; None where it has no such place.
    """

    what: str
    step: int | None = None
    slot: int | None = None
    span_id: int | None = None

    def __str__(self) -> str:
        places = {"step": self.step, "slot": self.slot, "span": self.span_id}
        where = ", ".join(f"{name} {at}" for name, at in places.items() if at is not None)
        return f"{where}: {self.what}" if where else self.what


@dataclass(frozen=True, kw_only=True)
class ProofResult:
    """The outcome of one proof.

    Attributes:
        proof: its name.
        tried: what was done, in words.
        first_step, stop_step: the steps that were compared, [first, stop).
        counts: how much of what: kills, resumes, packs, spans, ...
        seconds: that it took.
        differences: what is not as promised; the first few where there are many.
        outcome: what happened, where a proof allows for several outcomes.
        unproved: why nothing was proved though nothing is wrong, "" where something was.
    """

    proof: str
    tried: str
    first_step: int
    stop_step: int
    counts: Mapping[str, int]
    seconds: float
    differences: tuple[Difference, ...] = ()
    outcome: str = ""
    unproved: str = ""

    @property
    def failed(self) -> bool:
        """Whether something is not as promised."""
        return bool(self.differences)

    @property
    def passed(self) -> bool:
        """Whether something was tried, and all is as promised."""
        return not self.differences and not self.unproved

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "proof": self.proof,
            "passed": self.passed,
            "unproved": self.unproved,
            "tried": self.tried,
            "first_step": self.first_step,
            "stop_step": self.stop_step,
            "counts": dict(self.counts),
            "seconds": round(self.seconds, 3),
            "outcome": self.outcome,
            "differences": [str(difference) for difference in self.differences],
        }
