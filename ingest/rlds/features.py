"""What `features.json` declares: the leaves of the tree under the names they have in an Example.

Source: TensorFlow Datasets, `core/features/*` (`to_json`) and `feature.proto`. Names of a
FeaturesDict are joined by `/`; a Sequence or Dataset adds no name of its own, only a level of
repetition.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ingest.errors import SourceError

Kind = Literal["numbers", "text", "image"]

STEPS: Final = "steps/"
_MAX_BYTES: Final = 16 << 20
_MAX_DEPTH: Final = 32
_TEXT_TYPES: Final = frozenset({"string", "object", "str", "bytes"})


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A declared value.

    Attributes:
        kind: what the value is.
        dtype: TFDS's name of its type, e.g. `float32`; of images the type of their pixels.
        shape: of one value, None where a dimension varies; of images height, width, channels.
        encoding: of tensors `none`, `bytes` or `zlib`; of images `jpeg`, `png` or "".
        levels: Sequences and Datasets around it; 1 for a plain value of a step.
    """

    kind: Kind
    dtype: str
    shape: tuple[int | None, ...] = ()
    encoding: str = "none"
    levels: int = 0


def read_features(path: Path) -> Mapping[str, Leaf]:
    """The leaves by name (`steps/observation/state`), in the file's order.

    Raises:
        SourceError: unreadable, too large, or no feature tree.
    """
    tree = read_json(path)
    leaves = dict(_leaves(tree, "", 0, path, 0))
    if not leaves:
        raise SourceError(f"{path}: declares no feature", reason="bad-features-json")
    return leaves


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of at most 16 MiB.

    Raises:
        SourceError: unreadable, too large, or no JSON object.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SourceError(f"{path}: more than {_MAX_BYTES} bytes", reason="bad-json")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}", reason="unreadable-file") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: no JSON ({error})", reason="bad-json") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path}: a JSON object is expected", reason="bad-json")
    return value


def _leaves(
    node: object, name: str, levels: int, path: Path, depth: int
) -> Iterator[tuple[str, Leaf]]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        raise SourceError(f"{path}: {name or 'root'} is no feature", reason="bad-features-json")
    children = _child(node, "featuresDict", "features")
    if isinstance(children, dict):
        for key, child in children.items():
            yield from _leaves(child, f"{name}/{key}" if name else key, levels, path, depth + 1)
        return
    inner = _child(node, "sequence", "feature")
    if inner is not None:
        yield from _leaves(inner, name, levels + 1, path, depth + 1)
        return
    leaf = _leaf(node, levels)
    if leaf is not None:
        yield name, leaf


def _leaf(node: dict[str, Any], levels: int) -> Leaf | None:
    """The leaf a node declares, None for a kind that is not known: its values speak then."""
    class_name = str(node.get("pythonClassName", "")).rsplit(".", 1)[-1]
    if isinstance(image := node.get("image"), dict):
        return Leaf(
            kind="image",
            dtype=str(image.get("dtype", "uint8")),
            shape=_shape(image),
            encoding=str(image.get("encodingFormat", "")),
            levels=levels,
        )
    if class_name == "Text" or isinstance(node.get("text"), dict):
        return Leaf(kind="text", dtype="string", levels=levels)
    if isinstance(node.get("classLabel"), dict) or class_name == "ClassLabel":
        return Leaf(kind="numbers", dtype="int64", levels=levels)
    if isinstance(node.get("boundingBox"), dict) or class_name == "BBoxFeature":
        return Leaf(kind="numbers", dtype="float32", shape=(4,), levels=levels)
    if isinstance(tensor := node.get("tensor"), dict):
        dtype = str(tensor.get("dtype", ""))
        return Leaf(
            kind="text" if dtype in _TEXT_TYPES else "numbers",
            dtype="string" if dtype in _TEXT_TYPES else dtype,
            shape=_shape(tensor),
            encoding=str(tensor.get("encoding", "none")).lower(),
            levels=levels,
        )
    return None


def _shape(node: dict[str, Any]) -> tuple[int | None, ...]:
    """Dimensions are written as text; -1 (or text that is no number) is one that varies."""
    dimensions = _child(node, "shape", "dimensions")
    shape = []
    for dimension in dimensions if isinstance(dimensions, list) else []:
        text = str(dimension)
        shape.append(int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None)
    return tuple(shape)


def _child(node: dict[str, Any], *keys: str) -> Any:  # noqa: ANN401  any JSON value
    value: Any = node
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
