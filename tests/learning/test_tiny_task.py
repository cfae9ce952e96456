"""Every setting of the benchmark of objectives runs, and permuted rewards permute nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.objectives.run import SETTINGS, train
from benchmarks.objectives.world import GRADED, Permuted, tiny


@pytest.mark.parametrize(
    ("name", "arm"),
    [
        (n, a)
        for n in ("stale", "sparse", "turns", "small")
        for a in SETTINGS[n].arms
        if n != "small" or a.name != "grpo"
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_every_arm_of_the_benchmark_takes_its_steps(name: str, arm) -> None:
    result = train(replace(SETTINGS[name], steps=2), arm, seed=0)
    assert result["episodes"] > 0
    assert all(math.isfinite(value) for value in result["measured"])


def test_permuted_rewards_are_those_of_the_update_and_nothing_else_changes() -> None:
    model = tiny(0)
    plain, dealt = (
        [e for group in world.rollout(model, 3, 8) for e in group.episodes] for world in (GRADED, Permuted(GRADED))
    )
    rewards = [[e.reward for e in episodes] for episodes in (plain, dealt)]
    assert sorted(rewards[0]) == sorted(rewards[1])
    assert rewards[0] != rewards[1]
    assert [e.segments for e in plain] == [e.segments for e in dealt]
