"""The mixture of `headrace pack`: which source gives how many tokens of an epoch."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lake.errors import HeadraceError

if TYPE_CHECKING:
    from packing.mixture import Mixture

MixtureFile = Annotated[
    Path | None,
    typer.Option(
        "--mixture",
        metavar="FILE",
        help="Mixture as a JSON file: the fields of packing.mixture.Mixture.",
    ),
]
MixOver = Annotated[
    Literal["dataset", "embodiment"] | None,
    typer.Option(help="What is mixed. [default: dataset, where a mixture is asked for]"),
]
MixSelection = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Mix selections, in place of EPISODES; repeat for each of them."
    ),
]
Weight = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=W",
        help="Share of an epoch's tokens that a source gives, over the sum of all; repeat for"
        " each, 0 leaves it out.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Shares in proportion to tokens^(1/T): 1 as recorded, larger is flatter."
        " [default: 1, where a mixture is asked for]"
    ),
]
EpochTokens = Annotated[
    str | None,
    typer.Option(metavar="N", help="Tokens of an epoch, as 1e9. [default: those of all sources]"),
]
MaxRepeats = Annotated[
    int | None, typer.Option(help="No span more often in an epoch; others fill up.")
]
MinShare = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]S", help="Least share of a source, or of each not named; repeat."),
]
MaxShare = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]S", help="Most share of a source, or of each not named; repeat."),
]
Per = Annotated[
    Literal["step", "episode"] | None,
    typer.Option(
        help="Within a source: chances alike for each span, or shares alike for each episode."
        " [default: step, where a mixture is asked for]"
    ),
]


class MixtureOptionError(HeadraceError):
    """Options of a mixture that do not go together, or are no numbers."""


def chosen_mixture(
    *,
    file: Path | None,
    episodes: str | None,
    over: str | None = None,
    selections: Sequence[str] | None = None,
    weights: Sequence[str] | None = None,
    temperature: float | None = None,
    epoch_tokens: str | None = None,
    max_repeats: int | None = None,
    min_share: Sequence[str] | None = None,
    max_share: Sequence[str] | None = None,
    per: str | None = None,
) -> "Mixture | None":
    """The mixture that the options ask for; None where none of them is given.

    Raises:
        MixtureOptionError: options that do not go together, named; or a file that is no mixture.
        PlanError: numbers out of range.
    """
    from packing.errors import PlanError
    from packing.mixture import EACH_OTHER, Mixture

    given: dict[str, Any] = {
        "--mix-over": over,
        "--mix-selection": selections,
        "--weight": weights,
        "--temperature": temperature,
        "--epoch-tokens": epoch_tokens,
        "--max-repeats": max_repeats,
        "--min-share": min_share,
        "--max-share": max_share,
        "--per": per,
    }
    options = [name for name, value in given.items() if value not in (None, [])]
    if file is not None:
        if options:
            raise MixtureOptionError(
                f"--mixture and {', '.join(options)}: write them into the file, or give options"
                " alone"
            )
        try:
            mixture = Mixture.from_json(_read(file))
        except PlanError as error:
            raise MixtureOptionError(f"--mixture {file}: {error}") from error
    elif not options:
        return None
    else:
        if weights and temperature is not None:
            raise MixtureOptionError(
                "--weight and --temperature: weights are fixed shares, a temperature makes shares"
                " from the sources' sizes; give one"
            )
        if over and selections:
            raise MixtureOptionError(f"--mix-over {over} and --mix-selection: mix one or the other")
        mixture = Mixture(
            over="selection" if selections else over or "dataset",  # type: ignore[arg-type] # checked there
            selections=tuple(selections or ()),
            weights=_numbers("--weight", weights) if weights else None,
            temperature=temperature,
            epoch_tokens=None if epoch_tokens is None else _count("--epoch-tokens", epoch_tokens),
            max_repeats=max_repeats,
            min_share=_numbers("--min-share", min_share or (), EACH_OTHER),
            max_share=_numbers("--max-share", max_share or (), EACH_OTHER),
            per=per or "step",  # type: ignore[arg-type] # checked there
        )
    if mixture.over == "selection" and episodes is not None:
        raise MixtureOptionError(
            f"EPISODES {episodes!r} and a mixture of selections: the selections are the episodes of"
            " the plan; leave EPISODES out"
        )
    return mixture


def _numbers(option: str, texts: Sequence[str], unnamed: str | None = None) -> Mapping[str, float]:
    """NAME=NUMBER of each text; where `unnamed` is given, a number alone is of that name."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals:
            if unnamed is None:
                raise MixtureOptionError(f"{option} {text}: write {option} NAME=NUMBER")
            name = unnamed
        try:
            value = float(number)
        except ValueError as error:
            raise MixtureOptionError(f"{option} {text}: {number!r} is no number") from error
        if name in found:
            raise MixtureOptionError(f"{option} {text}: given twice for this source")
        found[name] = value
    return found


def _count(option: str, text: str) -> int:
    """A whole number, also as 1e9."""
    try:
        number = Fraction(text.replace("_", ""))
    except (ValueError, ZeroDivisionError) as error:
        raise MixtureOptionError(f"{option} {text}: is no number; write 2000000 or 2e6") from error
    if number.denominator != 1 or number < 1:
        raise MixtureOptionError(f"{option} {text}: must be a whole number from 1 on")
    return int(number)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MixtureOptionError(f"--mixture {file}: cannot be read: {error}") from error
