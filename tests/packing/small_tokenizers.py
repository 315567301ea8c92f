"""Small tokenizers of the kinds that models ship, trained here: no network, no files of others."""

import functools
import io
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

_SENTENCES = (
    "pick up the red block and put it into the drawer",
    "open the drawer, then push the green button",
    "Task: lift the cup, State: 12 200 7 0 255 -1;\nAction: ",
    "<|im_start|>system\nYou are a helpful assistant.\n<|im_end|>",
    "image user assistant perform the default behavior.",
    *(" ".join(str(number * 37 % 256) for number in range(row, row + 9)) for row in range(40)),
)
QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
)
EAGLE_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>")


@functools.cache
def gemma_like() -> bytes:
    """SentencePiece as PaliGemma's: digits apart, bytes for the rest, nothing put in front."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_SENTENCES * 4),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        split_digits=True,
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        user_defined_symbols=["\n"],
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def qwen_like(special: Sequence[str] = QWEN_TOKENS) -> str:
    """Byte-level BPE with single digits and special tokens, as Qwen's."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                tokenizers.Regex(
                    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
                ),
                "isolated",
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES * 4, trainer)
    tokenizer.enable_truncation(max_length=8)
    tokenizer.enable_padding(length=16)
    return tokenizer.to_str()


@functools.cache
def llama_like() -> str:
    """A `tokenizer.json` whose post-processor puts begin and end around a text."""
    tokenizer = tokenizers.Tokenizer.from_str(qwen_like(("<s>", "</s>", "<pad>")))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return tokenizer.to_str()


@functools.cache
def merging() -> str:
    """BPE across spaces: the ids of a number depend on its neighbours."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False)
    tokenizer.train_from_iterator(
        [
            *_SENTENCES,
            *(f"Task: , State: {a} {a} {a};\nAction: " for a in range(-1, 256)),
            "0 0 0 0 0 0 1 1 1 1 7 7 7 42 42 42 255 255 -1 -1" * 20,
        ],
        trainer,
    )
    return tokenizer.to_str()


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """The file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
