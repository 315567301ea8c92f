"""The training loop, whole.

One optimizer step eats the S packs of one step of the plan, spread over the ranks. Each pack adds
a sum to the gradients; they are averaged over ranks with the step's last pack, scaled to the
global mean once, clipped, applied. Position, weights and record move together: after a kill the
run goes on from its last checkpoint with the same batches, noise and bits.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from lake.store import Lake
from loader.batch import PackedBatch
from loader.device import on_device
from loader.pack_loader import PackLoader
from loader.storage.settings import StorageSettings
from packing.stored_plan import AnyPlan
from training.attention.calls import AttentionCall, calls_of
from training.attention.choose import Choice, choose_backend
from training.attention.varlen import use_backend
from training.checkpoints.folder import Progress, latest_checkpoint, read_progress
from training.checkpoints.load import load_checkpoint
from training.checkpoints.writer import CheckpointWriter
from training.config import TrainConfig
from training.deterministic import deterministic
from training.distributed import Ranks, process_group, said_by_first
from training.errors import ConfigError, NonFiniteLossError
from training.logs.lineage import enter_run
from training.logs.metrics import StepMetrics
from training.logs.profile import profiled
from training.logs.run_logs import Records
from training.loss import (
    PackedLoss,
    clipped_norm,
    flow_matching_loss,
    scale_gradients,
)
from training.models.kinds import ModelConfig, build_model
from training.padded import padded_pack
from training.parallel import Shared, share
from training.policy_spec import PolicySpec
from training.precision.choose import Fp8Choice, choose_fp8, require_aligned, token_multiple
from training.precision.convert import convert_linears
from training.run_folder import run_folder
from training.schedule import learning_rate
from training.sigterm import sigterm_flag
from training.step_totals import step_metrics, step_totals
from training.trained import Trained

Batch = PackedBatch[Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a call of `train` did.

    Attributes:
        run_id: of the run, over all resumes.
        steps: optimizer steps done in all.
        total_steps: of the run.
        resumed_from: step of the checkpoint it went on from, None for a fresh start.
        checkpoint: the newest one.
        last: metrics of the last step, None where there was nothing left to do.
    """

    run_id: str
    steps: int
    total_steps: int
    resumed_from: int | None
    checkpoint: Path
    last: StepMetrics | None

    @property
    def finished(self) -> bool:
        """False after SIGTERM: the same call goes on from the checkpoint."""
        return self.steps >= self.total_steps


def train(
    lake: Lake,
    plan: AnyPlan,
    out: Path | str,
    config: TrainConfig,
    *,
    resume: Literal["auto", "never"] = "auto",
    make_model: Callable[[ModelConfig, PolicySpec], nn.Module] = build_model,
    loss_of: PackedLoss = flow_matching_loss,
    on_step: Callable[[StepMetrics, int], None] | None = None,
) -> TrainResult:
    """Train a policy on a plan; call it in every process that torchrun starts.

    Writes into `out`: `run.json`, `metrics.jsonl`, `ledger/`, `checkpoints/`.

    Args:
        lake: that the plan was made of.
        plan: what to eat.
        out: folder of the run; where it holds a checkpoint, the run goes on from there.
        config: sizes, schedule, intervals.
        resume: `auto`, or `never` to refuse a folder that already holds a run.
        make_model: the model to train; its forward is a `PackedModel`.
        loss_of: sum of the loss over the action values of a batch.
        on_step: called on the first rank with each step's metrics and the number of all steps.

    Raises:
        ConfigError: configuration and plan, checkpoint or device do not fit.
        CheckpointError: a checkpoint cannot be read or written.
        NonFiniteLossError: loss or gradients are NaN or infinite.
        LoaderError: data cannot be read.
        TrainingError: another training writes into `out`, or the disk is full.
    """
    out = Path(out)
    total_steps = _total_steps(config, plan)
    if config.threads:
        torch.set_num_threads(config.threads)
    with (
        process_group() as ranks,
        run_folder(out, ranks),
        deterministic(config.deterministic),
        sigterm_flag() as terminated,
    ):
        torch.manual_seed(config.seed)
        spec = PolicySpec.from_plan(plan.header, image_size=config.loader.image_size)
        dtype = torch.bfloat16 if config.precision.dtype == "bf16" else torch.float32
        fp8 = choose_fp8(config.precision, ranks.device)
        model = make_model(config.model, spec).to(ranks.device)
        converted = convert_linears(model, fp8)
        with _open_loader(lake, plan, config, ranks) as loader:
            shared = share(model, config.distributed, ranks, dtype)
            trained = Trained.start(model, spec, config)
            # Not before model and loader are made: what they refuse is no run.
            run = enter_run(lake, plan.header, out, config, ranks, resume=resume)
            # The first rank's word: on a shared file system another may not see the newest yet.
            checkpoint = said_by_first(latest_checkpoint(out / "checkpoints"), ranks)
            resumed_from = _resume(checkpoint, trained, loader, ranks)
            step, last, stop = resumed_from or 0, None, False
            choice, steps = _choose_attention(
                config, shared, _steps(loader, ranks.device, fp8), ranks, fp8
            )
            facts = {
                "run_id": run.run_id,
                "world_size": ranks.world_size,
                "attention": choice.to_dict(),
                "fp8": asdict(converted),
                "config": config.to_dict(),
            }
            with (
                use_backend(choice.name),
                Records(
                    out,
                    ranks,
                    step,
                    facts=facts,
                    every=config.log_every,
                    tensorboard=config.observe.tensorboard,
                ) as records,
                CheckpointWriter(
                    out / "checkpoints",
                    ranks,
                    keep=config.checkpoint.keep,
                    asynchronous=config.checkpoint.asynchronous,
                ) as writer,
            ):
                while step < total_steps and not stop:
                    begin = time.perf_counter()
                    packs = next(steps)
                    fed = time.perf_counter()
                    with profiled(
                        out / "profile", ranks, step + 1, every=config.observe.profile_every
                    ):
                        computed = [_computed(pack, config, fp8) for pack in packs]
                        losses = _backward(shared, computed, loss_of, ranks, dtype)
                    done = time.perf_counter()
                    totals = step_totals(
                        model,
                        packs,
                        computed if config.padded else (),
                        losses,
                        ranks.device,
                        wait_s=fed - begin,
                        compute_s=done - fed,
                        terminated=terminated.is_set(),
                    )
                    items = round(totals.sums.action_values)
                    scale_gradients(model, items=items, world_size=ranks.world_size)
                    grad_norm = clipped_norm(model, config.optimizer.clip_norm)
                    _require_finite(totals.sums.loss, grad_norm, packs, losses, checkpoint)
                    lr = learning_rate(step, total_steps=total_steps, config=config.optimizer)
                    trained.update(lr)
                    step += 1
                    last = step_metrics(
                        totals,
                        plan.header,
                        ranks.device,
                        step=step,
                        epoch=packs[0].epoch,
                        lr=lr,
                        grad_norm=grad_norm,
                        step_s=time.perf_counter() - begin,
                    )
                    stop = totals.sums.terminated > 0
                    records.step(packs, last, is_last=stop or step == total_steps)
                    if on_step is not None and ranks.is_first:
                        on_step(last, total_steps)
                    if stop or step == total_steps or step % config.checkpoint.every_steps == 0:
                        checkpoint = writer.save(
                            trained,
                            Progress(
                                step=step,
                                world_size=ranks.world_size,
                                run_id=run.run_id,
                                plan_hash=plan.plan_hash,
                                versions=dict(plan.header.versions),
                                loader=loader.state_dict(),
                                config=config.to_dict(),
                            ),
                        )
    assert checkpoint is not None
    return TrainResult(
        run_id=run.run_id,
        steps=step,
        total_steps=total_steps,
        resumed_from=resumed_from,
        checkpoint=checkpoint,
        last=last,
    )


def _total_steps(config: TrainConfig, plan: AnyPlan) -> int:
    total = plan.num_steps if config.steps is None else config.steps
    if total > plan.num_steps:
        raise ConfigError(
            f"{total} steps asked for, plan {plan.plan_hash} has {plan.num_steps}: make a plan of"
            " more epochs (headrace pack --epochs), or ask for fewer steps"
        )
    return total


def _open_loader(lake: Lake, plan: AnyPlan, config: TrainConfig, ranks: Ranks) -> PackLoader:
    size, storage = config.loader.image_size, StorageSettings()
    if config.loader.cache_dir is not None:
        storage = StorageSettings(
            cache_dir=config.loader.cache_dir, cache_bytes=round(config.loader.cache_gb * 1e9)
        )
    return PackLoader(
        lake,
        plan,
        ranks.rank,
        ranks.world_size,
        process=config.loader.process,
        buffer_bytes=config.loader.buffer_mb << 20,
        image_size=None if size is None else (size, size),
        materialized=config.loader.materialized or False,
        max_bad_share=config.loader.max_bad_share,
        storage=storage,
    )


def _resume(
    checkpoint: Path | None, trained: Trained, loader: PackLoader, ranks: Ranks
) -> int | None:
    """Put weights and position back; the step to go on from, None without a checkpoint."""
    if checkpoint is None:
        return None
    progress = read_progress(checkpoint)
    load_checkpoint(checkpoint, trained, ranks)
    loader.load_state_dict(progress.loader)
    return progress.step


def _steps(loader: PackLoader, device: torch.device, fp8: Fp8Choice) -> Iterator[list[Batch]]:
    """This rank's packs on its device, step by step.

    On a CPU pad tokens stay behind, since each costs time. A GPU gets all packs of one size: to
    learn how many tokens are real would wait for it, and compiled code sees no new shape.
    """
    packs: list[Batch] = []
    for batch in on_device(loader, device):
        packs.append(batch.trimmed(token_multiple(fp8)) if device.type == "cpu" else batch)
        require_aligned(packs[-1], fp8)
        if len(packs) == loader.packs_per_step:
            yield packs
            packs = []


def _computed(pack: Batch, config: TrainConfig, fp8: Fp8Choice) -> Batch:
    """What the model is given in place of a pack: itself, or its spans padded to the longest."""
    return padded_pack(pack, token_multiple(fp8)) if config.padded else pack


def _choose_attention(
    config: TrainConfig,
    shared: Shared,
    steps: Iterator[list[Batch]],
    ranks: Ranks,
    fp8: Fp8Choice,
) -> tuple[Choice, Iterator[list[Batch]]]:
    """The backend that all ranks use, and the steps again: measuring it looks at the first one."""
    seen: list[list[Batch]] = []
    dtype = torch.bfloat16 if config.precision.dtype == "bf16" else torch.float32

    def calls() -> list[AttentionCall]:
        seen.extend(islice(steps, 1))
        half = torch.autocast(ranks.device.type, dtype, enabled=dtype == torch.bfloat16)
        with torch.no_grad(), half:
            first = [_computed(packs[0], config, fp8) for packs in seen]
            return [call for pack in first for call in calls_of(partial(shared.call, pack))]

    choice = choose_backend(config.attention, ranks.device, dtype, calls)
    return said_by_first(choice, ranks), chain(seen, steps)


def _backward(
    shared: Shared,
    packs: Sequence[Batch],
    loss_of: PackedLoss,
    ranks: Ranks,
    dtype: torch.dtype = torch.float32,
) -> list[float]:
    """Add the gradients of all packs; loss sum of each."""
    losses = []
    for number, pack in enumerate(packs):
        with shared.pack(is_last=number == len(packs) - 1):
            with torch.autocast(
                ranks.device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16
            ):
                loss = loss_of(shared.call(pack), pack)
            torch.autograd.backward(loss)
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _require_finite(
    loss: float,
    grad_norm: float,
    packs: Sequence[Batch],
    losses: Sequence[float],
    checkpoint: Path | None,
) -> None:
    """All ranks see the same sums, so all raise; the weights have not been touched."""
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return
    where = ", ".join(
        f"slot {pack.slot} (first spans {pack.span_ids[: min(pack.num_spans, 4)].tolist()})"
        for pack, value in zip(packs, losses, strict=True)
        if not math.isfinite(value)
    )
    raise NonFiniteLossError(
        f"step {packs[0].step}: the loss is {loss}, the gradient norm {grad_norm}"
        f" (on this rank: {where or 'all losses are finite'}); the weights are those of the step"
        f" before, the last checkpoint is {checkpoint or 'none yet'}: lower optimizer.lr, or look"
        " at these spans' episodes with headrace doctor, and resume"
    )
