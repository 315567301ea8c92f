"""What policies that learn by flow matching share: noised actions, velocities, Euler steps."""

from abc import abstractmethod
from typing import Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from loader.batch import PackedBatch
from training.loss import Prediction, counted_actions
from training.models.flow import FlowDraws, draw_flow
from training.models.normalise import Normaliser
from training.models.policy_model import PolicyModel
from training.policy_spec import Moments, PolicySpec


class Encoded(Protocol):
    """What is computed once of the observations of a batch, whatever the actions."""

    @property
    def query_spans(self) -> Tensor:
        """[Q] int64, row in [N] of each action query."""


E = TypeVar("E", bound=Encoded)


class FlowPolicy(PolicyModel, Generic[E]):
    """A policy that predicts the velocity from noise to actions (flow matching, arXiv:2210.02747).

    Args:
        spec: what the plan decides.
        time_sampling: see `training.models.flow.draw_flow`.
        flow_steps: Euler steps of `sample`.
        action: what actions are normalised by, for each `stats_id`; None for the spec's.
    """

    def __init__(
        self,
        spec: PolicySpec,
        *,
        time_sampling: Literal["beta", "uniform"],
        flow_steps: int,
        action: tuple[Moments, ...] | None = None,
    ) -> None:
        super().__init__(spec)
        self.time_sampling: Literal["beta", "uniform"] = time_sampling
        self.flow_steps = flow_steps
        self.normalise_action = Normaliser(action or spec.action, spec.action_dim)

    @abstractmethod
    def encode(self, batch: PackedBatch[Tensor]) -> E:
        """Run once what does not see the actions."""

    @abstractmethod
    def velocity(
        self, batch: PackedBatch[Tensor], encoded: E, noised: Tensor, time: Tensor
    ) -> Tensor:
        """Predict the velocity.

        Args:
            batch: the batch that `encoded` was made of.
            encoded: from `encode`.
            noised: [Q, Da] normalised actions at the flow time.
            time: [N] flow time of each span, 0 at the noise and 1 at the actions.

        Returns:
            [Q, Da].
        """

    def forward(self, batch: PackedBatch[Tensor]) -> Prediction:
        """Velocity and its target at the flow time that the plan gives each span."""
        encoded = self.encode(batch)
        draws = self.draws(batch, encoded.query_spans)
        stats_ids = batch.stats_ids.long()[encoded.query_spans]
        # Only real values enter: a dimension that an embodiment lacks, or a step whose action was
        # not recorded (NaN in the lake), would otherwise reach its neighbours through attention.
        counted = counted_actions(batch)
        actions = self.normalise_action(batch.actions, stats_ids).where(counted, 0.0)
        time = draws.time[encoded.query_spans][:, None]
        noised = time * actions + (1.0 - time) * draws.noise * batch.action_dim_mask
        return Prediction(
            velocity=self.velocity(batch, encoded, noised, draws.time),
            target=actions - draws.noise,
        )

    def draws(self, batch: PackedBatch[Tensor], query_spans: Tensor) -> FlowDraws:
        """Noise and time of a batch, a function of plan, epoch, span ids and occurrences only."""
        return draw_flow(
            batch.span_ids,
            batch.occurrence_ids,
            query_spans,
            batch.action_position_ids,
            action_dim=self.spec.action_dim,
            plan_hash=batch.plan_hash,
            epoch=batch.epoch,
            time_sampling=self.time_sampling,
        )

    @torch.no_grad()
    def sample(self, batch: PackedBatch[Tensor]) -> Tensor:
        """Draw actions by Euler integration from noise (time 0) to data (time 1).

        Args:
            batch: observations; its `actions` are not read, only their number.

        Returns:
            [Q, Da] float32 in the recorded unit.
        """
        encoded = self.encode(batch)
        actions = self.draws(batch, encoded.query_spans).noise * batch.action_dim_mask
        for step in range(self.flow_steps):
            time = torch.full(batch.span_ids.shape, step / self.flow_steps, device=actions.device)
            velocity = self.velocity(batch, encoded, actions, time)
            actions = actions + velocity * batch.action_dim_mask / self.flow_steps
        stats_ids = batch.stats_ids.long()[encoded.query_spans]
        return self.normalise_action.inverse(actions, stats_ids)
