"""The built-in tokenizer: documented ids, nothing for nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.errors import LayoutError
from packing.tokenizer import BOS_ID, EOS_ID, Utf8Bytes, find_tokenizer


@given(st.text(min_size=1))
def test_ids_are_begin_bytes_end_and_decode_back(text: str) -> None:
    first, *ids, last = Utf8Bytes().encode(text)
    assert (first, last) == (BOS_ID, EOS_ID)
    assert bytes(i - 8 for i in ids).decode() == text
    assert all(8 <= i < Utf8Bytes.vocab_size for i in ids)


def test_empty_text_costs_nothing() -> None:
    assert Utf8Bytes().encode("") == ()


def test_fingerprint_is_frozen() -> None:
    # A change of ids makes other plans; it must be a change of this test as well.
    assert Utf8Bytes().fingerprint == "f3f3f99e27ca7906"


def test_unknown_tokenizer_names_the_known() -> None:
    assert find_tokenizer("utf8-bytes").vocab_size == 264
    with pytest.raises(LayoutError, match=r"'paligemma'.*utf8-bytes"):
        find_tokenizer("paligemma")
