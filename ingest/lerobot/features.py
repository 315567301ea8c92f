"""From declared features and recorded columns to a `Spec`.

What is recorded counts: dtype and shape come from the columns, names from `meta/info.json`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ingest.lerobot.info import DatasetInfo, DeclaredFeature
from ingest.lerobot.modality import Modality
from ingest.source import Finding
from lake.spec import CameraSpec, FeatureSlice, FeatureSpec, Role, Spec, canonical_name

_ROLES: Final[Mapping[str, Role]] = {
    "observation.state": "state",
    "state": "state",
    "action": "action",
    "actions": "action",
    "next.reward": "reward",
    "reward": "reward",
    "next.done": "done",
    "done": "done",
    "next.success": "success",
    "success": "success",
}


@dataclass(frozen=True, kw_only=True)
class RecordedFeature:
    """A column as it is in the data: numpy dtype name or `string`, and the shape of one step."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    as_json: bool = False


def lake_names(keys: Sequence[str]) -> dict[str, str]:
    """Names in the lake for source keys, unique whatever the keys are.

    The short canonical name where it is free, else the whole key in lower case, else numbered.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key in keys:
        whole = canonical_name(key.replace(".", "_").replace("/", "_"))
        name = next(n for n in _candidates(canonical_name(key), whole) if n not in taken)
        names[key] = name
        taken.add(name)
    return names


def _candidates(short: str, whole: str) -> list[str]:
    return [short, whole, *(f"{whole}_{number}" for number in range(2, 1000))]


def declared_columns(info: DatasetInfo, schema: pa.Schema | None) -> list[RecordedFeature]:
    """What the columns should be: by the schema of a data file where there is one.

    Lengths of variable lists are taken from `info.json`, since only reading tells them.
    """
    columns = []
    for feature in info.features.values():
        if feature.is_camera:
            continue
        dtype, shape = feature.dtype, feature.shape if feature.shape != (1,) else ()
        if schema is not None and feature.key in schema.names:
            dtype, shape = _arrow_form(schema.field(feature.key).type, feature)
        if dtype == "language":
            dtype = "string"
        columns.append(RecordedFeature(key=feature.key, dtype=dtype, shape=shape))
    return columns


def _arrow_form(kind: pa.DataType, declared: DeclaredFeature) -> tuple[str, tuple[int, ...]]:
    nested = False
    while isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        kind, nested = kind.value_type, True
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return "string", ()
    dtype = str(kind.to_pandas_dtype()().dtype)
    return dtype, declared.shape if nested else ()


def build_spec(
    info: DatasetInfo, modality: Modality, columns: Sequence[RecordedFeature]
) -> tuple[Spec, list[Finding]]:
    """The spec of episodes with these columns, and where the declaration differs from them."""
    findings: list[Finding] = []
    names = lake_names([column.key for column in columns])
    features = tuple(_feature(info, column, names[column.key], findings) for column in columns)
    camera_names = lake_names([camera.key for camera in info.cameras])
    cameras = []
    for camera in info.cameras:
        height, width = camera.picture_size
        cameras.append(
            CameraSpec(
                name=camera_names[camera.key],
                source_name=camera.key,
                height=height,
                width=width,
                is_depth=camera.is_depth,
            )
        )
    conventions = {f"encoding:{names[c.key]}": "json" for c in columns if c.as_json}
    for name, key in (modality.annotations or {}).items():
        if key in names:
            conventions[f"annotation:{name}"] = f"{names[key]} holds indices into the task table"
    for name, key in (modality.cameras or {}).items():
        if key in camera_names and canonical_name(name) != camera_names[key]:
            conventions[f"modality_camera:{camera_names[key]}"] = name
    spec = Spec(
        features=features,
        cameras=tuple(cameras),
        slices=_slices(
            modality, {c.key: f for c, f in zip(columns, features, strict=True)}, findings
        ),
        conventions=conventions,
    )
    return spec, findings


def _feature(
    info: DatasetInfo, column: RecordedFeature, name: str, findings: list[Finding]
) -> FeatureSpec:
    declared = info.features.get(column.key)

    def warn(reason: str, detail: str) -> None:
        findings.append(
            Finding(
                severity="warning",
                reason=reason,
                where="meta/info.json",
                detail=detail,
                stream=name,
            )
        )

    names: tuple[str, ...] | None = None
    if declared is None:
        warn("undeclared-feature", f"column {column.key} is not declared; it is kept")
    else:
        size = 1
        for side in column.shape:
            size *= side
        if declared.dtype not in {column.dtype, "language"}:
            warn(
                "wrong-dtype", f"{declared.dtype} is declared, {column.dtype} is recorded and kept"
            )
        if (declared.shape if declared.shape != (1,) else ()) != column.shape and not (
            declared.shape == (1,) == column.shape
        ):
            warn(
                "wrong-shape",
                f"shape {list(declared.shape)} is declared, {list(column.shape)} is recorded and"
                " kept",
            )
        if declared.names is not None and len(declared.names) == size:
            names = declared.names
        elif declared.names is not None:
            warn("wrong-names", f"{len(declared.names)} names for {size} elements; names not used")
    role: Role = "language" if column.as_json and "language" in column.key else "other"
    return FeatureSpec(
        name=name,
        source_name=column.key,
        dtype=column.dtype,
        shape=column.shape,
        names=names,
        role=_ROLES.get(column.key, role),
    )


def _slices(
    modality: Modality, features: Mapping[str, FeatureSpec], findings: list[Finding]
) -> tuple[FeatureSlice, ...]:
    slices = []
    for part in modality.slices:
        feature = features.get(part.key)
        if feature is None or part.stop > feature.size:
            size = "no such column" if feature is None else f"{feature.size} elements"
            findings.append(
                Finding(
                    severity="warning",
                    reason="bad-slice",
                    where="meta/modality.json",
                    detail=f"{part.name} is [{part.start}, {part.stop}) of {part.key}, which has"
                    f" {size}; the name is not used",
                    stream=part.key,
                )
            )
            continue
        slices.append(
            FeatureSlice(
                name=part.name,
                feature=feature.name,
                start=part.start,
                stop=part.stop,
                attributes=part.attributes,
            )
        )
    return tuple(slices)
