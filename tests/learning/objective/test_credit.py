"""Returns, GAE, anchor states and prefix trees against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.learning.objective.advantage import CreditTable, advantages, value_targets
from keepworth.learning.objective.batch import Batch, Steps, episode_table
from keepworth.learning.objective.formulas import gae
from keepworth.learning.objective.parts import Gae
from keepworth.learning.objective.presets import preset, varied
from keepworth.methods.objectives._turns import StepIndex, StepState, step_returns
from keepworth.methods.objectives.a_star_po import soft_value
from keepworth.methods.objectives.reinforce_pp import reward_to_go
from keepworth.methods.objectives.t_spmo import tree
from tests.learning.objective.toys import bandit_batch, toy

PPO = varied(preset("ppo"), kl=None, advantage=Gae(0.95))


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(
    masks: list[list[int]], rewards: list[float], episode: list[int] | None = None, **fields: torch.Tensor
) -> Batch:
    mask = torch.tensor(masks, dtype=torch.float64)
    count = len(masks)
    return Batch(
        mask,
        torch.zeros_like(mask),
        tensor(*rewards),
        torch.zeros(count, dtype=torch.long),
        torch.tensor(episode or list(range(count))),
        **fields,
    )


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
    objective = varied(PPO, advantage=Gae(trace, discount))
    values = torch.tensor([[0.1, 0.5, -0.3, 0.2]], dtype=torch.float64)
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
    batch = toy().batch
    whitening = preset("ppo", kl=None)
    raw = advantages(batch, varied(whitening, advantage=Gae(0.95)))
    assert batch.values is not None
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


def gigpo_batch(states: list[int], rewards: list[float]) -> Batch:
    """Two episodes of two one-token turns; the first turns share a state where `states` says so."""
    steps = Steps(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), tensor(0, 0, 0, 0), torch.tensor(states))
    return rows([[1, 1], [1, 1]], rewards, step=torch.tensor([[0, 1], [2, 3]]), steps=steps)


def test_gigpo_by_hand() -> None:
    objective = preset("gigpo", advantage=StepState(1.0, 1.0, 0.5), kl=None)
    got = advantages(gigpo_batch([7, 1, 7, 2], [1.0, 0.0]), objective)
    # Returns 0.5 and 0 in the shared state: +-0.25 beside the episode's +-0.5; the other turns are alone.
    torch.testing.assert_close(got, torch.tensor([[0.75, 0.5], [-0.75, -0.5]], dtype=torch.float64))
    alone = advantages(gigpo_batch([1, 2, 3, 4], [1.0, 0.0]), objective)
    torch.testing.assert_close(alone, torch.tensor([[0.5, 0.5], [-0.5, -0.5]], dtype=torch.float64))
    never = advantages(gigpo_batch([-1, -1, -1, -1], [1.0, 0.0]), objective)
    torch.testing.assert_close(never, alone)


def test_a_state_may_recur_at_another_time() -> None:
    """Turn 1 of the first episode and turn 0 of the second see the same state: returns 1 and 0.25 (discount 0.5)."""
    objective = preset("gigpo", advantage=StepState(0.0, 1.0, 0.5), kl=None)
    got = advantages(gigpo_batch([1, 9, 9, 2], [1.0, 0.5]), objective)
    torch.testing.assert_close(got, torch.tensor([[0.0, 0.375], [-0.375, 0.0]], dtype=torch.float64))


def test_step_returns_cross_the_rows_of_an_episode() -> None:
    steps = Steps(torch.tensor([4, 4]), torch.tensor([0, 1]), tensor(0.2, 0.0), torch.tensor([0, 1]))
    batch = rows([[1, 0], [1, 1]], [1.0, 1.0], [4, 4], step=torch.tensor([[0, -1], [1, 1]]), steps=steps)
    table = episode_table(batch)
    torch.testing.assert_close(step_returns(steps, table, table.reward, 0.5), tensor(0.2 + 0.5 * 0.8, 0.8))
    torch.testing.assert_close(step_returns(steps, table, table.reward, 0.0), tensor(0.2, 0.8))
    with pytest.raises(ValueError, match="episode 4"):
        step_returns(steps, episode_table(bandit_batch([1.0])), tensor(1.0), 0.5)


def test_fine_mem_compares_turns_of_the_same_index() -> None:
    steps = Steps(
        torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), tensor(0.6, 0.1, 0.2, 0.1), torch.zeros(4).long()
    )
    batch = rows([[1, 1], [1, 1]], [0.7, 0.3], step=torch.tensor([[0, 1], [2, 3]]), steps=steps)
    got = advantages(batch, preset("fine_mem", advantage=StepIndex(0.0, 1.0, 0.0)))
    torch.testing.assert_close(got, torch.tensor([[0.2, 0.0], [-0.2, 0.0]], dtype=torch.float64))


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
    with pytest.raises(ValueError, match="temperature"):
        soft_value(rewards, 0.0)


def test_what_a_credit_rule_lacks_is_named() -> None:
    bare = bandit_batch([1.0, 0.0])
    for name, missing in (
        ("ppo", "Batch.values"),
        ("gigpo", "Batch.steps"),
        ("t_spmo", "Batch.ids"),
        ("a_star_po", "Batch.soft_value"),
        ("aepo", "Batch.task_type"),
        ("vcpo", "Batch.score_norm"),
    ):
        objective = preset(name) if name == "a_star_po" else preset(name, kl=None)
        with pytest.raises(ValueError, match=missing):
            advantages(bare, objective)


def test_a_batch_with_a_wrong_shape_or_a_nan_reward_is_refused() -> None:
    batch = bandit_batch([1.0, 0.0])
    with pytest.raises(ValueError, match=r"Batch\.lp_reference must be \[2, 1\]"):
        replace(batch, lp_reference=torch.zeros(2))
    with pytest.raises(ValueError, match=r"episodes \[1\]"):
        replace(batch, rewards=tensor(1.0, float("nan")))
