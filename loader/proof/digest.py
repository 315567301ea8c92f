"""A batch as one number."""

import hashlib
from typing import Any

import numpy as np

from loader.batch import PackedBatch


def batch_digest(batch: PackedBatch[Any]) -> str:
    """Hex SHA-256 over name, shape and bytes of every field of a batch."""
    digest = hashlib.sha256(repr(sorted(batch.scalars().items())).encode())
    for name, array in batch.arrays():
        digest.update(f"{name}{tuple(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
