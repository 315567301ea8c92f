"""What a span costs in tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from packing.errors import LayoutError
from packing.prompt import PromptTemplate


@dataclass(frozen=True, kw_only=True)
class PaddedRow:
    """What a model that pads computes for every sample; None: as much as the plan needs.

    Attributes:
        cameras: camera slots of an observed step.
        text_tokens: length to which the text is padded, state written as text included.
        horizon: action steps; also the horizon of windows where none is asked for.
    """

    cameras: int | None = None
    text_tokens: int | None = None
    horizon: int | None = None


@dataclass(frozen=True, kw_only=True)
class TokenLayout:
    """Tokens per thing that is really there; what is absent costs nothing.

    The prefix of a span is its text with the images inside it (where the prompt has them: by
    default first), those of the cameras that have a frame, observed step after observed step; then
    the states of the observed steps, then `extra_tokens`. Its action steps are the suffix, the
    action queries.

    Attributes:
        name: recorded in the plan.
        image_tokens: per image (one camera at one observed step).
        state_tokens: per observed step; 0 where the state is not fed as a token.
        action_tokens: per action step; 0 for spans without actions.
        extra_tokens: per span, whatever a model adds besides (separators, query tokens).
        tokenizer: name of the tokenizer of the text; "" where one must be chosen.
        prompt: what stands around the text and the images.
        frame_tokens: per image, for the text of the prompt's image frame. The tokenizer decides
            it: a plan fills it in.
        padded: what the model would compute without packing, to say what is saved.
    """

    name: str = "compact"
    image_tokens: int = 16
    state_tokens: int = 1
    action_tokens: int = 1
    extra_tokens: int = 0
    tokenizer: str = "utf8-bytes"
    prompt: PromptTemplate = field(default_factory=PromptTemplate)
    frame_tokens: int = 0
    padded: PaddedRow = field(default_factory=PaddedRow)

    def __post_init__(self) -> None:
        for name in ("name", "tokenizer"):
            if not isinstance(value := getattr(self, name), str):
                raise LayoutError(f"token layout: {name} is {value!r}, expected a text")
        for name in (
            *("image_tokens", "state_tokens", "action_tokens"),
            *("extra_tokens", "frame_tokens"),
        ):
            if not _is_count(value := getattr(self, name), least=0):
                raise LayoutError(
                    f"layout {self.name}: {name} is {value!r}, expected a whole number 0..65536"
                )
        if self.image_tokens + self.state_tokens + self.action_tokens == 0:
            raise LayoutError(f"layout {self.name}: no token for image, state or action")
        for name, value in vars(self.padded).items():
            if value is not None and not _is_count(value, least=1):
                raise LayoutError(
                    f"layout {self.name}: padded {name} is {value!r}, expected a whole number"
                    " 1..65536"
                )

    @property
    def tokens_per_image(self) -> int:
        """Tokens of one image and of the text around it."""
        return self.image_tokens + self.frame_tokens

    def prefix_tokens(
        self, text_tokens: NDArray[np.int32], images: NDArray[np.int32], observed: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Prefix length of spans, int32 [n], from their text, images and observed steps."""
        tokens = (
            self.extra_tokens
            + text_tokens.astype(np.int64)
            + self.tokens_per_image * images.astype(np.int64)
            + self.state_tokens * observed.astype(np.int64)
        )
        # Far beyond any budget; clipped only so that a hopeless span is refused, not wrapped.
        clipped: NDArray[np.int32] = np.minimum(tokens, 1 << 30).astype(np.int32)
        return clipped

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """A layout from parsed JSON; absent fields are defaults.

        Raises:
            LayoutError: not the fields of a layout.
        """
        try:
            given = {**raw}
            if "prompt" in given:
                given["prompt"] = PromptTemplate.from_dict(given["prompt"])
            if "padded" in given:
                given["padded"] = PaddedRow(**given["padded"])
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise LayoutError(f"token layout: {error}; {_known_fields()}") from error

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A layout from JSON, as a plan records it or written by hand.

        Raises:
            LayoutError: not JSON, or not the fields of a layout.
        """
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise LayoutError(f"token layout: {error}; {_known_fields()}") from error
        return cls.from_dict(raw)


def _is_count(value: object, *, least: int) -> bool:
    """Whether a value, which JSON may have made anything, is a number of tokens."""
    return type(value) is int and least <= value <= 1 << 16


def _known_fields() -> str:
    """Names of the fields of layouts and of what they hold."""
    named = (
        ("its fields are", TokenLayout),
        ("those of prompt", PromptTemplate),
        ("those of padded", PaddedRow),
    )
    return "; ".join(f"{what}: {', '.join(f.name for f in fields(each))}" for what, each in named)
