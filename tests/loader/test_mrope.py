"""Positions for M-RoPE, against a plain loop over the tokens of each span."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lake import Lake
from loader import Modality, PackLoader
from loader.batch import NumpyBatch
from loader.errors import BatchError
from loader.mrope import mrope_position_ids
from packing.known_layouts import find_layout
from packing.plan import Plan
from packing.window_spans import WindowSpans
from tests.loader.scenes import scene_plan
from tests.packing.small_tokenizers import qwen_like, write

GRIDS = [(2, 3), (3, 2), (1, 6), (6, 1)]


@pytest.fixture(scope="module")
def planned(scene: Lake, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    layout = find_layout("gr00t-n1.7")
    return scene_plan(
        scene,
        spans=WindowSpans(horizon=5, history=2),
        layout=type(layout)(**{**vars(layout), "image_tokens": 6}),
        tokenizer=write(folder, "qwen.json", qwen_like()),
        budget_tokens=384,
        epochs=1,
    )


def by_hand(batch: NumpyBatch, grid: tuple[int, int]) -> NDArray[np.int64]:
    """A text token counts on by one, an image by the longer side of its grid."""
    rows, columns = grid
    want = np.zeros((3, len(batch.input_ids)), np.int64)
    for first, stop in zip(batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
        at, position = int(first), 0
        while at < stop:
            if batch.token_modality[at] != Modality.IMAGE:
                want[:, at] = position
                at, position = at + 1, position + 1
                continue
            for row in range(rows):
                for column in range(columns):
                    want[:, at] = position, position + row, position + column
                    at += 1
            position += max(rows, columns)
    return want


@pytest.mark.parametrize("grid", GRIDS)
def test_every_position(scene: Lake, planned: Plan, grid: tuple[int, int]) -> None:
    images = 0
    with PackLoader(scene, planned, process="inline", framework="numpy") as loader:
        for batch in loader:
            found = mrope_position_ids(batch, grid)
            assert found.dtype == np.int64
            assert found.tolist() == by_hand(batch, grid).tolist()
            short = batch.trimmed(1)
            assert mrope_position_ids(short, grid).tolist() == by_hand(short, grid).tolist()
            images += len(batch.image_span_ids)
    assert images


def test_tensors_give_tensors(scene: Lake, planned: Plan) -> None:
    def first(framework: str) -> object:
        options = {"process": "inline", "framework": framework}
        with PackLoader(scene, planned, **options) as loader:  # type: ignore[arg-type]
            return mrope_position_ids(next(iter(loader)), (2, 3))

    found = first("torch")
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == first("numpy").tolist()  # type: ignore[attr-defined]


def test_a_grid_of_another_size_is_refused(scene: Lake, planned: Plan) -> None:
    with PackLoader(scene, planned, process="inline", framework="numpy") as loader:
        batch = next(batch for batch in loader if len(batch.image_span_ids))
    with pytest.raises(BatchError, match=r"no grids of 8 x 8: give the grid of the layout"):
        mrope_position_ids(batch, (8, 8))
