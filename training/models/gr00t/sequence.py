"""Where the tokens of a batch go: observations to the backbone, the others to the action head.

A plan's prefix holds, for each span, text and pictures, then state tokens, then future tokens. The
backbone reads the first; the head's own row is, span after span, [state; future; actions]. All
sizes are known on the host from shapes and from the number of spans: no device is asked.

Letters, beside those of `loader.batch`: V tokens of observations (and pads behind them), H tokens
of the head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from loader.batch import Modality, PackedBatch
from training.attention.segments import Segments
from training.attention.streams import real_tokens, rows_of
from training.attention.varlen import prepared, varlen_attention
from training.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """What the backbone reads.

    Attributes:
        places: [V] int64, of the tokens in [T]; those of a span stay together, in their order.
        causal: a token to those of its span up to itself.
        full: a token to all those of its span.
    """

    places: Tensor
    causal: Segments
    full: Segments


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadTokens:
    """The head's row of tokens.

    Attributes:
        spans: [H] int64, row in [N] of each token.
        gather: [H] int64, makes the row of [all state tokens; all future tokens; all actions].
        observed_places: [H - Q] int64, of state and future tokens in the row.
        action_places: [Q] int64, of the actions.
        cross: the row to the observations of its span.
        own: all tokens of a span to all, where actions see each other.
        own_observed, own_actions: else, state and future tokens to each other, and actions to those
            and to the actions up to themselves.
    """

    spans: Tensor
    gather: Tensor
    observed_places: Tensor
    action_places: Tensor
    cross: Segments
    own: Segments | None
    own_observed: Segments
    own_actions: Segments

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of the row to itself, [H, heads, D] each."""
        if self.own is not None:
            return varlen_attention(q, k, v, self.own)
        places = self.observed_places
        observed = varlen_attention(q[places], k[places], v[places], self.own_observed)
        actions = varlen_attention(q[self.action_places], k, v, self.own_actions)
        order = torch.cat((places, self.action_places))
        both = torch.cat((observed, actions))
        return torch.zeros_like(both).index_copy(0, order, both)


def observed_tokens(batch: PackedBatch[Tensor], spec: PolicySpec) -> Observed:
    """Text and pictures of a batch, and its pads."""
    modality = batch.token_modality
    beside = (modality == Modality.STATE) | (modality == Modality.EXTRA)
    count = len(modality) - _observed_in_head(batch, spec)
    places = torch.argsort(beside.to(torch.uint8), stable=True)[:count]
    real = real_tokens(batch)
    cu_seqlens = batch.cu_seqlens - _cu_state(batch, spec) - _cu_future(batch, spec)
    causal, full = (
        prepared(
            Segments(
                cu_seqlens_q=cu_seqlens,
                cu_seqlens_k=cu_seqlens,
                max_seqlen_q=batch.max_seqlen,
                max_seqlen_k=batch.max_seqlen,
                causal=causal,
                key_mask=None if real is None else real[places],
                total_q=count,
                total_k=count,
            )
        )
        for causal in (True, False)
    )
    return Observed(places=places, causal=causal, full=full)


def head_tokens(
    batch: PackedBatch[Tensor], spec: PolicySpec, observed: Observed, *, causal: bool
) -> HeadTokens:
    """The head's row of a batch.

    Args:
        batch: the batch.
        spec: tells how many state and future tokens a span has.
        observed: of the same batch.
        causal: actions see those before them only.
    """
    cu_state, cu_future = _cu_state(batch, spec), _cu_future(batch, spec)
    cu_action = batch.cu_seqlens_action
    cu_observed = cu_state + cu_future
    cu_own = cu_observed + cu_action
    states, queries = len(batch.state_token_index), len(batch.actions)
    both = _observed_in_head(batch, spec)

    def places(cu_mine: Tensor, total: int, before: Tensor) -> Tensor:
        """[total]: a token's number among its kind, and the tokens of other kinds before it."""
        rows = rows_of(cu_mine, total)
        return torch.arange(total, device=rows.device) + before.long()[rows]

    state_places = places(cu_state, states, cu_future[:-1] + cu_action[:-1])
    future_places = places(cu_future, both - states, cu_state[1:] + cu_action[:-1])
    action_places = places(cu_action, queries, cu_observed[1:])
    order = torch.cat((state_places, future_places, action_places))
    gather = torch.empty_like(order).scatter(
        0, order, torch.arange(len(order), device=order.device)
    )
    most_observed = _most_observed(batch, spec)
    most = most_observed + batch.max_seqlen_action
    key_mask = None
    if observed.full.key_mask is not None:
        real = batch.action_dim_mask.any(dim=1)
        key_mask = pad(real, (both, 0), value=True)[gather]
    return HeadTokens(
        spans=rows_of(cu_own, both + queries),
        gather=gather,
        observed_places=places(cu_observed, both, cu_action[:-1]),
        action_places=action_places,
        cross=prepared(
            Segments(
                cu_seqlens_q=cu_own,
                cu_seqlens_k=observed.full.cu_seqlens_k,
                max_seqlen_q=most,
                max_seqlen_k=observed.full.max_seqlen_k,
                key_mask=observed.full.key_mask,
                total_q=both + queries,
                total_k=observed.full.total_k,
            )
        ),
        own=None
        if causal
        else prepared(
            Segments(
                cu_seqlens_q=cu_own,
                cu_seqlens_k=cu_own,
                max_seqlen_q=most,
                max_seqlen_k=most,
                key_mask=key_mask,
                total_q=both + queries,
                total_k=both + queries,
            )
        ),
        own_observed=prepared(
            Segments(
                cu_seqlens_q=cu_observed,
                cu_seqlens_k=cu_observed,
                max_seqlen_q=most_observed,
                max_seqlen_k=most_observed,
                total_q=both,
                total_k=both,
            )
        ),
        own_actions=prepared(
            Segments(
                cu_seqlens_q=cu_action,
                cu_seqlens_k=cu_own,
                max_seqlen_q=batch.max_seqlen_action,
                max_seqlen_k=most,
                causal=True,
                key_mask=key_mask,
                total_q=queries,
                total_k=both + queries,
            )
        ),
    )


def _observed_in_head(batch: PackedBatch[Tensor], spec: PolicySpec) -> int:
    """State and future tokens of the batch."""
    return len(batch.state_token_index) + spec.layout.extra_tokens * batch.num_spans


def _cu_state(batch: PackedBatch[Tensor], spec: PolicySpec) -> Tensor:
    """[N+1] int32 state tokens before each segment."""
    return batch.cu_seqlens_state * spec.layout.state_tokens


def _cu_future(batch: PackedBatch[Tensor], spec: PolicySpec) -> Tensor:
    """[N+1] int32 future tokens before each segment; pads have none."""
    ends = torch.arange(len(batch.cu_seqlens), device=batch.cu_seqlens.device, dtype=torch.int32)
    return ends.clamp(max=batch.num_spans) * spec.layout.extra_tokens


def _most_observed(batch: PackedBatch[Tensor], spec: PolicySpec) -> int:
    """No span has more state and future tokens."""
    if spec.span_kind != "window":
        return batch.max_seqlen
    return spec.history * spec.layout.state_tokens + spec.layout.extra_tokens
