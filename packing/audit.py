"""The audit: what became of every episode and span, per dataset, and per source of a mixture."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SourceAudit:
    """Counts of one dataset of the selection.

    `repeated` and `omitted` are what a mixture asks for, and 0 without one. `dropped` and `cut` are
    what a plan loses without having been asked; they are 0 and checked to be.

    Attributes:
        dataset: its name.
        episodes, steps: what was selected.
        spans: source spans made of it.
        tokens: tokens of these spans.
        planned: occurrences in the plan over all epochs.
        repeated: occurrences beyond the first of an epoch, summed over epochs.
        omitted: spans that an epoch leaves out, summed over epochs.
        split: pieces beyond the first into which episodes were split.
        refused: reason -> count of spans (or steps, as the reason says) that were not made.
        unscored: action steps that the loss leaves out: those of the selected episodes that are
            marked invalid or hold NaN or infinity, and for each span those past its episode's end
            (padded tails).
        masked: steps with an invalid state that spans were told to cross, and observe masked.
        dropped, cut: spans lost, and spans shortened.
    """

    dataset: str
    episodes: int
    steps: int
    spans: int
    tokens: int
    planned: int
    repeated: int = 0
    omitted: int = 0
    split: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    unscored: int = 0
    masked: int = 0
    dropped: int = 0
    cut: int = 0


@dataclass(frozen=True, kw_only=True)
class SourceShare:
    """What a mixture asked of one source, and what the plan gives, over all its epochs.

    Attributes:
        source: dataset, embodiment or selection.
        episodes, spans, tokens: of the source.
        asked_tokens, got_tokens: tokens of all epochs, as the mixture says and as planned.
        wished_share: of the tokens of all sources, by weight or temperature alone.
        asked_share, got_share: the same after caps and floors, and as planned.
        planned: occurrences.
        repeated: occurrences beyond the first of an epoch, summed over epochs.
        omitted: spans that an epoch leaves out, summed over epochs.
        never: spans that no epoch has.
        most_in_epoch: how often the most frequent span occurs in an epoch.
    """

    source: str
    episodes: int
    spans: int
    tokens: int
    asked_tokens: int
    got_tokens: int
    wished_share: float
    asked_share: float
    got_share: float
    planned: int
    repeated: int
    omitted: int
    never: int
    most_in_epoch: int
