"""Templates: what they may say, and how an instruction is cleaned."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packing.errors import LayoutError
from packing.known_layouts import KNOWN_LAYOUTS
from packing.prompt import IMAGES, PromptTemplate

PI05 = KNOWN_LAYOUTS["pi0.5"].layout.prompt


@given(st.text(max_size=30))
def test_openpi_cleans_like_this(text: str) -> None:
    assert PI05.clean(text) == text.strip().replace("_", " ").replace("\n", " ")


def test_gr00t_n17_cleans_like_this() -> None:
    clean = KNOWN_LAYOUTS["gr00t-n1.7"].layout.prompt.clean
    assert clean("  Pick_up the Öl-can, now!\n") == "  pick_up the ölcan now\n"


def test_an_episode_without_words_gets_the_models_default() -> None:
    assert KNOWN_LAYOUTS["gr00t-n1.5"].layout.prompt.clean("") == "Perform the default behavior."


@pytest.mark.parametrize("text", ["lift", "{state}", "{images}{text}{number}", "{", "a}b"])
def test_an_instruction_is_never_read_as_a_template(text: str) -> None:
    assert PI05.parts(text) == [(), (f"Task: {text}, State: ", ";\nAction: ")]
    plain = PromptTemplate(pieces=("say {text}!", IMAGES))
    assert plain.parts(text) == [(f"say {text}!",), ()]


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"pieces": ("{text}",)}, "{images} must be one piece"),
        ({"pieces": ("{images}{text}",)}, "{images} must be one piece"),
        ({"pieces": (IMAGES, IMAGES, "{text}")}, "{images} must be one piece"),
        ({"pieces": (IMAGES,)}, "{text} must occur once"),
        ({"pieces": (IMAGES, "{text}", "{text}")}, "{text} must occur once"),
        ({"pieces": (IMAGES, "{text}{state}{state}")}, "{state} at most once"),
        ({"pieces": ("{state}", IMAGES, "{text}")}, "{state} must stand behind {images}"),
        ({"pieces": (IMAGES, "{text} {state_of_mind}")}, "{state_of_mind} is unknown"),
        ({"image_frame": ("{text}", "")}, "{text} is unknown"),
        ({"image_frame": ("a", "b", "c")}, "expected two texts, before and after"),
        ({"image_frame": ("a",)}, "expected two texts, before and after"),
        ({"image_frame": "ab"}, "image_frame is 'ab', expected a tuple"),
        ({"pieces": (1, IMAGES, "{text}")}, "expected a tuple (in JSON a list) of texts"),
        ({"cleaning": "strip"}, "cleaning is 'strip', expected a tuple"),
        ({"begin": "false"}, "begin is 'false', expected true or false"),
        ({"end": 1}, "end is 1, expected true or false"),
        ({"default_text": 3}, "default_text is 3, expected a text"),
        ({"image_slot": None}, "image_slot is None, expected a text"),
        ({"cleaning": ("strip", "shout")}, "cleaning shout: there are strip"),
    ],
)
def test_templates_that_make_no_sense(fields: dict[str, object], match: str) -> None:
    with pytest.raises(LayoutError) as error:
        PromptTemplate(**fields)  # type: ignore[arg-type]
    assert match in str(error.value)


@pytest.mark.parametrize("name", KNOWN_LAYOUTS)
def test_json_and_back(name: str) -> None:
    prompt = KNOWN_LAYOUTS[name].layout.prompt
    as_lists = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(prompt).items()
    }
    assert PromptTemplate.from_dict(as_lists) == prompt
