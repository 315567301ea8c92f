"""The token ids that a loader needs beside those of the texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from packing.errors import LayoutError
from packing.state_text import StateText
from packing.tokenizer import Utf8Bytes


@dataclass(frozen=True)
class ImageFrame:
    """Ids of the text right before and right after one image."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, kw_only=True)
class PromptIds:
    """Ids that are no text, and the texts that depend on more than the instruction.

    Attributes:
        pad: at pad and extra tokens.
        image, state: at the slots that the model fills from pictures and states. None of the three
            occurs in a text: where the tokenizer keeps no id for them, they lie past its
            vocabulary.
        frames: of image 1, 2, ... of a span, or the one of all images.
        state_text: the numbers of a state written as text; None where the prompt has no state.
    """

    pad: int = Utf8Bytes.pad_id
    image: int = Utf8Bytes.image_id
    state: int = Utf8Bytes.state_id
    frames: tuple[ImageFrame, ...] = (ImageFrame(),)
    state_text: StateText | None = None

    def __post_init__(self) -> None:
        if not self.frames or len({(len(f.before), len(f.after)) for f in self.frames}) != 1:
            raise LayoutError("image frames must be there, and all of the same length")

    def most_state_text(self, state_sizes: Sequence[int]) -> NDArray[np.int32]:
        """int32 [n]: the most tokens that states of these sizes take as text; 0 as no text."""
        text = self.state_text
        return np.array([text.max_tokens(size) if text else 0 for size in state_sizes], np.int32)

    def unused_state_text(self, state_sizes: Sequence[int]) -> NDArray[np.float64]:
        """float64 [n]: how many of these tokens states leave, `StateText.expected_unused`."""
        text = self.state_text
        return np.array([text.expected_unused(size) if text else 0.0 for size in state_sizes])

    @property
    def slots(self) -> tuple[int, int, int]:
        """The ids that are no text."""
        return self.pad, self.image, self.state

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON."""
        text = raw["state_text"]
        return cls(
            pad=raw["pad"],
            image=raw["image"],
            state=raw["state"],
            frames=tuple(
                ImageFrame(before=tuple(f["before"]), after=tuple(f["after"]))
                for f in raw["frames"]
            ),
            state_text=None if text is None else StateText.from_dict(text),
        )
