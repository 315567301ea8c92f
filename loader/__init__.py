"""The loader: a plan's packs, streamed from the lake as batches.

Names are imported on first use, so that `import loader` costs nothing and needs no torch.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loader.bad_spans import BadSpan
    from loader.batch import Modality, PackedBatch
    from loader.device import on_device
    from loader.errors import (
        BadDataError,
        BatchError,
        LoaderError,
        LoaderStateError,
        StorageTimeoutError,
        WorkerDiedError,
    )
    from loader.materialized.materialize import materialize
    from loader.observe.metrics import LoaderMetrics
    from loader.pack_loader import PackLoader
    from loader.storage.settings import StorageSettings
    from loader.torch_face import PackDataset
    from loader.windows.block_shuffle import BlockShuffle
    from loader.windows.collate import collate_packed, collate_padded
    from loader.windows.window import Window

__all__ = [
    "BadDataError",
    "BadSpan",
    "BatchError",
    "BlockShuffle",
    "LoaderError",
    "LoaderMetrics",
    "LoaderStateError",
    "Modality",
    "PackDataset",
    "PackLoader",
    "PackedBatch",
    "StorageSettings",
    "StorageTimeoutError",
    "Window",
    "WorkerDiedError",
    "collate_packed",
    "collate_padded",
    "materialize",
    "on_device",
]

_HOMES = {
    "BadDataError": "errors",
    "BadSpan": "bad_spans",
    "BatchError": "errors",
    "BlockShuffle": "windows.block_shuffle",
    "LoaderError": "errors",
    "LoaderMetrics": "observe.metrics",
    "LoaderStateError": "errors",
    "Modality": "batch",
    "PackDataset": "torch_face",
    "PackLoader": "pack_loader",
    "PackedBatch": "batch",
    "StorageSettings": "storage.settings",
    "StorageTimeoutError": "errors",
    "Window": "windows.window",
    "WorkerDiedError": "errors",
    "collate_packed": "windows.collate",
    "collate_padded": "windows.collate",
    "materialize": "materialized.materialize",
    "on_device": "device",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the name means
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ImportError as error:
        for package in ("lake", "catalog", "packing"):
            file = getattr(sys.modules.get(package), "__file__", None)
            if file and not file.startswith(__file__.removesuffix("loader/__init__.py")):
                raise ImportError(
                    f"{file} hides Headrace's package {package!r}: run from another folder, or with"
                    " `python -P`, or rename it"
                ) from error
        raise
