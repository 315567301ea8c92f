"""FP8 for real, beside BF16."""

import pytest
import torch

from tests.training.batches import make_spans, pack, policy_spec
from training.errors import ConfigError
from training.loss import flow_matching_loss
from training.models.film.config import FilmConfig
from training.models.kinds import build_model
from training.models.policy_model import PolicyModel
from training.precision.choose import choose_fp8, require_aligned, token_multiple
from training.precision.config import Fp8, PrecisionConfig, Recipe
from training.precision.convert import convert_linears

pytestmark = [
    pytest.mark.gpu,
    # Of torch's RMSNorm, of a half-precision input and a float32 weight.
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
WIDE = FilmConfig(width=256, expert_width=256, layers=2, heads=4, head_dim=64)
FORMATS: list[tuple[Fp8, Recipe]] = [
    ("te", "tensor"), ("te", "block"), ("te", "mx"), ("torchao", "tensor"), ("emulate", "tensor"),
]  # fmt: skip


def policy() -> PolicyModel:
    torch.manual_seed(0)
    return build_model(WIDE, policy_spec()).cuda()


def curve(model: PolicyModel, multiple: int, *, steps: int) -> list[float]:
    """Losses of a few steps on packs of several sizes, one of them without spans."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        spans = [] if step == 1 else make_spans(20 + step % 3, seed=step % 3)
        batch = pack(spans, pad=256, segments=64, epoch=step).trimmed(multiple).to("cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = flow_matching_loss(model(batch), batch) / max(batch.num_action_items, 1)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("fp8", "recipe"), FORMATS)
def test_a_policy_learns_in_fp8_as_in_bf16(fp8: Fp8, recipe: Recipe) -> None:
    config = PrecisionConfig(dtype="bf16", fp8=fp8, recipe=recipe)
    try:
        choice = choose_fp8(config, torch.device("cuda"))
    except ConfigError as error:
        pytest.skip(str(error))
    multiple = token_multiple(choice)
    require_aligned(pack(make_spans(20), pad=256, segments=64).trimmed(multiple), choice)
    plain, converted = policy(), policy()
    done = convert_linears(converted, choice)
    assert len(done.names) > 10
    assert list(converted.state_dict()) == list(plain.state_dict())
    bf16, rounded = curve(plain, multiple, steps=60), curve(converted, multiple, steps=60)
    assert rounded != bf16
    assert sum(rounded[-15:]) == pytest.approx(sum(bf16[-15:]), rel=0.02)


def test_what_auto_chooses_runs() -> None:
    choice = choose_fp8(PrecisionConfig(dtype="bf16", fp8="auto"), torch.device("cuda"))
    if choice.kind == "off":
        pytest.skip(choice.reason)
    model = policy()
    convert_linears(model, choice)
    assert curve(model, token_multiple(choice), steps=2)[0] > 0
