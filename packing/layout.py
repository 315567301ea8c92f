"""What a span costs in tokens."""

import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from packing.errors import LayoutError


@dataclass(frozen=True, kw_only=True)
class TokenLayout:
    """Tokens per thing that is really there; what is absent costs nothing.

    A span is laid out as the images of the cameras that have a frame, observed step after observed
    step, then its text, then the states of the observed steps, then `extra_tokens`: that is the
    prefix. Its action steps are the suffix, the action queries.

    Attributes:
        name: recorded in the plan.
        image_tokens: per image (one camera at one observed step).
        state_tokens: per observed step; 0 where the state is not fed as a token.
        action_tokens: per action step; 0 for spans without actions.
        extra_tokens: per span, whatever a model adds to its prefix (separators, query tokens).
        tokenizer: name of the tokenizer of the text.
    """

    name: str = "compact"
    image_tokens: int = 16
    state_tokens: int = 1
    action_tokens: int = 1
    extra_tokens: int = 0
    tokenizer: str = "utf8-bytes"

    def __post_init__(self) -> None:
        for name in ("image_tokens", "state_tokens", "action_tokens", "extra_tokens"):
            if not 0 <= getattr(self, name) <= 1 << 16:
                raise LayoutError(
                    f"layout {self.name}: {name} is {getattr(self, name)}, expected 0..65536"
                )
        if self.image_tokens + self.state_tokens + self.action_tokens == 0:
            raise LayoutError(f"layout {self.name}: no token for image, state or action")

    def prefix_tokens(
        self, text_tokens: NDArray[np.int32], images: NDArray[np.int32], observed: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Prefix length of spans, int32 [n], from their text, images and observed steps."""
        tokens = (
            self.extra_tokens
            + text_tokens.astype(np.int64)
            + self.image_tokens * images.astype(np.int64)
            + self.state_tokens * observed.astype(np.int64)
        )
        # Far beyond any budget; clipped only so that a hopeless span is refused, not wrapped.
        clipped: NDArray[np.int32] = np.minimum(tokens, 1 << 30).astype(np.int32)
        return clipped

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A layout from JSON, as a plan records it or written by hand; absent fields are defaults.

        Raises:
            LayoutError: not JSON, or not the fields of a layout.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(**raw)
        except (TypeError, ValueError) as error:
            known = ", ".join(cls.__dataclass_fields__)
            raise LayoutError(f"token layout: {error}; its fields are: {known}") from error
