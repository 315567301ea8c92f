"""The built-in tokenizer: documented ids, nothing for nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.errors import LayoutError
from packing.tokenizer import Utf8Bytes, find_tokenizer


@given(st.text())
def test_ids_are_bytes_and_decode_back(text: str) -> None:
    ids = Utf8Bytes().encode(text)
    assert bytes(i - 8 for i in ids).decode() == text
    assert all(8 <= i < Utf8Bytes.vocab_size for i in ids)


def test_special_ids_are_no_bytes() -> None:
    tokenizer = Utf8Bytes()
    special = [
        *(tokenizer.pad_id, tokenizer.begin_id, tokenizer.end_id),
        *(tokenizer.image_id, tokenizer.state_id),
    ]
    assert special == [0, 1, 2, 3, 4]
    assert tokenizer.id_of("<image>") is None


def test_fingerprint_is_frozen() -> None:
    # A change of ids makes other plans; it must be a change of this test as well.
    assert Utf8Bytes().fingerprint == "f3f3f99e27ca7906"


def test_unknown_tokenizer_names_what_can_be_given() -> None:
    assert find_tokenizer("utf8-bytes").vocab_size == 264
    with pytest.raises(LayoutError, match=r"'paligemma'.*tokenizer.json.*\.model.*utf8-bytes"):
        find_tokenizer("paligemma")
