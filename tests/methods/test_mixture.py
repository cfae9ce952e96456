"""The mixture of estimators: each against numbers worked out another way, and what it learns of which to believe."""

from __future__ import annotations

import random

import numpy as np
import pytest

from keepworth import Memory, policy
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.methods.policies._ridge import Ridge
from keepworth.methods.policies.mixture import Estimator, MixtureValuer

ACTIONS = ("left", "right", "wait")


def of(**settings: float) -> tuple[Experience, MixtureValuer]:
    experience = Experience(policy("mixture", **settings), HashedWords(128))
    valuer = experience.policy.valuer
    assert isinstance(valuer, MixtureValuer)
    return experience, valuer


def met(experience: Experience, situation: str, action: str, reward: float) -> None:
    experience.finish([(experience.recall(situation, "", ACTIONS), action)], reward)


def expected(experience: Experience, situation: str, action: str) -> np.ndarray:
    """By each estimator, of an action that no item advises."""
    valuer, pool = experience.policy.valuer, experience.pool
    assert isinstance(valuer, MixtureValuer)
    query = experience.query(situation, "", ACTIONS, learning=False)
    asked = np.array([pool.content_of(action)])
    return valuer._estimates(query, asked, np.zeros((1, 4)), pool)[:, 0]


def test_a_ridge_that_grew_is_the_one_that_is_solved_at_once() -> None:
    generator = np.random.default_rng(0)
    points, outcomes = generator.normal(size=(70, 5)), generator.random(70)
    covariance = points @ points.T
    ridge = Ridge(1.0, 0.0, prior=0.2)
    for n in range(70):
        ridge.add(covariance[n, :n], covariance[n, n], 0.3, float(outcomes[n]))
    at_once = np.linalg.solve(covariance + 0.3 * np.eye(70), outcomes - 0.2)
    asked = generator.normal(size=(70, 4)) * 0.01
    assert ridge.estimate(asked) == pytest.approx(0.2 + at_once @ asked, abs=1e-9)


def test_a_kernel_mean_is_drawn_to_the_ridge_as_worked_by_hand() -> None:
    experience, valuer = of()
    met(experience, "alpha beta", "left", 1.0)
    # One outcome in the same situation: the ridge's own variance is 1, its noise 0.3, the prior 0.2; no item advised it.
    ridge = 0.2 + 0.8 / 1.3
    kernel = (1.0 + 0.001 * ridge) / 1.001
    assert expected(experience, "alpha beta", "left")[:2] == pytest.approx([min(kernel, 0.98), ridge], abs=1e-6)
    assert expected(experience, "gamma", "left")[:2] == pytest.approx([0.2, 0.2], abs=1e-4)
    assert valuer.weights == pytest.approx(valuer.start)  # all of them said the prior


def test_what_predicts_well_is_believed() -> None:
    experience, valuer = of()
    generator = np.random.default_rng(1)
    for number in range(60):  # alike situations differ, so that only the very same one says anything
        place = int(generator.integers(6))
        met(experience, f"common words of all and p{place}", ACTIONS[number % 2], float((place + number) % 2))
    near = valuer.weights[[estimator.bandwidth > 0.0 for estimator in valuer.estimators]].sum()
    assert near > 0.8
    assert valuer.weights.sum() == pytest.approx(1.0)


def test_rewards_count_as_they_are() -> None:
    experience, _ = of()
    for _ in range(6):
        met(experience, "alpha beta", "left", 0.4)
        met(experience, "alpha beta", "right", 0.0)
    left, right = (expected(experience, "alpha beta", action)[1] for action in ("left", "right"))
    assert 0.3 < left < 0.45
    assert right < 0.1


def test_a_frozen_memory_is_as_good_as_it_was() -> None:
    experience, _ = of()
    for _ in range(8):
        met(experience, "alpha beta", "left", 1.0)
    was = expected(experience, "alpha beta", "left")
    for _ in range(200):
        experience.recall("alpha beta", "", ACTIONS, frozen=True)
        experience.clock.go_on(1.0)
    assert (expected(experience, "alpha beta", "left") == was).all()


def test_settings_that_cannot_take_effect_are_refused() -> None:
    with pytest.raises(InvalidPolicy):
        MixtureValuer(())
    with pytest.raises(InvalidPolicy):
        policy("mixture", prior=1.5)
    with pytest.raises(InvalidPolicy, match="fading"):
        policy("mixture", without="drift")
    assert policy("mixture", k=2, here="newest").name == "mixture"
    assert MixtureValuer((Estimator(),)).weights.tolist() == [1.0]


def test_who_lies_half_of_the_time_turns_nothing_round_that_several_people_taught() -> None:
    topics = ("shirt torn sleeve", "phone screen cracked", "lamp flickers night", "kettle leaks base")
    actions, wrong = ("refund", "replace", "repair", "escalate"), 0
    for seed in range(3):
        draw = random.Random(seed)
        right = {topic: draw.choice(actions) for topic in topics}
        with Memory(encoder=HashedWords(64), policy="mixture", seed=seed) as memory:
            for number in range(100):
                topic, lies = draw.choice(topics), number >= 40 and number % 2 == 1
                by = "liar" if lies else f"user {number % 7}"
                with memory.episode(f"{topic} number {draw.randrange(99)}", by=by) as episode:
                    votes = dict.fromkeys(actions, 0.0)
                    for action, weight, _ in episode.search(actions=actions).advice:
                        votes[action] += weight
                    taken = right[topic] if lies else max(actions, key=lambda action: (votes[action], draw.random()))
                    episode.act(taken)
                    episode.reward(0.0 if lies else float(taken == right[topic]), by=by)
                wrong += number >= 50 and not lies and taken != right[topic]
    assert wrong <= 2
