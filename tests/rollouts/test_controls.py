"""What a control takes away is gone, and a memory that is frozen is the one that learned."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth import policy
from keepworth.agents.simulated import LinearAgent, SimulatedAgent, TabularAgent
from keepworth.environments.streams import open_stream
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.rollouts.stream import run_stream
from tests.environments.game import Game

ENCODER = HashedWords()


def frozen(family: str, control: str, agent: SimulatedAgent, seed: int, length: int) -> float:
    stream = open_stream(family, seed=seed, length=length)
    run = run_stream(stream, policy("mixture"), agent, ENCODER, seed=seed, control=control)
    return float(run.held_out.mean())


def test_with_everything_permuted_nothing_is_left_of_the_gain() -> None:
    """Where labels stayed true, half of the gain over no memory was left."""
    left, gain = (
        np.mean(
            [
                frozen("near-miss", arm, LinearAgent(), seed, 150)
                - frozen("near-miss", "none", LinearAgent(), seed, 150)
                for seed in range(3)
            ]
        )
        for arm in ("shuffled", "learn")
    )
    assert gain > 0.3
    assert left < 0.05


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_frozen_memory_weighs_its_evidence_as_it_did_while_it_learned(seed: int) -> None:
    """Where evidence stopped fading when learning stopped, the T-maze fell from 0.9 to 0.5."""
    assert frozen("t-maze", "learn", TabularAgent(), seed, 300) > 0.85


@pytest.mark.parametrize("name", ["kernel-mean", "mixture"])
def test_questions_do_not_make_a_frozen_memory_older(name: str) -> None:
    stream = open_stream("near-miss", seed=1, length=60)
    experience_of = []
    for asked in (0, 500):
        experience = Experience(policy(name), ENCODER)
        for task in stream.tasks:
            scene = Game(task).reset()
            use = experience.recall(scene.goal, scene.observation, scene.actions)
            experience.finish([(use, scene.actions[0])], float(scene.actions[0] in scene.right))
        experience.time += asked
        use = experience.recall(scene.goal, scene.observation, scene.actions, frozen=True)
        experience_of.append(use.values.means - 1e-9 * use.candidates.similarities)
    assert np.allclose(*experience_of, atol=0.02)
