"""StepMix: its bounds lie below the truth, and the mixture stays at the floor."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.base.safe_mixing import lower_sum, safe_share
from keepworth.methods.studies.step_mix import (
    ACTIONS,
    STATES,
    STEPS,
    CountedModel,
    RandomWorlds,
    candidates,
    choose,
    extreme,
    lower_values,
    optimistic,
    play,
)


def test_lower_bound_is_seldom_wrong_at_any_time_although_means_depend_on_the_past() -> None:
    generator = np.random.default_rng(0)
    runs, wrong = 300, 0
    for _ in range(runs):
        mean, total, expected, squares, crossed = 0.5, 0.0, 0.0, 0.0, False
        for _ in range(200):
            number = float(generator.random() < mean)
            total, expected, squares = total + number, expected + mean, squares + (number - mean) ** 2
            crossed |= bool(lower_sum(total, squares, 0.1) > expected)
            mean = 0.2 if number else 0.7
        wrong += crossed
    assert wrong <= 0.1 * runs


def test_lower_bound_comes_near_the_mean_with_many_numbers() -> None:
    numbers = np.random.default_rng(1).random(20_000)
    assert numbers.mean() - lower_sum(numbers.sum(), ((numbers - 0.5) ** 2).sum(), 0.01) / len(numbers) < 0.015


@pytest.mark.parametrize(
    ("old", "new", "floor", "share"),
    [(1.0, 0.0, 0.75, 0.25), (1.0, 0.9, 0.5, 1.0), (0.4, 0.2, 0.5, 0.0), (0.2, 0.6, 0.5, 1.0)],
)
def test_safe_share_is_the_largest_that_keeps_the_floor(old: float, new: float, floor: float, share: float) -> None:
    assert safe_share(old, new, floor) == pytest.approx(share)


def test_worst_transitions_are_those_of_a_search_over_all() -> None:
    generator = np.random.default_rng(2)
    truth = generator.dirichlet(np.ones(STATES), size=(1, STATES, ACTIONS))
    low, high, value = np.maximum(truth - 0.1, 0.0), np.minimum(truth + 0.15, 1.0), generator.random((1, STATES))
    least = extreme(low, high, value, 1.0)
    draws = generator.dirichlet(np.ones(STATES), size=200_000)
    within = [
        draws[((draws >= low[0, state, action]) & (draws <= high[0, state, action])).all(1)] @ value[0]
        for state in range(STATES)
        for action in range(ACTIONS)
    ]
    for values, bound in zip(within, least.ravel(), strict=True):
        assert bound - 1e-12 <= values.min() <= bound + 0.05
    assert (least <= (truth * value[:, None, None]).sum(3)).all()


def test_played_mixture_has_a_bound_at_the_floor() -> None:
    worlds, model = RandomWorlds(20), CountedModel(20)
    low, high = model.bounds()
    policies = candidates(worlds.baseline, optimistic(worlds, low, high))
    bounds, floor = lower_values(worlds, policies, low, high), worlds.value(worlds.baseline) - 0.05
    place, share = choose(bounds, floor)
    every = np.arange(20)
    mixed = (1.0 - share) * bounds[place, every] + share * bounds[np.maximum(place - 1, 0), every]
    assert (mixed >= floor - 1e-9).all()
    assert len(policies) == STEPS + 1
    assert (bounds <= np.stack([worlds.value(policy) for policy in policies]) + 1e-9).all()


def test_no_episode_is_below_the_floor_and_without_mixing_some_are() -> None:
    worlds = RandomWorlds(40)
    broken, _, value = play(worlds, "step mix", 600)
    unguarded, _, _ = play(worlds, "no mixing", 600)
    assert not broken.any()
    assert unguarded.mean() > 0.1
    assert value.mean() > worlds.value(worlds.baseline).mean()
