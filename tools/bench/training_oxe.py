"""Windows in the manner of Open X-Embodiment: robots with other cameras, states, rates and texts.

Cameras, states and rates follow data sets of the mixture (arXiv:2310.08864); a chunk lasts a second
at the robot's own rate. Shares and instructions are made up.
"""

from pathlib import Path
from typing import Final

from packing.known_layouts import KNOWN_LAYOUTS
from packing.window_spans import WindowSpans
from tools.bench.training_packs import Packs, Words, load_packs
from tools.bench.training_windows import PIXELS, Robot, make_window_lake

_ALL: Final = ("front", "side", "wrist")
CAMERAS: Final = len(_ALL)
_HORIZON: Final = 50
_ROBOTS: Final = (
    Robot(name="rt1", cameras=("front",), steps=3, state=8, action=7, share=0.25),
    Robot(name="bridge", cameras=("front",), steps=5, state=7, action=7, share=0.2),
    Robot(name="table", cameras=("front",), steps=10, state=2, action=2, share=0.1),
    Robot(name="kuka", cameras=("front",), steps=10, state=7, action=7, share=0.1),
    Robot(name="bc-z", cameras=("front",), steps=10, state=9, action=9, share=0.05),
    Robot(name="taco", cameras=("front", "wrist"), steps=15, state=8, action=7, share=0.1),
    Robot(name="droid", cameras=_ALL, steps=15, state=8, action=8, share=0.1),
    Robot(name="aloha", cameras=_ALL, steps=50, state=14, action=14, share=0.1),
)
_INSTRUCTIONS: Final = (
    "pick sponge",
    "close the drawer",
    "move the green can near the apple",
    "slide the blue block a little to the left of the red circle",
    "",
    "take the towel from the rack and wipe the water off the table",
    "turn the knob of the oven",
    "unfold the shirt, lay it flat with its sleeves to the sides and smooth it from the collar on",
    "put the carrot on the plate",
)


def load_oxe(folder: Path, *, windows: int, budget_tokens: int) -> Packs:
    """One to three pictures of 256 tokens, texts of 0 to 18 words, 3 to 50 actions."""
    return load_packs(
        make_window_lake(folder, _ROBOTS, _INSTRUCTIONS, windows=windows),
        spans=WindowSpans(horizon=_HORIZON, stride=_HORIZON),
        layout=KNOWN_LAYOUTS["pi0"].layout,
        budget_tokens=budget_tokens,
        image_size=PIXELS,
        tokenizer=Words(),
    )
