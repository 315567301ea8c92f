"""The sizes that all batches of a plan share."""

from dataclasses import dataclass
from typing import Self

from loader.batch import ImageFormat
from loader.errors import BatchError
from packing.plan_header import PlanHeader


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """The sizes that are the same for every batch of a plan.

    Attributes:
        tokens: T.
        segments: N: the most spans of a pack, and the pad segments of an empty one.
        max_seqlen, max_seqlen_action, max_seqlen_kv: longest segment of each stream.
        state_size, action_size: Ds, Da.
        image_size: (height, width) to which pictures are resized, None to keep theirs.
        image_format: what pictures are delivered as.
    """

    tokens: int
    segments: int
    max_seqlen: int
    max_seqlen_action: int
    max_seqlen_kv: int
    state_size: int
    action_size: int
    image_size: tuple[int, int] | None
    image_format: ImageFormat

    @classmethod
    def of(
        cls,
        header: PlanHeader,
        image_size: tuple[int, int] | None = None,
        image_format: ImageFormat = "rgb",
    ) -> Self:
        """The sizes that a plan implies."""
        longest = max(header.shape.span_prefix_tokens, 1)
        return cls(
            tokens=header.budget_tokens,
            segments=header.shape.spans + -(-header.budget_tokens // longest),
            max_seqlen=longest,
            max_seqlen_action=header.shape.span_action_tokens
            // max(header.layout.action_tokens, 1),
            max_seqlen_kv=max(header.shape.span_tokens, longest),
            state_size=max((spec.state_size for spec in header.specs), default=0),
            action_size=max((spec.action_size for spec in header.specs), default=0),
            image_size=image_size,
            image_format=image_format,
        )

    def bucket_shape(self, count: int, height: int, width: int) -> tuple[int, ...]:
        """Shape of a bucket of `count` pictures.

        Raises:
            BatchError: YUV of an odd size, which has no whole chroma planes.
        """
        if self.image_format == "rgb":
            return count, 3, height, width
        if height % 2 or width % 2:
            raise BatchError(
                f"pictures of {width}x{height} have no whole chroma planes: use"
                " image_format='rgb', or an even image_size"
            )
        return count, height * 3 // 2, width
