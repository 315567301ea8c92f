"""RLDS datasets written by the tests as TensorFlow Datasets writes them, with protobuf itself.

The Example message is described here from `tensorflow/core/example/{example,feature}.proto`, so
that what the tests write and compare with does not come from the reader under test.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray
from PIL import Image

from ingest.rlds.source import RldsSource
from ingest.source import EpisodeReading, SourceOptions
from tests.ingest.hdf5_files import jpeg, pictures

Example = dict[str, Any]
NAME = "toy-train.tfrecord-00000-of-00001"


@cache
def example_class() -> Callable[[], Any]:
    """The class of `tf.train.Example`."""
    file = descriptor_pb2.FileDescriptorProto(name="toy.proto", package="toy", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    lists = (
        ("BytesList", kind.TYPE_BYTES),
        ("FloatList", kind.TYPE_FLOAT),
        ("Int64List", kind.TYPE_INT64),
    )
    for name, type_ in lists:
        file.message_type.add(name=name).field.add(
            name="value", number=1, type=type_, label=kind.LABEL_REPEATED
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (field, (name, _)) in enumerate(
        zip(("bytes_list", "float_list", "int64_list"), lists, strict=True), 1
    ):
        feature.field.add(
            name=field,
            number=number,
            type=kind.TYPE_MESSAGE,
            type_name=f".toy.{name}",
            label=kind.LABEL_OPTIONAL,
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    entry.field.add(
        name="value",
        number=2,
        type=kind.TYPE_MESSAGE,
        type_name=".toy.Feature",
        label=kind.LABEL_OPTIONAL,
    )
    features.field.add(
        name="feature",
        number=1,
        type=kind.TYPE_MESSAGE,
        type_name=".toy.Features.FeatureEntry",
        label=kind.LABEL_REPEATED,
    )
    file.message_type.add(name="Example").field.add(
        name="features",
        number=1,
        type=kind.TYPE_MESSAGE,
        type_name=".toy.Features",
        label=kind.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Callable[[], Any] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("toy.Example")
    )
    return made


def serialise(example: Example) -> bytes:
    """An Example: byte strings and texts, floats, or integers under each name."""
    message = example_class()()
    for name, given in example.items():
        feature = message.features.feature[name]
        if isinstance(given, list):
            values = [v.encode() if isinstance(v, str) else v for v in given]
            feature.bytes_list.value.extend(values)
            continue
        flat = np.asarray(given).ravel()
        if flat.dtype.kind == "f":
            feature.float_list.value.extend(flat.astype(np.float32).tolist())
        else:
            feature.int64_list.value.extend(flat.astype(np.int64).tolist())
    return bytes(message.SerializeToString())


def masked_crc(data: bytes) -> bytes:
    """The masked checksum as it is stored, by google-crc32c."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF)


def frame(data: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def png(picture: NDArray[Any]) -> bytes:
    """The picture as a PNG; uint16 keeps its 16 bits."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def depth_of(steps: int) -> NDArray[np.uint16]:
    """uint16 [T, 16, 24] with values above 255."""
    ramp = np.arange(16 * 24, dtype=np.uint16).reshape(16, 24) * 100
    moved: NDArray[np.uint16] = ramp + np.arange(steps, dtype=np.uint16)[:, None, None]
    return moved


def episode(steps: int = 6, seed: int = 0) -> Example:
    """One episode as RLDS has it, the last step marked."""
    rng = np.random.default_rng(seed)
    step = np.arange(steps)
    return {
        "steps/action": rng.normal(size=(steps, 7)),
        "steps/observation/state": rng.normal(size=(steps, 8)),
        "steps/observation/image": [
            jpeg(p) for p in pictures(steps, height=32, width=40, seed=seed)
        ],
        "steps/observation/depth": [png(d) for d in depth_of(steps)],
        "steps/language_instruction": ["pick up the cup"] * steps,
        "steps/is_first": step == 0,
        "steps/is_last": step == steps - 1,
        "steps/is_terminal": step == steps - 1,
        "steps/reward": (step == steps - 1).astype(np.float32),
        "steps/discount": np.ones(steps, np.float32),
        "episode_metadata/file_path": [f"/raw/{seed}.npy"],
        "episode_metadata/success": np.array([True]),
    }


def tensor(dtype: str, *shape: int, encoding: str = "none") -> dict[str, Any]:
    """A Tensor in `features.json`; -1 varies."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
        "tensor": {
            "shape": {"dimensions": [str(size) for size in shape]} if shape else {},
            "dtype": dtype,
            "encoding": encoding,
        },
    }


def image(dtype: str, encoding: str, *shape: int) -> dict[str, Any]:
    """An Image in `features.json`."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
        "image": {
            "shape": {"dimensions": [str(size) for size in shape]},
            "dtype": dtype,
            "encodingFormat": encoding,
        },
    }


TEXT = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}


def sequence(inner: Mapping[str, Any], name: str = "Sequence") -> dict[str, Any]:
    """A Sequence (or Dataset) of something."""
    return {
        "pythonClassName": f"tensorflow_datasets.core.features.sequence_feature.{name}",
        "sequence": {"feature": inner, "length": "-1"},
    }


def features_dict(features: Mapping[str, Any]) -> dict[str, Any]:
    """A FeaturesDict."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": dict(features)},
    }


def tree(
    steps: Mapping[str, Any] | None = None, observation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`features.json` of `episode`, with more features where given."""
    return features_dict(
        {
            "steps": sequence(
                features_dict(
                    {
                        "action": tensor("float32", 7),
                        "observation": features_dict(
                            {
                                "state": tensor("float64", 8),
                                "image": image("uint8", "jpeg", 32, 40, 3),
                                "depth": image("uint16", "png", 16, 24, 1),
                                **(observation or {}),
                            }
                        ),
                        "language_instruction": TEXT,
                        "is_first": tensor("bool"),
                        "is_last": tensor("bool"),
                        "is_terminal": tensor("bool"),
                        "reward": tensor("float32"),
                        "discount": tensor("float32"),
                        **(steps or {}),
                    }
                ),
                "Dataset",
            ),
            "episode_metadata": features_dict({"file_path": TEXT, "success": tensor("bool")}),
        }
    )


def write_dataset(
    folder: Path,
    examples: Sequence[Example],
    *,
    features: Mapping[str, Any] | None = None,
    name: str = "toy",
    shard_lengths: Sequence[int] | None = None,
    **info: Any,
) -> Path:
    """Write a dataset of one shard and its JSON files; returns the shard."""
    folder.mkdir(parents=True, exist_ok=True)
    shard = folder / NAME.replace("toy", name)
    shard.write_bytes(b"".join(frame(serialise(example)) for example in examples))
    (folder / "features.json").write_text(json.dumps(tree() if features is None else features))
    lengths = [len(examples)] if shard_lengths is None else shard_lengths
    stated = {
        "name": name,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": "train",
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "shardLengths": [str(length) for length in lengths],
            }
        ],
        **info,
    }
    (folder / "dataset_info.json").write_text(json.dumps(stated))
    return shard


def read_one(
    folder: Path,
    example: Example,
    *,
    options: SourceOptions | None = None,
    features: dict[str, Any] | None = None,
    name: str = "toy",
) -> EpisodeReading:
    """Write a dataset of one episode, and read it."""
    write_dataset(folder, [example], features=features, name=name)
    source = RldsSource(folder, options or SourceOptions())
    return source.read(source.entries()[0])


def told(reading: EpisodeReading, severity: str) -> dict[str, str]:
    """Stream -> reason of the findings of a severity."""
    return {f.stream: f.reason for f in reading.findings if f.severity == severity}
