"""What a robomimic, robosuite or LIBERO file says in the attributes of `/data`.

robomimic writes `env_args`, robosuite `env_info` and `env`, LIBERO `problem_info` as well; each is
JSON text, with other keys from version to version.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ingest.hdf5.files import attribute_json, attribute_number, attribute_text
from ingest.source import printable, usable_rate


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The simulation the episodes of a file were recorded in.

    Attributes:
        is_libero: True where LIBERO wrote the file.
        task: name of the environment.
        robots: the robots, joined by `+`.
        rate_hz: control steps per second.
        instruction: LIBERO's instruction, the same for all episodes.
        conventions: facts that the file or its format states about its values.
    """

    is_libero: bool
    task: str | None
    robots: str | None
    rate_hz: float | None
    instruction: str | None
    conventions: Mapping[str, str]

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Self:
        """Read the attributes of `/data`; what is missing or of another type is None."""
        stated = {
            **attribute_json(attributes, "env_info"),
            **attribute_json(attributes, "env_args"),
        }
        nested = stated.get("env_kwargs")
        arguments = nested if isinstance(nested, dict) else {}
        problem = attribute_json(attributes, "problem_info")
        is_libero = bool(problem) or attribute_text(attributes, "bddl_file_name") is not None
        rate = attribute_number({**stated, **arguments}, "control_freq")
        instruction = _text(problem.get("language_instruction"), joint="")
        return cls(
            is_libero=is_libero,
            task=_text(stated.get("env_name")) or attribute_text(attributes, "env", "env_name"),
            robots=_text(arguments.get("robots") or stated.get("robots"), joint="+"),
            rate_hz=usable_rate(rate or attribute_number(attributes, "control_freq", "fps")),
            instruction=instruction.strip('"') if instruction else None,
            conventions=_conventions(attributes, is_libero=is_libero),
        )


def _conventions(attributes: Mapping[str, Any], *, is_libero: bool) -> dict[str, str]:
    known = {"gripper": "robosuite: action -1 opens, +1 closes"}
    if is_libero:
        known["action_timing"] = "obs[t] is the result of action[t]"
        known["image_origin"] = (
            attribute_text(attributes, "macros_image_convention") or "opengl (upside down)"
        )
    return known


def _text(value: object, joint: str = "") -> str | None:
    """Text, or a list of it joined; None for anything else and for blanks."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = joint.join(value)
    return printable(value.strip()) or None if isinstance(value, str) else None
