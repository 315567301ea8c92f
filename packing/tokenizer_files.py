"""Tokenizers from the files that models ship: `tokenizer.json` and SentencePiece `.model`."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from packing.errors import LayoutError
from packing.tokenizer import Tokenizer

_IN_FOLDER: Final = ("tokenizer.json", "tokenizer.model")
_INSTALL: Final = "pip install 'headrace[packing]'"


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file, told apart by content, or in the folder of a downloaded model.

    Raises:
        LayoutError: it cannot be read, is no tokenizer, or its library is not installed.
    """
    if path.is_dir():
        found = [path / name for name in _IN_FOLDER if (path / name).is_file()]
        if not found:
            raise LayoutError(f"tokenizer {path}: the folder has no {' or '.join(_IN_FOLDER)}")
        path = found[0]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LayoutError(f"tokenizer {path}: cannot be read: {error}") from error
    if not content:
        raise LayoutError(f"tokenizer {path}: the file is empty")
    if content.lstrip()[:1] == b"{":
        return HuggingFaceTokenizer(path, content)
    return SentencePieceTokenizer(path, content)


class HuggingFaceTokenizer:
    """A `tokenizer.json` of Hugging Face, read by the library `tokenizers`.

    Begin and end are what its post-processor puts around a text; without one, the special token
    commonly so called (never a piece of the vocabulary that looks like one). Truncation, padding
    and merges left out at random (BPE dropout) that the file asks for are turned off: a text has
    one encoding.
    """

    image_id: Final = None
    state_id: Final = None

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            import tokenizers  # noqa: PLC0415 - optional
        except ImportError as error:
            raise LayoutError(
                f"tokenizer {path}: reading it needs the library tokenizers: {_INSTALL}"
            ) from error
        self.name = path.name
        self.fingerprint = hashlib.sha256(content).hexdigest()
        try:
            self._model = tokenizers.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises Exception itself
            raise LayoutError(
                f"tokenizer {path}: no tokenizer.json that the library tokenizers"
                f" {tokenizers.__version__} reads: {error}"
            ) from error
        self._model.no_truncation()
        self._model.no_padding()
        if getattr(self._model.model, "dropout", None) is not None:
            self._model.model.dropout = None
        if not self._model.get_vocab_size(with_added_tokens=True):
            raise LayoutError(f"tokenizer {path}: its vocabulary is empty")

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._model.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def begin_id(self) -> int | None:
        """First id that the post-processor puts before a text."""
        before, _ = self._around
        return before[0] if before else self._first_of("<bos>", "<s>", "<|begin_of_text|>")

    @cached_property
    def end_id(self) -> int | None:
        """Last id that the post-processor puts after a text."""
        _, after = self._around
        return after[-1] if after else self._first_of("<eos>", "</s>", "<|end_of_text|>")

    @cached_property
    def pad_id(self) -> int | None:
        """Id of a special token that is commonly called padding."""
        return self._first_of("<pad>", "[PAD]", "<|pad|>", "<|endoftext|>")

    def id_of(self, token: str) -> int | None:
        """Id of the token with this text, or None."""
        found: int | None = self._model.token_to_id(token)
        return found

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without begin and end.

        Raises:
            LayoutError: the tokenizer has no ids for it.
        """
        return tuple(self._ids(text))

    def _ids(self, text: str, *, whole: bool = False) -> list[int]:
        try:
            ids: list[int] = self._model.encode(text, add_special_tokens=whole).ids
        except Exception as error:  # the library raises Exception itself
            raise LayoutError(
                f"tokenizer {self.name}: cannot encode {text!r}: {error}; use the tokenizer of the"
                " model"
            ) from error
        return ids

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """Ids that the post-processor puts before and after a text."""
        plain, whole = self._ids("a"), self._ids("a", whole=True)
        for first in range(len(whole) - len(plain) + 1):
            if whole[first : first + len(plain)] == plain:
                return whole[:first], whole[first + len(plain) :]
        return [], []

    def _first_of(self, *tokens: str) -> int | None:
        added = self._model.get_added_tokens_decoder().items()
        special = {token.content: number for number, token in added if token.special}
        return next((special[token] for token in tokens if token in special), None)


class SentencePieceTokenizer:
    """A SentencePiece `.model`, as PaliGemma, Gemma and Llama have it."""

    image_id: Final = None
    state_id: Final = None

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            import sentencepiece  # noqa: PLC0415 - optional
        except ImportError as error:
            raise LayoutError(
                f"tokenizer {path}: reading it needs the library sentencepiece: {_INSTALL}"
            ) from error
        self.name = path.name
        self.fingerprint = hashlib.sha256(content).hexdigest()
        try:
            self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
        except (RuntimeError, ValueError, TypeError) as error:
            raise LayoutError(
                f"tokenizer {path}: neither a tokenizer.json nor a SentencePiece model: {error}"
            ) from error
        if not self._model.vocab_size():
            raise LayoutError(f"tokenizer {path}: a SentencePiece model without vocabulary")

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return int(self._model.vocab_size())

    @property
    def begin_id(self) -> int | None:
        """The model's `bos_id`."""
        return _id(self._model.bos_id())

    @property
    def end_id(self) -> int | None:
        """The model's `eos_id`."""
        return _id(self._model.eos_id())

    @property
    def pad_id(self) -> int | None:
        """The model's `pad_id`."""
        return _id(self._model.pad_id())

    def id_of(self, token: str) -> int | None:
        """Id of the piece with this text, or None."""
        found = int(self._model.piece_to_id(token))
        return found if self._model.id_to_piece(found) == token else None

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without begin and end."""
        return tuple(self._model.encode(text))


def _id(number: int) -> int | None:
    """SentencePiece says -1 for none."""
    return int(number) if number >= 0 else None
