"""Plans that grow with their lake."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from catalog.selection import freeze_selection
from lake import Episode, Lake
from packing.errors import PlanError
from packing.extend_plan import extend_plan
from packing.join_plans import join_plans
from packing.layout import TokenLayout
from packing.make_plan import make_plan
from packing.plan import Plan
from packing.plan_store import load_plan, save_plan
from packing.stored_plan import open_plan
from packing.trajectory_spans import TrajectorySpans
from packing.verify import verify_plan
from packing.window_spans import WindowSpans

Write = Callable[[Sequence[Episode]], Lake]


def planned(lake: Lake, episodes: str | Sequence[str] | None = None, seed: int = 3) -> Plan:
    return make_plan(
        lake,
        episodes,
        spans=WindowSpans(horizon=4),
        budget_tokens=256,
        slots_per_step=3,
        epochs=2,
        seed=seed,
    )


@pytest.fixture
def more(make_episode: Callable[..., Episode]) -> list[Episode]:
    """Episodes that bring a dataset, an embodiment, a task and no camera that is new."""
    return [
        make_episode(
            100 + number,
            steps=6 + number,
            camera_names=("wrist",) if number % 2 else ("top", "wrist"),
            dataset="a-third" if number < 2 else "odd",
            instruction=f"task {number}",
        )
        for number in range(4)
    ]


def test_first_steps_are_the_parents(ten: Lake, write: Write, more: list[Episode]) -> None:
    parent = planned(ten)
    lake = write(more)
    grown = extend_plan(lake, parent)
    header = grown.header
    assert grown.packs.slice(0, parent.packs.num_rows).equals(parent.packs)
    assert grown.texts.slice(0, parent.texts.num_rows).equals(parent.texts)
    ours = grown.episodes.slice(0, parent.episodes.num_rows)
    assert ours.drop_columns(["address"]).equals(parent.episodes.drop_columns(["address"]))
    assert header.datasets == (*parent.header.datasets, "a-third")
    assert header.stats[: len(parent.header.stats)] == parent.header.stats
    assert [s.spec_id for s in header.specs[: len(parent.header.specs)]] == [
        s.spec_id for s in parent.header.specs
    ]
    assert [segment.num_steps for segment in header.segments] == [
        parent.num_steps,
        grown.num_steps - parent.num_steps,
    ]
    assert header.ancestors == (parent.plan_hash,)
    assert header.num_spans == sum(episode.num_steps for episode in more) + parent.header.num_spans
    assert header.epochs == 4
    verify_plan(grown)


def test_appended_packs_mean_what_the_grown_plan_meant(
    ten: Lake, write: Write, more: list[Episode]
) -> None:
    parent = planned(ten)
    lake = write(more)
    ids = sorted(
        set(planned(lake).episodes["episode_id"].to_pylist())
        - set(parent.episodes["episode_id"].to_pylist())
    )
    alone = planned(lake, ids, seed=4)
    joined = join_plans(lake, parent, alone)

    def meaning(plan: Plan, first: int) -> list[object]:
        names = plan.header
        episodes = plan.episodes.to_pylist()
        texts = plan.texts["text"].to_pylist()
        return [
            [
                (
                    episodes[e]["episode_id"],
                    names.datasets[episodes[e]["dataset"]],
                    names.embodiments[episodes[e]["embodiment"]],
                    names.specs[episodes[e]["spec"]].spec_id,
                    [names.cameras[c] for c in episodes[e]["cameras"]],
                    texts[t],
                    start,
                    stop,
                )
                for e, t, start, stop in zip(
                    row["episode"], row["text"], row["start"], row["stop"], strict=True
                )
            ]
            for row in plan.packs.slice(first).to_pylist()
        ]

    assert meaning(joined, parent.packs.num_rows) == meaning(alone, 0)


def test_growth_of_growth(
    ten: Lake, write: Write, more: list[Episode], make_episode: Callable[..., Episode]
) -> None:
    parent = planned(ten)
    second = extend_plan(write(more), parent)
    lake = write([make_episode(200, steps=5, camera_names=("top",), dataset="even")])
    third = extend_plan(lake, second, epochs=1)
    assert third.header.ancestors == (parent.plan_hash, second.plan_hash)
    assert [third.header.planned_by(step) for step in (0, parent.num_steps, second.num_steps)] == [
        parent.plan_hash,
        second.plan_hash,
        third.plan_hash,
    ]
    assert third.packs.slice(0, second.packs.num_rows).equals(second.packs)
    assert [s.settings.seed for s in third.header.segments] == [3, 4, 5]
    verify_plan(third)


def test_saved_and_loaded(ten: Lake, write: Write, more: list[Episode]) -> None:
    parent = planned(ten)
    save_plan(ten, parent, "mix")
    grown = extend_plan(write(more), parent)
    save_plan(ten, grown, "mix-2")
    assert load_plan(ten, "mix-2").header == grown.header
    assert (
        open_plan(ten, "mix-2")
        .take_packs([0, grown.packs.num_rows - 1])
        .equals(grown.packs.take([0, grown.packs.num_rows - 1]))
    )
    assert load_plan(ten, "mix").plan_hash == parent.plan_hash


def test_the_selection_is_answered_again(ten: Lake, write: Write, more: list[Episode]) -> None:
    selection = freeze_selection(ten, "dataset = 'odd'", name="odd")
    parent = planned(ten, "odd")
    save_plan(ten, parent, "odd")
    lake = write(more)
    grown = extend_plan(lake, parent)
    new = [e for e in more if e.dataset == "odd"]
    assert grown.episodes.num_rows == parent.episodes.num_rows + len(new)
    assert grown.selection is not None
    assert grown.selection.sql.startswith(selection.sql)
    with pytest.raises(PlanError, match="nothing to append"):
        extend_plan(lake, grown)


def test_a_selection_older_than_the_plan_is_told(
    ten: Lake, write: Write, more: list[Episode]
) -> None:
    freeze_selection(ten, "dataset = 'odd'", name="old")
    parent = planned(write(more))
    with pytest.raises(PlanError, match=r"4 episodes of plan .* after the selection .*freeze"):
        extend_plan(ten, parent, "old")


def test_old_episodes_may_come_again(ten: Lake, write: Write, more: list[Episode]) -> None:
    parent = planned(ten)
    grown = extend_plan(write(more), parent, "true")
    assert grown.episodes.num_rows == 10 + len(more)
    again = np.concatenate(grown.packs["episode"].slice(parent.packs.num_rows).to_numpy())
    assert set(again.tolist()) == set(range(14))
    verify_plan(grown)


def test_given_ids_say_nothing_of_growth(ten: Lake, write: Write, more: list[Episode]) -> None:
    ids = planned(ten).episodes["episode_id"].to_pylist()
    parent = planned(ten, ids[:5])
    lake = write(more)
    with pytest.raises(PlanError, match="was made of given episode ids"):
        extend_plan(lake, parent)
    grown = extend_plan(lake, parent, ids[5:8])
    with pytest.raises(PlanError, match="or grew by some of its lake's"):
        extend_plan(lake, grown)
    assert extend_plan(lake, grown, ids[8:]).episodes.num_rows == 10


def test_new_cameras_must_be_chosen(
    ten: Lake, write: Write, make_episode: Callable[..., Episode]
) -> None:
    parent = planned(ten)
    lake = write([make_episode(300, steps=5, camera_names=("top", "side"))])
    with pytest.raises(PlanError, match="never met: side; say with --camera"):
        extend_plan(lake, parent)
    grown = extend_plan(lake, parent, cameras=["top", "side"])
    assert grown.header.cameras == (*parent.header.cameras, "side")
    assert extend_plan(lake, parent, cameras=["top"]).header.cameras == parent.header.cameras


def test_plans_that_do_not_join(ten: Lake, write: Write, more: list[Episode]) -> None:
    parent = planned(ten)
    lake = write(more)
    for budget_tokens, slots, match in (
        (512, 3, "budget_tokens 256"),
        (256, 2, "slots_per_step 3"),
    ):
        other = make_plan(
            lake,
            spans=WindowSpans(horizon=4),
            budget_tokens=budget_tokens,
            slots_per_step=slots,
        )
        with pytest.raises(PlanError, match=match):
            join_plans(lake, parent, other)
    layout = TokenLayout(extra_tokens=1)
    other = make_plan(
        lake, spans=WindowSpans(horizon=4), layout=layout, budget_tokens=256, slots_per_step=3
    )
    with pytest.raises(PlanError, match=r"has layout.extra_tokens 0, its growth has 1"):
        join_plans(lake, parent, other)
    other = make_plan(lake, spans=TrajectorySpans(), budget_tokens=256, slots_per_step=3)
    with pytest.raises(PlanError, match=r"has span_maker .*'window'.*, its growth has .*'traject"):
        join_plans(lake, parent, other)
    other = make_plan(
        lake, spans=WindowSpans(horizon=4), budget_tokens=256, slots_per_step=3, cameras=["top"]
    )
    with pytest.raises(PlanError, match="is in the plan with cameras"):
        join_plans(lake, parent, other)


def test_a_deleted_episode_stops_growth(ten: Lake, write: Write, more: list[Episode]) -> None:
    parent = planned(ten)
    gone = parent.episodes["episode_id"][3].as_py()
    lake = write(more)
    lake.latest("trajectories").delete(f"episode_id = '{gone}'")
    lake.refresh()
    with pytest.raises(PlanError, match=f"not in the lake any more, first {gone}"):
        extend_plan(lake, parent)
