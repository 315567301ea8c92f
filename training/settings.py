"""Frozen dataclasses from nested mappings: YAML, JSON and command-line overrides."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from training.errors import ConfigError

C = TypeVar("C")


def build(cls: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Make a dataclass of `values`, checking every name and type on the way.

    Numbers may arrive as text (from a command line), sequences as lists (from YAML or JSON).

    Args:
        cls: a dataclass whose fields are str, int, float, bool, Literal, tuple, an optional of
            these, or another such dataclass.
        values: field name -> value; a missing field takes its default.
        where: dotted prefix for messages.

    Raises:
        ConfigError: an unknown name, or a value that is not of the field's type.
    """
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(
            f"unknown setting {dotted(where, unknown[0])}; there are:"
            f" {', '.join(dotted(where, name) for name in hints)}"
        )
    return cls(**{n: _convert(v, hints[n], dotted(where, n)) for n, v in values.items()})


def merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Lay `values` over the nested mapping `into`."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            below = into.get(name)
            into[name] = below = dict(below) if isinstance(below, Mapping) else {}
            merge(below, value)
        else:
            into[name] = value


def dotted(where: str, name: str) -> str:
    """`where.name`, or `name` at the top."""
    return f"{where}.{name}" if where else name


def _convert(value: object, kind: Any, where: str) -> object:  # noqa: ANN401  (a type form)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is a group of settings, not {value!r}")
        return build(kind, value, where)
    if origin is types.UnionType:
        if value is None or value == "none":
            return None
        (kind,) = (argument for argument in arguments if argument is not types.NoneType)
        return _convert(value, kind, where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} is one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        return _convert_tuple(value, arguments, where)
    return _convert_scalar(value, kind, where)


def _convert_tuple(value: object, kinds: tuple[Any, ...], where: str) -> tuple[object, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ConfigError(f"{where} is a list, not {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(items) != len(kinds):
        raise ConfigError(f"{where} takes {len(kinds)} values, not {len(items)}")
    return tuple(_convert(item, kind, where) for item, kind in zip(items, kinds, strict=True))


def _convert_scalar(value: object, kind: type, where: str) -> object:
    try:
        if kind is bool and isinstance(value, str):
            return {"true": True, "false": False}[value.lower()]
        if kind is not bool and isinstance(value, bool):
            raise ValueError  # noqa: TRY301  (one message for all)
        if kind is int and isinstance(value, str):
            return int(value)
        if kind is float and isinstance(value, (int, str)):
            return float(value)
    except (ValueError, KeyError):
        raise ConfigError(f"{where} is of type {kind.__name__}, not {value!r}") from None
    if not isinstance(value, kind):
        raise ConfigError(f"{where} is of type {kind.__name__}, not {value!r}")
    return value
