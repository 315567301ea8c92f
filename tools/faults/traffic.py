"""What went through a proxy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests and bytes so far; the difference of two is what went through between them.

    Attributes:
        requests: method -> how many arrived, refused ones included.
        request_bytes: bodies sent to the store (uploads).
        reply_bytes: bodies sent to the client (downloads).
        faults: kind -> how many were injected.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    request_bytes: int = 0
    reply_bytes: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_requests(self) -> int:
        """Requests of all methods."""
        return sum(self.requests.values())

    def __sub__(self, before: Self) -> Self:
        return type(self)(
            requests=_less(self.requests, before.requests),
            request_bytes=self.request_bytes - before.request_bytes,
            reply_bytes=self.reply_bytes - before.reply_bytes,
            faults=_less(self.faults, before.faults),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "requests": dict(self.requests),
            "request_bytes": self.request_bytes,
            "reply_bytes": self.reply_bytes,
            "faults": dict(self.faults),
        }


def _less(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    less = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in less.items() if count}
