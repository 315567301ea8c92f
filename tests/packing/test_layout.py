"""What a span costs."""

import json

import numpy as np
import pytest

from packing.errors import LayoutError
from packing.layout import TokenLayout


def test_prefix_counts_only_what_is_there() -> None:
    layout = TokenLayout(image_tokens=256, state_tokens=1, action_tokens=1, extra_tokens=2)
    text, images, observed = (np.array(v, np.int32) for v in ([10, 0], [3, 0], [2, 1]))
    assert layout.prefix_tokens(text, images, observed).tolist() == [2 + 10 + 768 + 2, 2 + 1]


def test_hopeless_span_is_clipped_not_wrapped() -> None:
    layout = TokenLayout(image_tokens=65536)
    many = np.array([1 << 20], np.int32)
    assert layout.prefix_tokens(many, many, many).tolist() == [1 << 30]


@pytest.mark.parametrize("field", ["image_tokens", "state_tokens", "action_tokens", "extra_tokens"])
@pytest.mark.parametrize("value", [-1, 1 << 17, 4.5, True, None, "many"])
def test_counts_out_of_range(field: str, value: int) -> None:
    with pytest.raises(LayoutError, match=f"{field} is {value!r}, expected a whole"):
        TokenLayout.from_json(json.dumps({field: value}))


def test_layout_that_counts_nothing() -> None:
    with pytest.raises(LayoutError, match="no token"):
        TokenLayout(image_tokens=0, state_tokens=0, action_tokens=0)


def test_a_layout_written_by_hand() -> None:
    assert TokenLayout.from_json('{"image_tokens": 64}') == TokenLayout(image_tokens=64)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"pixels": 1}'])
def test_bad_json_names_the_fields(text: str) -> None:
    with pytest.raises(LayoutError, match="its fields are: name, image_tokens"):
        TokenLayout.from_json(text)
