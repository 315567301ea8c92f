import pytest
import torch

from training.models.flow import FlowDraws, draw_flow


def draw(
    span_ids: list[int],
    *,
    chunk: int = 16,
    dim: int = 8,
    plan: str = "plan",
    epoch: int = 0,
    sampling: str = "beta",
    occurrence: int = 0,
) -> FlowDraws:
    return draw_flow(
        torch.tensor(span_ids),
        torch.full((len(span_ids),), occurrence, dtype=torch.int32),
        torch.arange(len(span_ids)).repeat_interleave(chunk),
        torch.arange(chunk).repeat(len(span_ids)),
        action_dim=dim,
        plan_hash=plan,
        epoch=epoch,
        time_sampling="uniform" if sampling == "uniform" else "beta",
    )


def test_a_span_draws_the_same_wherever_it_stands() -> None:
    together = draw([5, 6, 7, 2**40])
    for row, span in enumerate([5, 6, 7, 2**40]):
        alone = draw([span])
        assert torch.equal(alone.noise, together.noise[row * 16 : (row + 1) * 16])
        assert torch.equal(alone.time, together.time[row : row + 1])


@pytest.mark.parametrize(
    "change", [{"plan": "another"}, {"epoch": 1}, {"occurrence": 1}, {"occurrence": 2}]
)
def test_plan_epoch_and_occurrence_change_every_draw(change: dict[str, object]) -> None:
    one, other = draw(list(range(50))), draw(list(range(50)), **change)  # type: ignore[arg-type]
    assert bool((one.noise != other.noise).all())
    assert bool((one.time != other.time).all())


def test_occurrences_of_a_span_are_unrelated() -> None:
    spans = list(range(4000))
    drawn = [draw(spans, chunk=4, dim=2, occurrence=number) for number in range(4)]
    noise = torch.corrcoef(torch.stack([d.noise.flatten() for d in drawn]).double())
    time = torch.corrcoef(torch.stack([d.time for d in drawn]).double())
    assert float((noise - torch.eye(4)).abs().max()) < 0.03
    assert float((time - torch.eye(4)).abs().max()) < 0.06
    assert float(drawn[1].noise.std()) == pytest.approx(1.0, abs=0.02)


def test_each_row_has_its_own_occurrence() -> None:
    together = draw_flow(
        torch.tensor([5, 5, 5]),
        torch.tensor([0, 2, 1], dtype=torch.int32),
        torch.arange(3),
        torch.zeros(3, dtype=torch.int64),
        action_dim=8,
        plan_hash="plan",
        epoch=0,
    )
    for row, occurrence in enumerate((0, 2, 1)):
        alone = draw([5], chunk=1, occurrence=occurrence)
        assert torch.equal(alone.noise[0], together.noise[row])
        assert torch.equal(alone.time[0], together.time[row])


def test_the_first_occurrence_draws_what_plans_without_repeats_always_drew() -> None:
    first = draw([0, 7, 2**40], chunk=1, dim=1, plan="0123", epoch=3)
    assert first.noise.flatten().tolist() == pytest.approx(
        [0.6231139302253723, 1.517045021057129, -0.43773379921913147], rel=1e-6
    )
    assert first.time.tolist() == pytest.approx(
        [0.9051010608673096, 0.008289734832942486, 0.6792099475860596], rel=1e-6
    )


def test_noise_is_standard_normal_and_uncorrelated() -> None:
    noise = draw(list(range(1000, 5000))).noise.double()
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.005)
    assert float(noise.std()) == pytest.approx(1.0, abs=0.005)
    assert float((noise**4).mean()) == pytest.approx(3.0, abs=0.05)
    assert float((noise.abs() > 3).double().mean()) == pytest.approx(0.0027, abs=0.0004)
    rows = noise.reshape(4000, -1)
    correlation = torch.corrcoef(rows[:, :32].T) - torch.eye(32)
    assert float(correlation.abs().max()) < 0.08
    assert bool(torch.isfinite(noise).all())


@pytest.mark.parametrize(
    # E[1 - Beta(1.5, 1)] = 0.4 and its second moment 1 - 2 * 0.6 + 1.5 / 3.5
    ("sampling", "mean", "second"),
    [("uniform", 0.5, 1 / 3), ("beta", 0.4, 1 - 1.2 + 1.5 / 3.5)],
)
def test_time_has_its_distribution(sampling: str, mean: float, second: float) -> None:
    time = draw(list(range(40_000)), chunk=1, dim=1, sampling=sampling).time.double() / 0.999
    assert float(time.mean()) == pytest.approx(mean, abs=0.006)
    assert float((time**2).mean()) == pytest.approx(second, abs=0.006)
    assert float(time.min()) >= 0.0
    assert float(time.max()) < 1.0


def test_time_and_noise_of_neighbouring_spans_are_unrelated() -> None:
    draws = draw(list(range(4000)), chunk=1, dim=1)
    series = torch.stack((draws.time[:-1], draws.time[1:], draws.noise[:-1, 0]))
    off = torch.corrcoef(series.double()) - torch.eye(3)
    assert float(off.abs().max()) < 0.05
