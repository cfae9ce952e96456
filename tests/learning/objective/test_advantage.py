from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.learning.objective.advantage import advantages, scaled
from keepworth.learning.objective.formulas import centered, whitened
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import BatchStd, GroupStd, KlReward
from keepworth.learning.objective.presets import preset, varied
from keepworth.methods.objectives.aepo import TaskStd
from keepworth.methods.objectives.dapo import OverlongPenalty
from tests.learning.objective.toys import bandit_batch, toy

GRPO = preset("grpo")
REWARDS = st.lists(st.floats(-10, 10, allow_nan=False), min_size=2, max_size=8)


def one(rewards: list[float], objective: Objective, group: list[int] | None = None) -> torch.Tensor:
    return advantages(bandit_batch(rewards, group, lp_reference=torch.zeros(len(rewards), 1)), objective)[:, 0]


def test_grpo_reference_values() -> None:
    torch.testing.assert_close(
        one([1, 0, 0, 0, 0, 0, 0, 0], GRPO)[:2], torch.tensor([2.4749, -0.3536], dtype=torch.float64), atol=1e-4, rtol=0
    )
    four = one([1, 1, 1, 1, 0, 0, 0, 0], GRPO)
    torch.testing.assert_close(four.abs(), torch.full((8,), 0.9354, dtype=torch.float64), atol=1e-4, rtol=0)


@settings(deadline=None)
@given(REWARDS)
def test_leave_one_out_is_the_scaled_group_mean(rewards: list[float]) -> None:
    got = one(rewards, preset("rloo"))
    values = torch.tensor(rewards, dtype=torch.float64)
    others = torch.stack([torch.cat((values[:i], values[i + 1 :])).mean() for i in range(len(values))])
    if len(set(rewards)) == 1:
        assert not got.any()
    else:
        torch.testing.assert_close(got, values - others, atol=1e-12, rtol=1e-12)
        count = len(rewards)
        torch.testing.assert_close(got, count / (count - 1) * (values - values.mean()), atol=1e-12, rtol=1e-12)


@settings(deadline=None)
@given(st.floats(-10, 10), st.integers(2, 9))
def test_a_group_of_equal_rewards_gives_exactly_zero(reward: float, size: int) -> None:
    for name in ("grpo", "rloo", "reinforce"):
        assert not one([reward] * size, preset(name)).any()


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="group 3 has one episode"):
        one([1.0, 0.0, 1.0], GRPO, [7, 7, 3])


def test_scales_agree_with_one_group_and_a_lonely_task_falls_back_to_the_batch() -> None:
    rewards, group = torch.tensor([1.0, 0.0, 0.5, 0.2], dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    base = centered(rewards, group, "group")
    by_group, by_batch, by_task = (scaled(base, rewards, group, s, group) for s in (GroupStd(), BatchStd(), TaskStd()))
    torch.testing.assert_close(by_group, by_batch)
    torch.testing.assert_close(by_group, by_task)
    torch.testing.assert_close(by_batch.std(), torch.tensor(1.0, dtype=torch.float64), atol=1e-5, rtol=0)
    task = torch.tensor([0, 0, 0, 1])
    mixed = scaled(base, rewards, group, TaskStd(), task)
    torch.testing.assert_close(mixed[3], by_batch[3])
    torch.testing.assert_close(mixed[0], base[0] / (rewards[:3].std() + 1e-6))


def test_an_episode_of_many_rows_counts_once() -> None:
    single = bandit_batch([1.0, 0.0, 0.0])
    repeat = torch.tensor([0, 0, 0, 1, 2])
    spread = bandit_batch([1.0, 1.0, 1.0, 0.0, 0.0], episode=repeat)
    expected = advantages(single, preset("rloo"))[repeat]
    torch.testing.assert_close(advantages(spread, preset("rloo")), expected)
    with pytest.raises(ValueError, match="episode 0 disagree on its reward"):
        advantages(bandit_batch([1.0, 0.0], episode=torch.tensor([0, 0])), preset("rloo"))


def test_optimal_baseline() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.3], dtype=torch.float64)
    group, equal = torch.zeros(3, dtype=torch.long), torch.full((3,), 2.5, dtype=torch.float64)
    torch.testing.assert_close(centered(rewards, group, "group", equal), centered(rewards, group, "group"))
    weight = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64)
    baseline = (rewards - centered(rewards, group, "group", weight))[0]

    def spread(b: torch.Tensor) -> float:
        return float((weight * (rewards - b) ** 2).sum())

    assert spread(baseline) < min(spread(baseline + 0.01), spread(baseline - 0.01))


def test_whitening_ignores_padding() -> None:
    batch = toy().batch
    values = torch.randn(batch.shape, dtype=torch.float64)
    white = whitened(values, batch.mask, 0.0)
    drawn = white[batch.mask > 0]
    assert abs(float(drawn.mean())) < 1e-12
    assert abs(float(drawn.var(correction=0)) - 1) < 1e-12
    assert not white[batch.mask == 0].any()
    wider = torch.nn.functional.pad(values, (0, 3)), torch.nn.functional.pad(batch.mask, (0, 3))
    torch.testing.assert_close(whitened(*wider, 0.0)[:, : batch.shape[1]], white)


def test_overlong_penalty() -> None:
    got = OverlongPenalty(0.2).shape(torch.zeros(5), torch.tensor([10.0, 80.0, 90.0, 100.0, 130.0]), 100)
    torch.testing.assert_close(got, torch.tensor([0.0, 0.0, -0.5, -1.0, -1.0]))
    with pytest.raises(ValueError, match="length_budget"):
        advantages(toy().batch, preset("dapo"))


def test_kl_in_the_reward_is_subtracted_from_the_episode() -> None:
    reference = torch.tensor([[0.5], [0.0]], dtype=torch.float64)
    objective = varied(preset("rloo"), kl=KlReward(0.2))
    got = advantages(bandit_batch([1.0, 0.0], lp_reference=reference), objective)[:, 0]
    # lp - lp_reference is -0.5 and 0, so the first reward becomes 1 + 0.1.
    torch.testing.assert_close(got, torch.tensor([1.1, -1.1], dtype=torch.float64))
