"""Continual navigation: houses that can be walked, episodes that are kept, and an agent that learns its way."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import torch

from keepworth.methods.studies import continual_navigation as houses_of
from keepworth.methods.studies.continual_navigation import Houses, Walks, choose, error, furnish, success, train, walk


def new_houses(kind: int, count: int, seed: int = 0) -> Houses:
    return Houses(kind, furnish(np.random.default_rng(5)), count, np.random.default_rng([seed, kind]))


def test_a_guide_without_errors_comes_through_in_as_many_steps_as_rooms() -> None:
    houses = new_houses(0, 50)
    for _ in range(houses_of.LONGEST):
        houses.step(houses.right)
    assert (houses.place == houses.lengths).all()
    lost = new_houses(0, 50)
    for _ in range(houses_of.LONGEST + 1):
        lost.step((lost.right + 1) % houses_of.DOORS)
    assert not lost.place.any()


def test_all_kinds_agree_on_every_fourth_name_alone() -> None:
    furniture = furnish(np.random.default_rng(0))
    assert (furniture.sum(2) == 2).all()
    same = (furniture == furniture[0]).all((0, 2))
    assert same.nonzero()[0].tolist() == [0, 4, 8]


def test_perplexity_by_hand() -> None:
    """Of two steps whose right doors have a probability of .5 and .25, and a third that there is not, it is (2 * 4)^(1/2)."""
    logs = torch.tensor([[[0.5, 0.5], [0.75, 0.25], [0.9, 0.1]]]).log()
    none = torch.zeros(1, 3, 1)
    walks = Walks(none, none, torch.tensor([[0, 1, 1]]), torch.tensor([[True, True, False]]), none)
    assert error(logs, walks).exp().item() == pytest.approx(8**0.5)


def test_the_hardest_and_the_easiest_episodes_are_those_at_the_ends() -> None:
    errors = np.random.default_rng(1).permutation(100) / 100.0
    draw = np.random.default_rng(2)
    assert errors[choose("perplexity replay", errors, draw)].min() == pytest.approx(1.0 - houses_of.KEPT / 100)
    assert errors[choose("easiest episodes", errors, draw)].max() == pytest.approx((houses_of.KEPT - 1) / 100)
    assert len({*choose("random replay", errors, draw).tolist()}) == houses_of.KEPT


def test_an_agent_of_all_kinds_beats_chance() -> None:
    furniture = furnish(np.random.default_rng(3))
    draw = np.random.default_rng(4)
    kinds = [walk(Houses(kind, furniture, houses_of.EPISODES, draw)) for kind in range(houses_of.KINDS)]
    tests = [[Houses(kind, furniture, 100, draw) for _ in range(2)] for kind in range(houses_of.KINDS)]
    learned, _ = train("joint training", kinds, tests, 0, 60)
    chance = np.mean([success(None, Houses(kind, furniture, 100, draw)) for kind in range(houses_of.KINDS)])
    assert chance < 0.15
    assert learned > 2 * chance
