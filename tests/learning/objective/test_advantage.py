"""Advantages against numbers worked out by hand: groups, returns, GAE, anchor states, prefix trees, turns, re-rolls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.objectives.a_star_po import soft_value
from keepworth.methods.objectives.aepo import TaskStd
from keepworth.methods.objectives.archer import Utterance
from keepworth.methods.objectives.dapo import OverlongPenalty
from keepworth.methods.objectives.duration import Duration
from keepworth.methods.objectives.reinforce_pp import reward_to_go
from keepworth.methods.objectives.t_spmo import tree
from keepworth.methods.recipes._bank.rerolls import sampled_sessions
from keepworth.training.objective.advantage import CreditTable, advantages, scale_advantage, value_targets
from keepworth.training.objective.batch import Batch, Steps, episode_table
from keepworth.training.objective.formulas import center, gae, whiten
from keepworth.training.objective.options import Objective, ObjectiveError
from keepworth.training.objective.parts import BatchStd, Gae, GroupStd, KlReward, Outcome
from keepworth.training.objective.policy_loss import denominators, loss, value_loss
from keepworth.training.objective.presets import preset, vary_objective
from keepworth.training.objective.turns import StepIndex, StepState, step_returns
from tests.learning.objective.toys import bandit_batch, toy

GRPO = preset("grpo")
REWARDS = st.lists(st.floats(-10, 10, allow_nan=False), min_size=2, max_size=8)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def matrix(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def one(rewards: list[float], objective: Objective, group: list[int] | None = None) -> torch.Tensor:
    return advantages(bandit_batch(rewards, group, lp_reference=torch.zeros(len(rewards), 1)), objective)[:, 0]


def test_grpo_reference_values() -> None:
    torch.testing.assert_close(one([1, *[0] * 7], GRPO), tensor(2.4749, *[-0.3536] * 7), atol=1e-4, rtol=0)
    four = one([*[1] * 4, *[0] * 4], GRPO)
    torch.testing.assert_close(four, tensor(*[0.9354] * 4, *[-0.9354] * 4), atol=1e-4, rtol=0)


@settings(deadline=None)
@given(REWARDS)
def test_leave_one_out_is_the_scaled_group_mean(rewards: list[float]) -> None:
    got = one(rewards, preset("rloo"))
    values = torch.tensor(rewards, dtype=torch.float64)
    others = torch.stack([torch.cat((values[:i], values[i + 1 :])).mean() for i in range(len(values))])
    if len(set(rewards)) == 1:
        assert not got.any()
    else:
        count = len(rewards)
        torch.testing.assert_close(got, values - others, atol=1e-12, rtol=1e-12)
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
    rewards, group = tensor(1.0, 0.0, 0.5, 0.2), torch.zeros(4, dtype=torch.long)
    base = center(rewards, group, "group")
    by_group, by_batch, by_task = (
        scale_advantage(base, rewards, group, s, group) for s in (GroupStd(), BatchStd(), TaskStd())
    )
    torch.testing.assert_close(by_group, by_batch)
    torch.testing.assert_close(by_group, by_task)
    torch.testing.assert_close(by_batch.std(), torch.tensor(1.0, dtype=torch.float64), atol=1e-5, rtol=0)
    task = torch.tensor([0, 0, 0, 1])
    mixed = scale_advantage(base, rewards, group, TaskStd(), task)
    torch.testing.assert_close(mixed[3], by_batch[3])
    torch.testing.assert_close(mixed[0], base[0] / (rewards[:3].std() + 1e-6))


def test_an_episode_of_many_rows_counts_once() -> None:
    single = bandit_batch([1.0, 0.0, 0.0])
    repeat = torch.tensor([0, 0, 0, 1, 2])
    spread = bandit_batch([1.0, 1.0, 1.0, 0.0, 0.0], episode=repeat)
    expected = advantages(single, preset("rloo"))[repeat]
    torch.testing.assert_close(advantages(spread, preset("rloo")), expected)


def test_optimal_baseline() -> None:
    rewards = tensor(1.0, 0.0, 0.3)
    group, equal = torch.zeros(3, dtype=torch.long), torch.full((3,), 2.5, dtype=torch.float64)
    torch.testing.assert_close(center(rewards, group, "group", equal), center(rewards, group, "group"))
    weight = tensor(1.0, 4.0, 0.5)
    baseline = (rewards - center(rewards, group, "group", weight))[0]

    def spread(b: torch.Tensor) -> float:
        return float((weight * (rewards - b) ** 2).sum())

    assert spread(baseline) < min(spread(baseline + 0.01), spread(baseline - 0.01))


def test_whitening_ignores_padding() -> None:
    batch = toy().batch
    values = torch.randn(batch.shape, dtype=torch.float64)
    white = whiten(values, batch.mask, 0.0)
    drawn = white[batch.mask > 0]
    assert abs(float(drawn.mean())) < 1e-12
    assert abs(float(drawn.var(correction=0)) - 1) < 1e-12
    assert not white[batch.mask == 0].any()
    wider = torch.nn.functional.pad(values, (0, 3)), torch.nn.functional.pad(batch.mask, (0, 3))
    torch.testing.assert_close(whiten(*wider, 0.0)[:, : batch.shape[1]], white)


def test_overlong_penalty() -> None:
    got = OverlongPenalty(0.2).shape(torch.zeros(5), torch.tensor([10.0, 80.0, 90.0, 100.0, 130.0]), 100)
    torch.testing.assert_close(got, torch.tensor([0.0, 0.0, -0.5, -1.0, -1.0]))
    with pytest.raises(ValueError, match="length_budget"):
        advantages(toy().batch, preset("dapo"))


def test_kl_in_the_reward_is_subtracted_from_the_episode() -> None:
    reference = matrix([0.5], [0.0])
    objective = vary_objective(preset("rloo"), kl=KlReward(0.2))
    got = advantages(bandit_batch([1.0, 0.0], lp_reference=reference), objective)[:, 0]
    # lp - lp_reference is -0.5 and 0, so the first reward becomes 1 + 0.1.
    torch.testing.assert_close(got, tensor(1.1, -1.1))


PPO = vary_objective(preset("ppo"), kl=None, advantage=Gae(0.95))


def rows(masks: list[list[float]], rewards: list[float], episode: list[int] | None = None, **fields: Any) -> Batch:
    mask, of = matrix(*masks), torch.tensor(episode or list(range(len(masks))))
    return Batch(mask, 0 * mask, tensor(*rewards), 0 * of, of, **fields)


def test_reward_to_go_discounts_inside_the_episode() -> None:
    got = reward_to_go(torch.tensor([[0.0, 0.0, 1.0], [2.0, 9.0, 9.0]]), torch.tensor([3, 1]), 0.5)
    assert got.tolist() == [[0.25, 0.5, 1.0], [2.0, 0.0, 0.0]]


def test_gae_by_hand_with_a_bootstrap() -> None:
    got = gae(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.2]]), torch.tensor([2]), 0.9, 0.5, torch.tensor([1.0]))
    # delta_1 = 0 + 0.9 * 1 - 0.2 = 0.7; delta_0 = 1 + 0.9 * 0.2 - 0.5 = 0.68; A_0 = 0.68 + 0.45 * 0.7.
    torch.testing.assert_close(got, torch.tensor([[0.995, 0.7]]))


@settings(deadline=None)
@given(st.floats(0.1, 1.0), st.floats(0.0, 1.0), st.integers(0, 4), st.integers(1, 3))
def test_observation_tokens_do_not_touch_advantages(discount: float, trace: float, place: int, width: int) -> None:
    objective = vary_objective(PPO, advantage=Gae(trace, discount))
    values = matrix([0.1, 0.5, -0.3, 0.2])
    plain = rows([[1, 1, 1, 1]], [1.0], values=values)
    at = min(place, 4)

    def widened(matrix: torch.Tensor, filler: float) -> torch.Tensor:
        return torch.cat((matrix[:, :at], torch.full((1, width), filler, dtype=torch.float64), matrix[:, at:]), 1)

    mask = widened(plain.mask, 0.0)
    inserted = Batch(mask, mask * 0, plain.rewards, plain.group, plain.episode, values=widened(values, 7.0))
    expected = advantages(plain, objective)[0]
    got = advantages(inserted, objective)[0]
    torch.testing.assert_close(got[mask[0] > 0], expected)
    assert not got[mask[0] == 0].any()


def test_value_targets_are_advantages_plus_values_before_whitening() -> None:
    batch: Any = toy().batch
    whitening = preset("ppo", kl=None)
    raw = advantages(batch, vary_objective(whitening, advantage=Gae(0.95)))
    torch.testing.assert_close(value_targets(batch, whitening), torch.where(batch.mask > 0, raw + batch.values, 0.0))


def test_a_terminal_reward_may_sit_on_the_last_turn() -> None:
    masks = [[1, 1, 0, 1], [1, 0, 1, 1]]
    step = torch.tensor([[0, 0, -1, 1], [2, -1, 3, 3]])

    def batch(turn_rewards: torch.Tensor) -> Batch:
        steps = Steps(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), turn_rewards, torch.tensor([0, 1, 0, 1]))
        return rows(masks, [1.0, 0.3], step=step, steps=steps, values=torch.rand(2, 4).double() * 0)

    for name in ("reinforce_pp", "ppo", "gigpo"):
        objective = preset(name, kl=None)
        on_turn = advantages(batch(tensor(0.0, 1.0, 0.0, 0.3)), objective)
        on_episode = advantages(batch(tensor(0.0, 0.0, 0.0, 0.0)), objective)
        torch.testing.assert_close(on_turn, on_episode)


def two_turns(rewards: list[float], of_turns: torch.Tensor, states: torch.Tensor) -> Batch:
    steps = Steps(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), of_turns, states)
    return rows([[1, 1], [1, 1]], rewards, step=torch.tensor([[0, 1], [2, 3]]), steps=steps)


def gigpo_batch(states: list[int], rewards: list[float]) -> Batch:
    """Two episodes of two one-token turns; the first turns share a state where `states` says so."""
    return two_turns(rewards, tensor(0, 0, 0, 0), torch.tensor(states))


def test_gigpo_by_hand() -> None:
    objective = preset("gigpo", advantage=StepState(1.0, 1.0, 0.5), kl=None)
    got = advantages(gigpo_batch([7, 1, 7, 2], [1.0, 0.0]), objective)
    # Returns 0.5 and 0 in the shared state: +-0.25 beside the episode's +-0.5; the other turns are alone.
    torch.testing.assert_close(got, matrix([0.75, 0.5], [-0.75, -0.5]))
    alone = advantages(gigpo_batch([1, 2, 3, 4], [1.0, 0.0]), objective)
    torch.testing.assert_close(alone, matrix([0.5, 0.5], [-0.5, -0.5]))
    never = advantages(gigpo_batch([-1, -1, -1, -1], [1.0, 0.0]), objective)
    torch.testing.assert_close(never, alone)


def test_a_state_may_recur_at_another_time() -> None:
    """Turn 1 of the first episode and turn 0 of the second see the same state: returns 1 and 0.25 (discount 0.5)."""
    objective = preset("gigpo", advantage=StepState(0.0, 1.0, 0.5), kl=None)
    got = advantages(gigpo_batch([1, 9, 9, 2], [1.0, 0.5]), objective)
    torch.testing.assert_close(got, matrix([0.0, 0.375], [-0.375, 0.0]))


def test_step_returns_cross_the_rows_of_an_episode() -> None:
    steps = Steps(torch.tensor([4, 4]), torch.tensor([0, 1]), tensor(0.2, 0.0), torch.tensor([0, 1]))
    batch = rows([[1, 0], [1, 1]], [1.0, 1.0], [4, 4], step=torch.tensor([[0, -1], [1, 1]]), steps=steps)
    table = episode_table(batch)
    torch.testing.assert_close(step_returns(steps, table, table.reward, 0.5), tensor(0.2 + 0.5 * 0.8, 0.8))
    torch.testing.assert_close(step_returns(steps, table, table.reward, 0.0), tensor(0.2, 0.8))


def test_fine_mem_compares_turns_of_the_same_index() -> None:
    batch = two_turns([0.7, 0.3], tensor(0.6, 0.1, 0.2, 0.1), torch.zeros(4).long())
    got = advantages(batch, preset("fine_mem", advantage=StepIndex(0.0, 1.0, 0.0)))
    torch.testing.assert_close(got, matrix([0.2, 0.0], [-0.2, 0.0]))


def tree_of(answers: list[list[int]], rewards: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, answers))
    masks = [[1] * len(answer) + [0] * (width - len(answer)) for answer in answers]
    ids = torch.tensor([answer + [0] * (width - len(answer)) for answer in answers])
    batch = rows(masks, rewards, ids=ids)
    table = episode_table(batch)
    return tree(CreditTable(batch, table, table.reward, None))


def test_prefix_tree_by_hand() -> None:
    a, b, c = 1, 2, 3
    advantage, share = tree_of([[a, b], [a, c]], [1.0, 0.0])
    assert advantage.tolist() == [[0.0, 0.5], [0.0, -0.5]]
    assert share.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    advantage, share = tree_of([[a, b], [a, b], [c]], [1.0, 0.0, 0.0])
    torch.testing.assert_close(advantage[:, 0], tensor(1 / 6, 1 / 6, -1 / 3))
    assert share[:, 0].tolist() == [0.5, 0.5, 1.0]
    assert share[:, 1].tolist() == [0.0, 0.0, 0.0]


def test_soft_value() -> None:
    rewards = torch.tensor([1.0, 1.0] + [0.0] * 6, dtype=torch.float64)
    for temperature, expected in ((0.01, 0.986), (0.5, 0.477), (10.0, 0.260)):
        assert float(soft_value(rewards, temperature)) == pytest.approx(expected, abs=1e-3)


def test_missing_input_of_a_credit_rule_is_named() -> None:
    lacking = {"ppo": "values", "gigpo": "steps", "t_spmo": "ids", "a_star_po": "soft_value", "aepo": "task_type"}
    for name, missing in {**lacking, "vcpo": "score_norm"}.items():
        objective = preset(name) if name == "a_star_po" else preset(name, kl=None)
        with pytest.raises(ValueError, match=f"Batch.{missing}"):
            advantages(bandit_batch([1.0, 0.0]), objective)


def test_a_batch_with_a_wrong_shape_or_a_nan_reward_is_refused() -> None:
    batch = bandit_batch([1.0, 0.0])
    with pytest.raises(ValueError, match=r"Batch\.lp_reference must be \[2, 1\]"):
        replace(batch, lp_reference=torch.zeros(2))
    with pytest.raises(ValueError, match=r"episodes \[1\]"):
        replace(batch, rewards=tensor(1.0, float("nan")))


BARE = preset("ppo", kl=None)


def episode(seconds: torch.Tensor | None = None) -> Batch:
    """One episode of reward 1 in two rows. Turn 0: two tokens, earns 0.1. Turn 1, behind an observation in the row: one token.
    Turn 2, in a row of its own: three tokens. What is 9 is read by nobody."""
    return rows(
        [[1, 1, 0, 1], [1, 1, 1, 0]],
        [1.0, 1.0],
        [0, 0],
        lp_proximal=torch.zeros(2, 4, dtype=torch.float64),
        values=torch.stack([tensor(0.5, 9, 9, 0.4), tensor(0.2, 9, 9, 9)]),
        action_values=torch.stack([tensor(9, 0.8, 9, 0.3), tensor(9, 9, 0.1, 9)]),
        step=torch.tensor([[0, 0, -1, 1], [2, 2, 2, -1]]),
        steps=Steps(torch.zeros(3, dtype=torch.long), torch.arange(3), tensor(0.1, 0, 0), torch.arange(3), seconds),
    )


def spread(first: float, second: float, third: float) -> torch.Tensor:
    return torch.stack([tensor(first, first, 0, second), tensor(third, third, third, 0)])


def test_targets_have_a_trace_of_their_own() -> None:
    """Trace 0 for the policy: deltas alone. Trace 1 for the targets: discounted returns."""
    objective = vary_objective(BARE, advantage=Gae(0.0, 0.5, level="turn", target_decay=1.0))
    torch.testing.assert_close(advantages(episode(), objective), spread(-0.2, -0.3, 0.7))
    torch.testing.assert_close(value_targets(episode(), objective), spread(0.1 + 0.25 * 0.9, 0.45, 0.9))
    with pytest.raises(ObjectiveError, match=r"target_decay = 0\.9 is trace_decay: leave it out"):
        Gae(0.9, target_decay=0.9)


def test_a_turn_counts_once_in_the_critics_loss() -> None:
    """Errors 1, 2 and 3 of the turns, in a mean over 6 tokens."""
    batch, objective = episode(), vary_objective(BARE, advantage=Gae(0.5, level="turn"))
    got = value_loss(spread(1, 2, 3), spread(0, 0, 0), batch, objective, denominators(batch, objective))
    assert float(got) == pytest.approx(0.5 * 0.5 * (1 + 4 + 9) / 6)


def test_gae_over_turns_equals_a_loop_over_episodes() -> None:
    batch: Any = toy().batch
    objective = vary_objective(BARE, advantage=Gae(0.8, 0.9, level="turn", target_decay=0.3))
    got, targets = advantages(batch, objective), value_targets(batch, objective)
    for number in set(batch.episode.tolist()):
        turns = [s for s in range(len(batch.steps.episode)) if batch.steps.episode[s] == number]
        places = [[(int(r), int(c)) for r, c in ((batch.step == s) & (batch.mask > 0)).nonzero()] for s in turns]
        rewards = [float(batch.steps.reward[s]) for s in turns]
        rewards[-1] += float(batch.rewards[batch.episode == number][0]) - sum(rewards)
        values = [float(batch.values[where[0]]) for where in places]
        for decay, found in ((0.8, got), (0.3, targets)):
            for k, where in enumerate(places):
                later = [*values[k + 1 :], 0.0]
                deltas = [rewards[k + n] + 0.9 * after - values[k + n] for n, after in enumerate(later)]
                estimate = sum((0.9 * decay) ** n * delta for n, delta in enumerate(deltas))
                wanted = estimate + (values[k] if found is targets else 0.0)
                assert [float(found[at]) for at in where] == pytest.approx([wanted] * len(where))


def test_archer_advantages_and_targets_match_values_by_hand() -> None:
    """Q of a turn is read at its last token, V at its first."""
    objective = vary_objective(preset("archer"), advantage=Utterance(0.5))
    torch.testing.assert_close(advantages(episode(), objective), spread(0.3, -0.1, -0.1))
    actions = value_targets(episode(), objective, of="actions")
    torch.testing.assert_close(actions, spread(0.1 + 0.5 * 0.4, 0.5 * 0.2, 0.9))
    torch.testing.assert_close(value_targets(episode(), objective), spread(0.8, 0.3, 0.1))


def test_weights_of_durations_by_hand() -> None:
    """The median of 1, 3 and 8 caps the last: 1, 3 and 3, whose mean is 7/3."""
    weight = Duration(50).weigh(episode(tensor(1, 3, 8)))
    torch.testing.assert_close(weight * episode().mask, spread(3 / 7, 9 / 7, 9 / 7))
    unmeasured = Duration(100).weigh(episode(tensor(1, math.nan, 3)))
    torch.testing.assert_close(unmeasured * episode().mask, spread(0.5, 1.0, 1.5))
    with pytest.raises(ValueError, match=r"needs Steps\.duration"):
        Duration().weigh(episode())


def test_durations_multiply_the_advantage_and_equal_ones_change_not_a_bit() -> None:
    batch = episode(tensor(1, 3, 8))
    plain, weighed = (vary_objective(BARE, advantage=Gae(0.9), weight=weight) for weight in (None, Duration(100)))
    torch.testing.assert_close(advantages(batch, weighed), advantages(batch, plain) * spread(0.25, 0.75, 2.0))
    assert torch.equal(value_targets(batch, weighed), value_targets(batch, plain))
    for seconds in (0.0, 0.1, 7.3):
        alike = episode(torch.full((3,), seconds, dtype=torch.float64))
        assert torch.equal(advantages(alike, weighed), advantages(alike, plain))


def test_a_weight_that_cannot_act_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight=Duration.* has no effect with a surrogate that is a regression"):
        Objective(**{**preset("a_star_po").model_dump(), "weight": "Duration"})
    assert vary_objective(preset("grpo"), weight="Duration(90)").weight == Duration(90)


def test_local_and_global_branches_are_compared_and_averaged_apart() -> None:
    """Two rollouts of the task, three re-rolls of one session; each branch is a mean over its own rows."""
    rewards, group = [1.0, 0.0, 0.9, 0.1, 0.5], [0, 0, 1, 1, 1]
    branch = torch.tensor([0, 0, 1, 1, 1])
    objective = vary_objective(preset("memory_r2"), kl=None, advantage=Outcome("group"), local_weight=2.0, entropy=None)
    batch = bandit_batch(rewards, group, branch=branch)
    estimate = advantages(batch, objective)[:, 0]
    torch.testing.assert_close(estimate, tensor(0.5, -0.5, 0.4, -0.4, 0.0))
    lp = torch.zeros(5, 1, dtype=torch.float64, requires_grad=True)
    value, _ = loss(objective, lp, None, estimate[:, None], batch, denominators(batch, objective))
    (grad,) = torch.autograd.grad(value, lp)
    torch.testing.assert_close(grad[:, 0], -estimate / tensor(2.0, 2.0, 1.5, 1.5, 1.5))
    with pytest.raises(ValueError, match=r"Batch\.branch"):
        denominators(bandit_batch(rewards, group), objective)


def test_branching() -> None:
    chosen = [sampled_sessions(20, 0.5, seed) for seed in range(200)]
    assert sum(map(len, chosen)) / 4000 == pytest.approx(0.5, abs=0.03)
    assert chosen[7] == sampled_sessions(20, 0.5, 7)
