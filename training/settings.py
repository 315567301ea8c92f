"""Frozen dataclasses from nested mappings: YAML, JSON and command-line overrides."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from training.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter

C = TypeVar("C")

# What YAML 1.2 and JSON take as a number and PyYAML (YAML 1.1) as text: `1e-4`.
_EXPONENT: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")


class Settings:
    """Base of a group of settings: an unknown name in it is an error."""

    __pydantic_config__: ClassVar["ConfigDict"] = {"extra": "forbid"}


def build(kind: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Make a dataclass of `values`, checking every name and type on the way.

    Args:
        kind: a dataclass of `Settings`; fields of it may be unions of such that a literal field
            tells apart.
        values: field name -> value, as JSON has them; a missing field takes its default.
        where: dotted prefix for messages.

    Raises:
        ConfigError: an unknown name, or a value that is not of the field's type.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  (only a run needs it)

    adapter = TypeAdapter(kind)

    try:
        # Strict, and as JSON: whole numbers are floats, lists are tuples, nothing else is cast.
        return adapter.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ConfigError(
            "; ".join(
                _said(adapter, dict(e), values, where) for e in error.errors(include_url=False)
            )
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"settings are numbers, texts, lists and groups of these: {error}"
        ) from None


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay `values` over the nested mapping `into`; a group of another `kind` replaces its own."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            below = into.get(name)
            if not isinstance(below, Mapping) or value.get("kind", below.get("kind")) != below.get(
                "kind"
            ):
                below = {}
            into[name] = below = dict(below)
            merge(below, value)
        else:
            into[name] = value


def nested(name: str, value: object) -> dict[str, Any]:
    """`a.b` and a value -> {"a": {"b": value}}; a text is read as `from_text` does."""
    for part in reversed(name.split(".")):
        value = {part: from_text(value) if isinstance(value, str) else value}
    assert isinstance(value, dict)
    return value


def from_text(text: str) -> object:
    """What a setting on a command line means: JSON, `a,b` or `a,` for a list, `none`, else text."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text and text[0] not in "[{":
        return [from_text(part.strip()) for part in text.removesuffix(",").split(",")]
    return {"none": None, "true": True, "false": False}.get(text.lower(), text)


def read_yaml(path: Path) -> Mapping[str, Any]:
    """The settings in a YAML file.

    Raises:
        ConfigError: it cannot be read, or is not a mapping.
    """
    import yaml  # noqa: PLC0415  (only a run with a file needs it)

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506  (a SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"the configuration {path} is not a mapping of names to values")
    return values


def _said(
    adapter: "TypeAdapter[Any]", error: dict[str, Any], values: Mapping[str, Any], where: str
) -> str:
    name = ".".join(part for part in (where, *_path(error["loc"], values)) if part)
    if error["type"] == "unexpected_keyword_argument":
        near = difflib.get_close_matches(name.rpartition(".")[2], _names(adapter), n=1)
        return f"unknown setting {name}" + (f" (did you mean {near[0]}?)" if near else "")
    return f"{name}: {error['msg']}, not {error['input']!r}"


def _names(adapter: "TypeAdapter[Any]") -> set[str]:
    """Names of all settings, in whatever group."""
    schema = adapter.json_schema()
    groups = [schema, *schema.get("$defs", {}).values()]
    return {name for group in groups for name in group.get("properties", {})}


def _path(location: tuple[int | str, ...], values: object) -> Iterator[str]:
    """The names in `values` that pydantic's location means: it names the kind of a union too."""
    kind: object = None
    for part in location:
        if kind is not None and part == kind:
            kind = None
            continue
        if isinstance(values, Mapping):
            values = values.get(part)
            kind = values.get("kind") if isinstance(values, Mapping) else None
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        yield str(part)
