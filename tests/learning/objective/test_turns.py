"""Critics of turns and of utterances, two traces, and durations: by hand, and against loops over episodes."""

from __future__ import annotations

import math

import pytest
import torch

from keepworth.learning.objective.advantage import advantages, value_targets
from keepworth.learning.objective.batch import Batch, Steps
from keepworth.learning.objective.options import Objective, ObjectiveError
from keepworth.learning.objective.parts import Gae
from keepworth.learning.objective.policy_loss import denominators, value_loss
from keepworth.learning.objective.presets import preset, varied
from keepworth.methods.objectives.archer import Utterance
from keepworth.methods.objectives.duration import Duration
from tests.learning.objective.toys import toy

PPO = preset("ppo", kl=None)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def episode(seconds: torch.Tensor | None = None) -> Batch:
    """One episode of reward 1 in two rows. Turn 0: two tokens, earns 0.1. Turn 1, behind an observation in the row: one token.
    Turn 2, in a row of its own: three tokens. What is 9 is read by nobody."""
    return Batch(
        mask=torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 0]], dtype=torch.float64),
        lp_behaviour=torch.zeros(2, 4, dtype=torch.float64),
        lp_proximal=torch.zeros(2, 4, dtype=torch.float64),
        rewards=tensor(1.0, 1.0),
        group=torch.zeros(2, dtype=torch.long),
        episode=torch.zeros(2, dtype=torch.long),
        values=torch.stack([tensor(0.5, 9, 9, 0.4), tensor(0.2, 9, 9, 9)]),
        action_values=torch.stack([tensor(9, 0.8, 9, 0.3), tensor(9, 9, 0.1, 9)]),
        step=torch.tensor([[0, 0, -1, 1], [2, 2, 2, -1]]),
        steps=Steps(torch.zeros(3, dtype=torch.long), torch.arange(3), tensor(0.1, 0, 0), torch.arange(3), seconds),
    )


def spread(first: float, second: float, third: float) -> torch.Tensor:
    return torch.stack([tensor(first, first, 0, second), tensor(third, third, third, 0)])


def test_targets_have_a_trace_of_their_own() -> None:
    """Trace 0 for the policy: deltas alone. Trace 1 for the targets: discounted returns."""
    objective = varied(PPO, advantage=Gae(0.0, 0.5, level="turn", target_decay=1.0))
    torch.testing.assert_close(advantages(episode(), objective), spread(-0.2, -0.3, 0.7))
    torch.testing.assert_close(value_targets(episode(), objective), spread(0.1 + 0.25 * 0.9, 0.45, 0.9))
    with pytest.raises(ObjectiveError, match=r"target_decay = 0\.9 is trace_decay: leave it out"):
        Gae(0.9, target_decay=0.9)


def test_a_turn_counts_once_in_the_critics_loss() -> None:
    """Errors 1, 2 and 3 of the turns, in a mean over 6 tokens."""
    batch, objective = episode(), varied(PPO, advantage=Gae(0.5, level="turn"))
    got = value_loss(spread(1, 2, 3), spread(0, 0, 0), batch, objective, denominators(batch, objective))
    assert float(got) == pytest.approx(0.5 * 0.5 * (1 + 4 + 9) / 6)


def test_gae_over_turns_equals_a_loop_over_episodes() -> None:
    batch, part = toy().batch, Gae(0.8, 0.9, level="turn", target_decay=0.3)
    objective = varied(PPO, advantage=part)
    assert batch.step is not None
    assert batch.steps is not None
    assert batch.values is not None
    got, targets = advantages(batch, objective), value_targets(batch, objective)
    for number in set(batch.episode.tolist()):
        turns = [s for s in range(len(batch.steps.episode)) if batch.steps.episode[s] == number]
        places = [[(int(r), int(c)) for r, c in ((batch.step == s) & (batch.mask > 0)).nonzero()] for s in turns]
        rewards = [float(batch.steps.reward[s]) for s in turns]
        rewards[-1] += float(batch.rewards[batch.episode == number][0]) - sum(rewards)
        values = [float(batch.values[where[0]]) for where in places]
        for decay, found in ((0.8, got), (0.3, targets)):
            for k, where in enumerate(places):
                deltas = [
                    rewards[j] + 0.9 * (values[j + 1] if j + 1 < len(turns) else 0.0) - values[j]
                    for j in range(k, len(turns))
                ]
                estimate = sum((0.9 * decay) ** n * delta for n, delta in enumerate(deltas))
                wanted = estimate + (values[k] if found is targets else 0.0)
                assert [float(found[at]) for at in where] == pytest.approx([wanted] * len(where))


def test_what_archer_compares_and_teaches_by_hand() -> None:
    """Q of a turn is read at its last token, V at its first."""
    objective = varied(preset("archer"), advantage=Utterance(0.5))
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
    plain, weighed = (varied(PPO, advantage=Gae(0.9), weight=weight) for weight in (None, Duration(100)))
    torch.testing.assert_close(advantages(batch, weighed), advantages(batch, plain) * spread(0.25, 0.75, 2.0))
    assert torch.equal(value_targets(batch, weighed), value_targets(batch, plain))
    for seconds in (0.0, 0.1, 7.3):
        alike = episode(torch.full((3,), seconds, dtype=torch.float64))
        assert torch.equal(advantages(alike, weighed), advantages(alike, plain))


def test_a_weight_that_cannot_act_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight=Duration.* has no effect with a surrogate that is a regression"):
        Objective(**{**preset("a_star_po").model_dump(), "weight": "Duration"})
    assert varied(preset("grpo"), weight="Duration(90)").weight == Duration(90)
