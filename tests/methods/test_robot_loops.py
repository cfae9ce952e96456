"""Loops of robot learning: the world, what is learned before, corrections, stops and weights are those of direct computation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from keepworth.methods.studies._four_goals import (
    GOALS,
    HORIZON,
    MOVES,
    anywhere,
    begin,
    gains,
    guide,
    is_free,
    is_there,
    move,
    see,
    trials,
    way,
)
from keepworth.methods.studies.robot_loops import ARMS, CLAIMS, Loop, steps_until

pytest.importorskip("torch", reason="the extra control brings it")
pytest.importorskip("gymnasium", reason="the extra control brings it")


def test_ways_are_straight_within_a_room_and_around_walls_elsewhere() -> None:
    goal = GOALS[0]
    beside = goal + np.array([0.0, -2.5])
    assert way(np.array(0), beside) == pytest.approx(2.5 - 0.7, abs=0.3)
    behind = np.array([1.5, 5.5])
    assert way(np.array(0), behind) > np.hypot(*(behind - goal)) + 0.5
    places = np.array([anywhere(np.random.default_rng(seed)) for seed in range(50)])
    assert is_free(places).all()
    assert np.isfinite([way(np.full(50, task), places) for task in range(4)]).all()


def test_walls_stop_moves() -> None:
    place = np.array([1.1, 1.1])
    for number, shift in enumerate(MOVES):
        after = move(place, np.array(number))
        assert after == pytest.approx(place + shift if is_free(place + shift) else place)


def test_guide_comes_to_all_goals_and_chance_to_none() -> None:
    draw = np.random.default_rng(0)
    right = trials(lambda tasks, places: gains(tasks, places).argmax(-1), 10, 1, [0])
    chance = trials(lambda tasks, places: draw.integers(len(MOVES), size=tasks.shape), 10, 1, [0])
    assert right[0] == 1.0
    assert chance[0] <= 0.05
    walks = guide(draw, 2, begin)
    assert [walk.task for walk in walks] == [0, 0, 1, 1, 2, 2, 3, 3]
    for walk in walks:
        there = is_there(np.full(len(walk.places), walk.task), walk.places)
        assert there[-1]
        assert not there[:-1].any()
        assert len(walk.places) == len(walk.moves) + 1 <= HORIZON + 1


def test_steps_are_counted_until_two_tests_in_a_row() -> None:
    assert steps_until(np.array([0.0, 0.95, 0.5, 0.9, 1.0])) == 0.8
    assert steps_until(np.array([0.0, 0.95, 0.5, 0.9, 0.8])) == 1.0


def test_each_claim_differs_from_its_control_in_one_word() -> None:
    for arm, base, control in CLAIMS:
        one, other, plain = ARMS[arm], ARMS[control], ARMS[base]
        changed = [name for name in vars(one) if getattr(one, name) != getattr(other, name)]
        added = [name for name in vars(one) if getattr(one, name) != getattr(plain, name)]
        assert len(added) == 1
        assert len(changed) <= 2
        assert arm == "corrector 1" or len(changed) == 1


def test_values_of_walks_in_order_rise_towards_the_goal_and_progress_is_signed() -> None:
    import torch

    from keepworth.methods.studies._practice import learn_progress, learn_values

    walks = guide(np.random.default_rng(3), 20, anywhere)
    walk = max(walks, key=lambda walk: len(walk.moves))
    seen = torch.from_numpy(walk.observations)
    in_order = learn_values(walks, 3)(seen.expand(2, -1, -1))[0, :, 0].detach().numpy()
    assert np.corrcoef(in_order, np.arange(len(seen)))[0, 1] > 0.7
    forth, back = torch.cat([seen[:-2], seen[2:]], -1), torch.cat([seen[2:], seen[:-2]], -1)
    network = learn_progress(walks, 3)
    ahead, behind = (network(pairs.expand(2, -1, -1))[..., 0].detach().mean(1) for pairs in (forth, back))
    assert ahead[0] > 0.1 > -0.1 > behind[0]
    assert abs(ahead[1]) < 0.1
    assert abs(behind[1]) < 0.1


def test_practice_starts_alike_and_only_corrected_arms_are_helped() -> None:
    from keepworth.methods.studies._practice import DEMONSTRATIONS, HELD, Practice

    loops = [Loop(), Loop("walked"), Loop("dealt"), Loop("walked", 1.0), Loop("walked", 1.0, "chance")]
    practice = Practice(1, loops, 300)
    weights = practice.values.weights[0].detach()
    assert (weights == weights[0]).all()
    for _ in range(300):
        practice.step()
    assert (practice.helped[:3] == 0.0).all()
    assert (practice.helped[3:] >= HELD).all()
    frames = sum(len(walk.moves) for walk in practice.shown)
    assert len(practice.shown) == DEMONSTRATIONS * len(GOALS)
    counts = [practice.replay.count(str(len(loops) + arm), 1) for arm in range(len(loops))]
    assert counts == [0, frames - 1, frames - 1, *(frames - 1 + practice.helped[3:])]
    practice.learn()
    after = practice.values.weights[0].detach()
    assert not (after == after[0]).all()


def test_corrected_steps_are_the_guides_best_moves() -> None:
    from keepworth.methods.studies._practice import Practice

    practice = Practice(2, [Loop("walked", 1.0)], 200)
    helped = 0
    for _ in range(200):
        tasks, places = practice.tasks.copy(), practice.places.copy()
        before = practice.helped[0]
        practice.step()
        if practice.helped[0] > before:
            last = practice.replay.columns["seen"][practice.replay.columns["source"] == 0][_]
            assert last.numpy() == pytest.approx(see(tasks, places)[0])
            made = practice.replay.columns["moves"][_]
            assert made == gains(tasks, places)[0].argmax()
            helped += 1
    assert helped > 20


def test_stopped_episodes_end_after_twice_the_shortest_success_but_for_a_few() -> None:
    from keepworth.methods.studies._practice import Practice

    stopping = replace(ARMS["early stop"], demonstrations="")
    practice = Practice(4, [stopping, replace(stopping, stopped="other"), Loop()], 10)
    limits = np.zeros((3, 200))
    tasks = np.zeros((3, 200), int)
    for number in range(200):
        for arm in range(3):
            practice.begin_episode(arm)
        limits[:, number], tasks[:, number] = practice.limit, practice.tasks
    shortest = practice.shortest[0]
    own, other = np.minimum(HORIZON, 2 * shortest), np.minimum(HORIZON, 2 * np.roll(shortest, 1))
    assert np.isin(limits[0], [*own, HORIZON]).all()
    assert 0.85 <= (limits[0] == own[tasks[0]]).mean() <= 1.0
    assert 0.85 <= (limits[1] == other[tasks[1]]).mean() <= 1.0
    assert (limits[2] == HORIZON).all()


def test_weights_draw_tasks_with_less_success_more_often() -> None:
    from keepworth.methods.studies._practice import Practice

    practice = Practice(5, [Loop(weighted="own"), Loop(weighted="other"), Loop()], 10)
    practice.success[:] = [1.0, 0.5, 0.0, 0.5]
    tasks = np.zeros((3, 400), int)
    for number in range(400):
        for arm in range(3):
            practice.begin_episode(arm)
        tasks[:, number] = practice.tasks
    counts = np.stack([np.bincount(drawn, minlength=4) for drawn in tasks])
    assert counts[0].argmax() == 2
    assert counts[1].argmax() == 3
    assert counts[0, 0] < 30 < counts[2].min()
