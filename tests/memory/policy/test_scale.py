"""What success pays does not matter, only which rewards are better than others."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.agents.simulated import LinearAgent
from keepworth.environments.streams import generated
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.scale import Scale
from keepworth.recipes.experience_methods import method
from tests.environments.game import Game

ENCODER = HashedWords()


def success(name: str, right: float, wrong: float, seed: int) -> float:
    stream = generated("near-miss", seed=seed, length=150)
    noise = np.random.default_rng([41, seed]).gumbel(size=(len(stream.tasks), stream.widest))
    experience, agent, won = Experience(method(name, seed=seed), ENCODER, seed=seed), LinearAgent(), []
    for number, task in enumerate(stream.tasks):
        scene = Game(task).reset()
        use = experience.recall(scene.goal, scene.observation, scene.actions)
        shown = experience.present(use)
        action = agent(scene.text, scene.actions, scene.leaning, shown, noise[number, : len(scene.actions)])
        won.append(action in scene.right)
        experience.finish([(use, action)], right if won[-1] else wrong)
    return float(np.mean(won))


@pytest.mark.parametrize("name", ["advantage", "memrl"])
def test_rewards_of_any_size_teach_the_same(name: str) -> None:
    """Where rewards were cut at 0.5, success that paid 0.4 was filed as failure."""
    plain = np.mean([success(name, 1.0, 0.0, seed) for seed in range(4)])
    for right, wrong in ((0.4, 0.0), (1.0, 0.6), (0.02, 0.01)):
        assert np.mean([success(name, right, wrong, seed) for seed in range(4)]) == pytest.approx(plain, abs=0.04)


def test_a_case_filed_before_the_scale_was_known_is_filed_anew() -> None:
    experience = Experience(method("advantage"), ENCODER)
    for text, action, reward in (("torn shirt", "refund", 0.6), ("torn coat", "replace", 1.0)):
        use = experience.recall(text, "", ("refund", "replace"))
        experience.finish([(use, action)], reward)
    first, second = experience.pool.items
    assert (first.metadata["avoid"], first.metadata["good"]) == (("refund",), False)
    assert second.metadata["do"] == ("replace",)
    assert "earned 0.6" in first.text
    assert experience.pool.warns[0]


def test_graded_rewards_are_judged_by_what_is_usual_and_not_by_half_of_what_is_possible() -> None:
    experience, generator = Experience(method("advantage"), ENCODER), np.random.default_rng(0)
    for number in range(60):
        action = ("refund", "replace")[number % 2]
        use = experience.recall("torn shirt", "", ("refund", "replace"))
        experience.finish([(use, action)], float(generator.uniform(0.25, 0.4) if action == "refund" else 0.1))
    use = experience.recall("torn shirt", "", ("refund", "replace"), frozen=True)
    advised = {pair[:2] for pair in experience.present(use).advice}
    assert ("refund", 1.0) in advised
    assert ("replace", 1.0) not in advised


def test_the_scale_is_what_was_seen() -> None:
    scale = Scale()
    assert not scale.see([0.4, 0.4])
    assert scale.of(0.4) == 0.5  # nobody knows yet whether that is much
    assert scale.see([0.0])
    assert [scale.of(each) for each in (0.0, 0.2, 0.4)] == [0.0, 0.5, 1.0]
    assert not scale.see([0.41])  # hardly more than the best so far
    assert scale.of(0.41) == 1.0
    assert scale.see([0.8])
    binary = Scale()
    assert not binary.see([1.0])
    assert binary.of(1.0) == 1.0
    assert not binary.see([0.0])


def test_one_persons_extreme_reward_does_not_make_everything_else_small() -> None:
    scale = Scale()
    scale.see([0.0, 0.9], person=1)
    assert scale.see([0.0, 0.4])  # the program's own are another matter
    assert scale.of(0.4) == 1.0
    assert not scale.see([1.0], person=1)
    assert scale.of(0.4) == scale.of(1.0) == 1.0
