"""The critic reads the right states, learns them, and cannot move the policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from keepworth.episodes import Group, RewardTerm
from keepworth.learning.critic import Critic, CriticSettings
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.parts import Gae, Whitened
from keepworth.learning.objective.presets import preset
from keepworth.learning.passes import MicroBatch
from keepworth.learning.rows import rows_of
from keepworth.models.adapter import attach_lora, save_trained, unfreeze
from tests.learning.turns import ROLE, sampled_groups
from tests.models.tiny import tiny_model, tiny_network

PPO = preset("ppo")


def test_values_are_those_of_the_states_before_each_token_and_behind_the_last() -> None:
    model = tiny_model(precision="fp64", hidden=32)
    rows = rows_of(sampled_groups(model), [ROLE], 0)
    critic = Critic(model, CriticSettings())
    torch.nn.init.normal_(critic.head.weight)
    chosen = [3, 0, 5]
    values, ends = critic.values(rows, chosen)
    body = tiny_network(attn="sdpa", precision="fp64", hidden=32).get_decoder()
    for line, row in enumerate(chosen):
        ids = rows.contexts[row] + rows.answers[row]
        own = critic.head(body(input_ids=torch.tensor([ids])).last_hidden_state[0])[:, 0]
        start, length = len(rows.contexts[row]), len(rows.answers[row])
        expected = own[start - 1 : -1] * rows.batch.mask[row, :length]
        torch.testing.assert_close(values[line, :length], expected, atol=1e-8, rtol=0)
        torch.testing.assert_close(ends[line], own[-1], atol=1e-8, rtol=0)


def known_by_prompt(model: Any, seed: int) -> list[Group]:
    """Reward 1 after one prompt, 0 after the other, whatever is said: all that a critic can know."""
    return [
        replace(g, episodes=tuple(replace(e, rewards=(RewardTerm("r", float(n == 0)),)) for e in g.episodes))
        for n, g in enumerate(sampled_groups(model, seed=seed))
    ]


@pytest.mark.parametrize("adapter", [True, False])
def test_it_learns_returns_without_moving_the_policy(adapter: bool, tmp_path: Any) -> None:
    model = tiny_model(hidden=32)
    named = attach_lora(model, 2) if adapter else unfreeze(model)
    settings = CriticSettings(learning_rate=2e-2, warmup=30)
    objective = preset("ppo", advantage=Gae(0.95, scale=Whitened()))
    learner = Learner(model, named, objective, Optimisation(), ROLE, critic=settings)
    before = {name: value.detach().clone() for name, value in named.items()}
    first = model.score([(1, 2, 3)], [[(4, 5)]])
    measured = [learner.update(known_by_prompt(model, step)) for step in range(30)]
    assert all(torch.equal(before[name], value) for name, value in named.items())
    assert model.score([(1, 2, 3)], [[(4, 5)]]) == first
    assert measured[0]["explained_variance"] == 0.0
    assert measured[-1]["explained_variance"] > 0.2
    assert measured[-1]["value_loss"] < 0.7 * measured[0]["value_loss"]
    learner.update(known_by_prompt(model, 99))  # the warm-up is over
    assert any(not torch.equal(before[name], value) for name, value in named.items())
    save_trained(model, named, tmp_path)
    assert not list(tmp_path.glob("**/critic*"))


def test_critic_and_policy_continue_exactly() -> None:
    def run(stop: bool) -> dict[str, torch.Tensor]:
        model = tiny_model(hidden=32)
        learner = Learner(model, attach_lora(model, 2), PPO, Optimisation(learning_rate=1e-2), ROLE)
        for step in range(3):
            if stop and step == 2:
                state = learner.state()
                model = tiny_model(hidden=32)
                learner = Learner(model, attach_lora(model, 2, seed=5), PPO, Optimisation(learning_rate=1e-2), ROLE)
                learner.load(state)
            learner.update(sampled_groups(model, seed=step))
        assert learner.critic is not None
        return {**dict(model.network.state_dict()), **learner.critic.head.state_dict()}

    straight, resumed = run(False), run(True)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def test_a_truncated_answer_is_worth_what_its_end_is_worth_where_asked() -> None:
    model = tiny_model(hidden=32)
    objective = preset("ppo", advantage=Gae(0.95, scale=Whitened(), value_clip=0.2, bootstrap=True))
    learner = Learner(model, attach_lora(model, 2), objective, Optimisation(), ROLE)
    assert learner.critic is not None
    torch.nn.init.normal_(learner.critic.head.weight)
    rows = rows_of(sampled_groups(model), [ROLE], 0)
    batch = learner.critic.valued(rows, [MicroBatch(tuple(range(rows.batch.shape[0])))]).batch
    assert batch.bootstrap is not None
    assert any(rows.cut)
    last = {int(episode): row for row, episode in enumerate(batch.episode)}
    with torch.no_grad():
        _, ends = learner.critic.values(rows, list(last.values()))
    for end, (episode, row) in zip(ends, last.items(), strict=True):
        expected = end.float() if rows.cut[row] else torch.zeros(())
        torch.testing.assert_close(batch.bootstrap[batch.episode == episode][0].float(), expected, atol=1e-6, rtol=0)
