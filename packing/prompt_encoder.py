"""From an instruction to the token ids of a span's text, by a layout's prompt and a tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from packing.errors import LayoutError
from packing.layout import TokenLayout
from packing.prompt import STATE
from packing.prompt_ids import ImageFrame, PromptIds
from packing.state_text import BINS, LOWEST_BIN, NUMBERS, StateText
from packing.tokenizer import UTF8_BYTES, Tokenizer

_MOST_NUMBERED: Final = 9  # one digit: frames of one length

_OF_THE_MODEL: Final = (
    "use the tokenizer of the model: `headrace plan layouts` says where it is found"
)

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Prompt:
    """The text of a span.

    Attributes:
        token_ids: the ids, without those of images, image frames and the state.
        images_at: how many of them stand before the images.
        state_at: how many of them stand before the state's text, -1 where the prompt has none.
    """

    token_ids: Ids = ()
    images_at: int = 0
    state_at: int = -1


class PromptEncoder:
    """Encodes instructions for one layout.

    Args:
        layout: with the prompt.
        tokenizer: of the text.

    Raises:
        LayoutError: the tokenizer cannot be used with this prompt; says why.

    Attributes:
        tokenizer: see above.
        layout: the layout, with what the tokenizer decides filled in.
        ids: what a loader needs beside the texts.
        vocab_size: ids of the tokenizer and of `ids`.
    """

    def __init__(self, layout: TokenLayout, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._template = layout.prompt
        self._require_special_tokens(layout.name)
        self._begin = self._bound("begin", tokenizer.begin_id, wanted=self._template.begin)
        self._end = self._bound("end", tokenizer.end_id, wanted=self._template.end)
        frames = self._frames()
        slots = _slots(tokenizer, self._template.image_slot)
        self._tail: Ids = ()
        state_text = self._learn_state_text() if self._template.writes_state else None
        self.ids = replace(slots, frames=frames, state_text=state_text)
        self.vocab_size = max(tokenizer.vocab_size, *(1 + slot for slot in self.ids.slots))
        self.layout = replace(layout, tokenizer=tokenizer.name, frame_tokens=len(frames[0]))

    def require_frames(self, images: int) -> None:
        """Check that a span with this many images can be numbered.

        Raises:
            LayoutError: it cannot, since longer numbers have more tokens.
        """
        if self._template.numbers_images and images > len(self.ids.frames):
            raise LayoutError(
                f"layout {self.layout.name} numbers the images of a span, of which one has"
                f" {images}: at most {len(self.ids.frames)} can be; take fewer cameras or less"
                " history"
            )

    def encode(self, instruction: str) -> Prompt:
        """The text of a span with this instruction; nothing where nothing is said.

        Raises:
            LayoutError: a token of the text is one of the slots' ids, or the text of the state
                would depend on the instruction.
        """
        text = self._template.clean(instruction)
        if self._template.is_empty(text):
            return Prompt()
        prompt = self._compose(text)
        if taken := set(prompt.token_ids).intersection(self.ids.slots):
            raise LayoutError(
                f"the text {text!r} has the token id {min(taken)}, which stands for a slot; take"
                " the special token out of the text"
            )
        return prompt

    def _compose(self, text: str) -> Prompt:
        ids: Ids = ()
        images_at = state_at = -1
        begin = self._begin
        for parts in self._template.parts(text):
            if not parts:
                images_at = len(ids)
                continue
            ids, begin = ids + begin, ()
            if len(parts) == 1:
                ids += self.tokenizer.encode(parts[0])
            else:
                head, tail = self._around_state(parts)
                state_at = len(ids) + len(head)
                ids += head + tail
        return Prompt(token_ids=ids + self._end, images_at=images_at, state_at=state_at)

    def _around_state(self, parts: Sequence[str]) -> tuple[Ids, Ids]:
        """Ids before and after the state of a piece, the same whatever the state."""
        assert self.ids.state_text is not None
        heads = set()
        for bins in ((0, 0), (BINS - 1, BINS // 2)):
            ids = self.tokenizer.encode(f"{bins[0]} {bins[1]}".join(parts))
            end = (*self.ids.state_text.ids(bins), *self._tail)
            if ids[len(ids) - len(end) :] != end:
                raise self._does_not_compose(parts)
            heads.add(ids[: len(ids) - len(end)])
        if len(heads) != 1:
            raise self._does_not_compose(parts)
        return heads.pop(), self._tail

    def _learn_state_text(self) -> StateText:
        """Ids of every number, read off encodings that differ in one number only."""
        parts = next(parts for parts in self._template.parts("") if len(parts) == 2)
        alone = [self.tokenizer.encode(number.join(parts)) for number in NUMBERS]
        head, tail = _common(alone)
        first = tuple(ids[len(head) : len(ids) - len(tail)] for ids in alone)
        pairs = [self.tokenizer.encode(f"{NUMBERS[1]} {number}".join(parts)) for number in NUMBERS]
        begun = head + first[1]
        further = tuple(ids[len(begun) : len(ids) - len(tail)] for ids in pairs)
        found = StateText(first=first, further=further)
        # Every number beside every other, in both orders, and at both ends.
        numbers = range(LOWEST_BIN, BINS)
        for number in numbers:
            bins = [each for other in numbers for each in (number, other)]
            whole = self.tokenizer.encode(" ".join(map(str, bins)).join(parts))
            if whole != (*head, *found.ids(bins), *tail):
                raise self._does_not_compose(parts)
        if len({*first}) < len(NUMBERS) or len({*further}) < len(NUMBERS):
            raise LayoutError(
                f"tokenizer {self.tokenizer.name} gives several numbers the same ids, so states as"
                f" text cannot be told apart; {_OF_THE_MODEL}"
            )
        self._tail = tail
        return found

    def _does_not_compose(self, parts: Sequence[str]) -> LayoutError:
        return LayoutError(
            f"tokenizer {self.tokenizer.name}: the ids of {STATE.join(parts)!r} are not those of"
            " its parts laid end to end, so that a state cannot be written into the text when a"
            " batch is made; use a tokenizer that splits numbers from what is around them"
        )

    def _bound(self, name: str, number: int | None, *, wanted: bool) -> Ids:
        if not wanted:
            return ()
        if number is None:
            raise LayoutError(
                f"tokenizer {self.tokenizer.name} has no {name} token, which the layout adds: set"
                f" {name} of its prompt to false, or use the tokenizer of the model"
            )
        return (number,)

    def _require_special_tokens(self, layout: str) -> None:
        """Refuse the tokenizer of another model, which would spell `<|im_start|>` out."""
        if self.tokenizer.name == UTF8_BYTES:  # a plan without a vocabulary
            return
        wanted = self._template.special_tokens
        if missing := [token for token in wanted if self.tokenizer.id_of(token) is None]:
            raise LayoutError(
                f"tokenizer {self.tokenizer.name} does not have {', '.join(missing)}, special in"
                f" the prompt of layout {layout}; {_OF_THE_MODEL}"
            )

    def _frames(self) -> tuple[ImageFrame, ...]:
        count = _MOST_NUMBERED if self._template.numbers_images else 1
        frames = tuple(
            ImageFrame(*(self.tokenizer.encode(part) for part in self._template.frame(number)))
            for number in range(1, count + 1)
        )
        if len({(len(frame.before), len(frame.after)) for frame in frames}) != 1:
            raise LayoutError(
                f"tokenizer {self.tokenizer.name}: the text around images 1 to {count} has not the"
                " same number of tokens for each; a layout needs one cost per image"
            )
        return frames


def _slots(tokenizer: Tokenizer, image_slot: str) -> PromptIds:
    """Ids for slots: the tokenizer's own, else the next ones past its vocabulary."""
    free = iter(range(tokenizer.vocab_size, tokenizer.vocab_size + 3))
    image = tokenizer.image_id
    if image is None and image_slot:
        image = tokenizer.id_of(image_slot)
    image = next(free) if image is None else image
    state = next(free) if tokenizer.state_id is None else tokenizer.state_id
    pad = tokenizer.pad_id
    if pad is None or pad in {tokenizer.begin_id, tokenizer.end_id, image, state}:
        pad = next(free)
    return PromptIds(pad=pad, image=image, state=state)


def _common(rows: Sequence[Ids]) -> tuple[Ids, Ids]:
    """The longest beginning and, apart from it, the longest end that all rows share."""
    shortest = min(rows, key=len)
    begin = 0
    while begin < len(shortest) and len({row[begin] for row in rows}) == 1:
        begin += 1
    end = 0
    while end < len(shortest) - begin and len({row[-1 - end] for row in rows}) == 1:
        end += 1
    return shortest[:begin], shortest[len(shortest) - end :]
