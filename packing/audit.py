"""The audit: what became of every episode and span, per dataset."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SourceAudit:
    """Counts of one dataset of the selection.

    `dropped` and `cut` are what a plan loses without having been asked; no option of this version
    asks for it, so they are 0 and checked to be.

    Attributes:
        dataset: its name.
        episodes, steps: what was selected.
        spans: source spans made of it.
        tokens: tokens of these spans.
        planned: occurrences in the plan over all epochs.
        repeated: occurrences beyond one per epoch.
        omitted: spans that an epoch leaves out, summed over epochs.
        split: pieces beyond the first into which episodes were split.
        refused: reason -> count of spans (or steps, as the reason says) that were not made.
        unscored: action steps of the selected episodes that the loss leaves out, since they are
            marked invalid or hold NaN or infinity.
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
    dropped: int = 0
    cut: int = 0
