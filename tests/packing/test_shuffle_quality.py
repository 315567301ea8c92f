"""Diversity and near-duplicates against cases whose value is known."""

import numpy as np
import pytest

from packing.shuffle_quality import episode_diversity, near_duplicates


def test_a_uniform_order_is_near_one() -> None:
    rng = np.random.default_rng(0)
    episode = rng.permutation(np.repeat(np.arange(500), 64))
    quality = episode_diversity(np.arange(32_000) // 32, episode, seed=1)
    assert list(quality) == [1, 4, 16, 64]
    assert all(value == pytest.approx(1.0, abs=0.02) for value in quality.values())


def test_one_episode_a_step_is_as_bad_as_it_gets() -> None:
    episode = np.repeat(np.arange(500), 32)
    step = np.arange(16_000) // 32
    quality = episode_diversity(step, episode, seed=1)
    # One episode among about 31 in one step; 4 among about 113 in four.
    assert quality[1] == pytest.approx(1 / 31, rel=0.05)
    assert quality[4] == pytest.approx(4 / 113, rel=0.05)


def test_equal_shares_have_the_diversity_of_their_number() -> None:
    # Steps of 4 spans, two episodes twice each: exp(entropy) is 2 in both orders.
    step, episode = np.repeat(np.arange(3), 4), np.array([0, 1] * 6)
    assert episode_diversity(step, episode, seed=0, windows=(3,))[3] == pytest.approx(1.0)


def test_more_steps_than_there_are_is_left_out() -> None:
    assert list(episode_diversity(np.zeros(5, np.int64), np.arange(5), seed=0)) == [1]
    assert episode_diversity(np.zeros(0, np.int64), np.zeros(0, np.int64), seed=0) == {}


def test_near_duplicates_by_hand() -> None:
    step = np.array([0, 0, 0, 0, 1, 1, 1])
    episode = np.array([7, 7, 7, 8, 7, 7, 9])
    position = np.array([0, 7, 15, 3, 0, 8, 0])
    # 0 and 7 of episode 7 are close; 7 and 15 are eight apart; in step 1 nobody is close.
    assert near_duplicates(step, episode, position) == 2 / 7
    assert near_duplicates(step[:0], episode[:0], position[:0]) == 0.0
