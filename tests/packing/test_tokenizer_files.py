"""Tokenizers read from files: ids as their own library gives them, and what can be wrong."""

import hashlib
import json
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from tokenizers import models

from lake import Lake
from packing.errors import LayoutError
from packing.make_plan import make_plan
from packing.tokenizer import find_tokenizer
from packing.window_spans import WindowSpans
from tests.packing.small_tokenizers import gemma_like, llama_like, qwen_like, write

TEXT = "pick up the red block, State: 12 -1 255;\n"


def test_sentencepiece_ids_are_the_librarys(tmp_path: Path) -> None:
    path = write(tmp_path, "gemma.model", gemma_like())
    ours = find_tokenizer(path)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert ours.encode(TEXT) == tuple(theirs.encode(TEXT))
    assert ours.encode("") == ()
    assert (ours.name, ours.vocab_size) == ("gemma.model", theirs.vocab_size())
    assert (ours.begin_id, ours.end_id, ours.pad_id) == (2, 1, 0)
    assert (ours.id_of("<bos>"), ours.id_of("<nothing>")) == (2, None)
    assert (ours.image_id, ours.state_id) == (None, None)
    assert ours.fingerprint == hashlib.sha256(gemma_like()).hexdigest()


def test_hugging_face_ids_are_the_librarys_without_its_padding(tmp_path: Path) -> None:
    ours = find_tokenizer(write(tmp_path, "tokenizer.json", qwen_like()))
    theirs = tokenizers.Tokenizer.from_str(qwen_like())
    assert len(theirs.encode(TEXT).ids) == 16, "the file asks to cut to 8 and to pad to 16"
    theirs.no_truncation()
    theirs.no_padding()
    assert ours.encode(TEXT) == tuple(theirs.encode(TEXT).ids)
    assert ours.encode("") == ()
    assert ours.vocab_size == max(theirs.get_vocab().values()) + 1
    assert ours.id_of("<|image_pad|>") == theirs.token_to_id("<|image_pad|>")
    assert (ours.begin_id, ours.end_id) == (None, None)
    assert ours.fingerprint == hashlib.sha256(qwen_like().encode()).hexdigest()


def test_a_text_has_one_encoding_whatever_the_file_asks_for(tmp_path: Path) -> None:
    written = json.loads(qwen_like())
    written["model"]["dropout"] = 0.5
    random = find_tokenizer(write(tmp_path, "random.json", json.dumps(written)))
    steady = find_tokenizer(write(tmp_path, "steady.json", qwen_like()))
    assert {random.encode(TEXT) for _ in range(20)} == {steady.encode(TEXT)}


def test_hugging_face_begin_and_end_are_what_its_post_processor_adds(tmp_path: Path) -> None:
    ours = find_tokenizer(write(tmp_path, "tokenizer.json", llama_like()))
    assert (ours.begin_id, ours.end_id, ours.pad_id) == (0, 1, 2)
    assert not {0, 1}.intersection(ours.encode(TEXT))


def test_a_piece_that_looks_like_begin_is_not_begin(tmp_path: Path) -> None:
    # As in Qwen's vocabulary, where "<s>" is a piece of ordinary text.
    model = tokenizers.Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<pad>": 2, "a": 3}, "a"))
    ours = find_tokenizer(write(tmp_path, "plain.json", model.to_str()))
    assert (ours.begin_id, ours.end_id, ours.pad_id) == (None, None, None)
    assert ours.id_of("<s>") == 0
    model.add_special_tokens(["<s>", "<pad>"])
    ours = find_tokenizer(write(tmp_path, "special.json", model.to_str()))
    assert (ours.begin_id, ours.end_id, ours.pad_id) == (0, None, 2)


def test_a_text_that_the_library_cannot_encode(tmp_path: Path) -> None:
    model = tokenizers.Tokenizer(models.Unigram([("a", 0.0)]))
    ours = find_tokenizer(write(tmp_path, "unigram.json", model.to_str()))
    assert ours.encode("aa") == (0, 0)
    with pytest.raises(LayoutError, match=r"unigram.json: cannot encode 'b': .*unk_id.*; use the"):
        ours.encode("b")


def test_the_folder_of_a_downloaded_model(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"the folder has no tokenizer.json or tokenizer.model"):
        find_tokenizer(tmp_path)
    write(tmp_path, "tokenizer.model", gemma_like())
    assert find_tokenizer(tmp_path).name == "tokenizer.model"
    write(tmp_path, "tokenizer.json", qwen_like())
    assert find_tokenizer(str(tmp_path)).name == "tokenizer.json"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "the file is empty"),
        (b"{}", "no tokenizer.json that the library tokenizers"),
        (b'{"model": {"type": "BPE"', "no tokenizer.json"),
        (b"{\xff", "no tokenizer.json"),
        (tokenizers.Tokenizer(models.BPE()).to_str().encode(), "its vocabulary is empty"),
        (b"hello", "neither a tokenizer.json nor a SentencePiece model"),
        (bytes(range(256)), "neither a tokenizer.json nor a SentencePiece model"),
        (gemma_like()[:1000], "neither a tokenizer.json nor a SentencePiece model"),
    ],
    ids=[
        *("empty", "no model", "truncated json", "no text", "no vocabulary"),
        *("text", "bytes", "truncated model"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, match: str) -> None:
    path = write(tmp_path, "some.file", content)
    with pytest.raises(LayoutError, match=f"some.file: {match}"):
        find_tokenizer(path)


@pytest.mark.parametrize(
    ("content", "library"), [(gemma_like(), "sentencepiece"), (b"{}", "tokenizers")]
)
def test_a_missing_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, library: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    path = write(tmp_path, "some.file", content)
    with pytest.raises(LayoutError, match=rf"library {library}: pip install 'headrace\[packing\]'"):
        find_tokenizer(path)


def test_a_renamed_tokenizer_makes_the_same_plan(ten: Lake, tmp_path: Path) -> None:
    hashes = set()
    for name in ("one.model", "two.model"):
        plan = make_plan(
            ten,
            spans=WindowSpans(horizon=4),
            layout="pi0",
            tokenizer=write(tmp_path, name, gemma_like()),
            budget_tokens=2048,
            slots_per_step=2,
        )
        assert Path(plan.header.layout.tokenizer).name == name
        hashes.add(plan.plan_hash)
    assert len(hashes) == 1
