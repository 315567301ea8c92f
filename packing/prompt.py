"""What a model's prompt looks like around an instruction, before any tokenizer."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from packing.errors import LayoutError

IMAGES: Final = "{images}"
TEXT: Final = "{text}"
STATE: Final = "{state}"
NUMBER: Final = "{number}"

_PLACEHOLDER: Final = re.compile(r"(\{[a-z_]*\})")
_SPECIAL: Final = re.compile(r"<\|\w+\|>")
_CLEANING: Final[Mapping[str, Callable[[str], str]]] = {
    "strip": str.strip,
    "lowercase": str.lower,
    "underscores-to-spaces": lambda text: text.replace("_", " "),
    "newlines-to-spaces": lambda text: text.replace("\n", " "),
    "no-punctuation": lambda text: re.sub(r"[^\w\s]", "", text),
}


@dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    r"""How an instruction becomes the text of a span.

    Attributes:
        pieces: in order, each tokenised by itself, as a model does that adds its answer token
            apart from the text. The piece `{images}` stands for the images of the span; in the
            others `{text}` is replaced by the instruction and `{state}` by the state written as
            numbers (`packing.state_text`).
        image_frame: text right before and right after the tokens of every image; `{number}` is
            the image's number inside the span, from 1.
        cleaning: done to the instruction, in order: `strip`, `lowercase`, `underscores-to-spaces`,
            `newlines-to-spaces`, `no-punctuation`.
        default_text: the instruction of an episode that has none.
        begin, end: put the tokenizer's begin token before the first piece of text (an empty piece
            puts it before the images) and its end token behind the last.
        image_slot: the token whose id fills the slots of an image, where the tokenizer has it. A
            prompt that frames its images is written with special tokens, and needs it.
    """

    pieces: tuple[str, ...] = (IMAGES, TEXT)
    image_frame: tuple[str, str] = ("", "")
    cleaning: tuple[str, ...] = ()
    default_text: str = ""
    begin: bool = True
    end: bool = True
    image_slot: str = ""

    def __post_init__(self) -> None:
        self._check_types()
        found = [name for piece in self.pieces for name in _PLACEHOLDER.findall(piece)]
        if IMAGES not in self.pieces or found.count(IMAGES) != 1:
            raise LayoutError(f"prompt {self.pieces}: {IMAGES} must be one piece by itself")
        if found.count(TEXT) != 1 or found.count(STATE) > 1:
            raise LayoutError(
                f"prompt {self.pieces}: {TEXT} must occur once and {STATE} at most once"
            )
        if STATE in found and found.index(STATE) < found.index(IMAGES):
            raise LayoutError(f"prompt {self.pieces}: {STATE} must stand behind {IMAGES}")
        framed = [name for part in self.image_frame for name in _PLACEHOLDER.findall(part)]
        if len(self.image_frame) != 2:
            raise LayoutError(
                f"image frame {self.image_frame}: expected two texts, before and after an image"
            )
        unknown = sorted({*found} - {IMAGES, TEXT, STATE}) + sorted({*framed} - {NUMBER})
        if unknown:
            raise LayoutError(
                f"prompt {self.pieces}, image frame {self.image_frame}: {', '.join(unknown)} is"
                f" unknown; pieces may have {IMAGES}, {TEXT} and {STATE}, the frame {NUMBER}"
            )
        if wrong := sorted(set(self.cleaning) - set(_CLEANING)):
            raise LayoutError(f"cleaning {', '.join(wrong)}: there are {', '.join(_CLEANING)}")

    def _check_types(self) -> None:
        """A template may come from JSON, where a text is easily taken for a list or a switch."""
        for name in ("pieces", "image_frame", "cleaning"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(part, str) for part in value):
                raise LayoutError(
                    f"prompt: {name} is {value!r}, expected a tuple (in JSON a list) of texts"
                )
        for names, kind, what in (
            (("default_text", "image_slot"), str, "a text"),
            (("begin", "end"), bool, "true or false"),
        ):
            for name in names:
                if not isinstance(value := getattr(self, name), kind):
                    raise LayoutError(f"prompt: {name} is {value!r}, expected {what}")

    @property
    def writes_state(self) -> bool:
        """Whether the state is part of the text."""
        return any(STATE in piece for piece in self.pieces)

    @property
    def numbers_images(self) -> bool:
        """Whether images are told apart by their number."""
        return any(NUMBER in part for part in self.image_frame)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Tokens that a tokenizer must know as one: what has the form `<|...|>`, and the slot."""
        told = _SPECIAL.findall("".join((*self.pieces, *self.image_frame)))
        slot = self.image_slot if any(self.image_frame) else ""
        return tuple(dict.fromkeys(filter(None, (*told, slot))))

    def clean(self, text: str) -> str:
        """The instruction as the model is shown it."""
        text = text or self.default_text
        for rule in self.cleaning:
            text = _CLEANING[rule](text)
        return text

    def parts(self, text: str) -> list[tuple[str, ...]]:
        """The pieces for a cleaned instruction.

        Each is one text, or two: what stands before and after the state. The piece of the images
        is the empty tuple.
        """
        return [
            () if piece == IMAGES else tuple(part.replace(TEXT, text) for part in _around(piece))
            for piece in self.pieces
        ]

    def is_empty(self, text: str) -> bool:
        """Whether nothing is said: neither by a cleaned instruction nor by the template."""
        own = "".join(self.pieces).replace(IMAGES, "").replace(TEXT, "")
        return not text and not own

    def frame(self, number: int) -> tuple[str, str]:
        """Text before and after image `number` of a span, from 1."""
        before, after = self.image_frame
        return before.replace(NUMBER, str(number)), after.replace(NUMBER, str(number))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From parsed JSON."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()
        }
        return cls(**fields)


def _around(piece: str) -> list[str]:
    """A piece cut at the state, which an instruction that says `{state}` does not move."""
    return piece.split(STATE)
