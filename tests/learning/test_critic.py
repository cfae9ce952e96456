"""The critic reads the right states, learns them, and cannot move the policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from keepworth.methods.objectives.archer import Utterance
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.records import Group, RewardTerm
from keepworth.training.critic import Critic, CriticSettings
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Gae, Whitened
from keepworth.training.objective.policy_loss import denominators
from keepworth.training.objective.presets import preset
from keepworth.training.passes import MicroBatch
from keepworth.training.rows import rows_of
from tests.learning.turns import ROLE, learner_of, same, sampled_groups
from tests.models.tiny import tiny_model, tiny_network


def test_values_are_those_of_the_states_before_each_token_and_behind_the_last() -> None:
    model = tiny_model(precision="fp64", hidden=32)
    rows = rows_of(sampled_groups(model), [ROLE], 0)
    critic = Critic(model, CriticSettings())
    torch.nn.init.normal_(critic.head.weight)
    chosen = [3, 0, 5]
    reading = critic.read(rows, chosen)
    values, ends = reading.states[0], reading.ends[0]
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
    objective = preset("ppo", advantage=Gae(0.95, scale=Whitened()))
    learner = learner_of(objective, 2 if adapter else 0, critic=CriticSettings(learning_rate=2e-2, warmup=30))
    model, named = learner.model, learner.master_weights.named
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


def test_truncated_answer_bootstraps_from_its_last_value() -> None:
    learner = learner_of(preset("ppo", advantage=Gae(0.95, scale=Whitened(), value_clip=0.2, bootstrap=True)), 2)
    critic: Any = learner.critic
    torch.nn.init.normal_(critic.head.weight)
    rows = rows_of(sampled_groups(learner.model), [ROLE], 0)
    batch: Any = critic.valued(rows, [MicroBatch(tuple(range(rows.batch.shape[0])))]).batch
    assert any(rows.cut)
    last = {int(episode): row for row, episode in enumerate(batch.episode)}
    with torch.no_grad():
        ends = critic.read(rows, list(last.values())).ends[0]
    for end, (episode, row) in zip(ends, last.items(), strict=True):
        expected = end.float() if rows.cut[row] else torch.zeros(())
        torch.testing.assert_close(batch.bootstrap[batch.episode == episode][0].float(), expected, atol=1e-6, rtol=0)


# Critics of turns and of utterances: what they read, what they are taught, and that they train the right way.

ARCHER = preset("archer")
BY_TURN = preset("ppo", kl=None, advantage=Gae(0.9, 0.9, Whitened(), level="turn", target_decay=1.0))


def test_values_of_utterances_are_read_behind_their_last_token_and_before_their_first() -> None:
    model = tiny_model(precision="fp64", hidden=32)
    rows = rows_of(sampled_groups(model), [ROLE], 0)
    critic: Any = Critic(model, CriticSettings(), advantage=Utterance())
    chosen = [3, 0, 5]
    reading = critic.read(rows, chosen)
    body = tiny_network(attn="sdpa", precision="fp64", hidden=32).get_decoder()
    step: Any = rows.batch.step
    for line, row in enumerate(chosen):
        ids = rows.contexts[row] + rows.answers[row]
        hidden = body(input_ids=torch.tensor([ids])).last_hidden_state[0]
        states, actions = critic.head(hidden).T, critic.action_head(hidden).T
        start = len(rows.contexts[row])
        for column in rows.batch.mask[row].nonzero().flatten().tolist():
            turn = (step[row] == step[row, column]).nonzero().flatten().tolist()
            before, behind = states[:, start + turn[0] - 1], actions[:, start + turn[-1]]
            torch.testing.assert_close(reading.states[:, line, column], before, atol=1e-8, rtol=0)
            torch.testing.assert_close(reading.actions[:, line, column], behind, atol=1e-8, rtol=0)
    assert not torch.allclose(reading.states[0], reading.states[1])  # twins differ, or their minimum would say nothing


def test_a_step_of_an_utterance_critic_by_hand() -> None:
    """At first the averages are the weights themselves: its loss is a mean over model calls of squared gaps to
    r + discount V(next) and to Q; after it the averages have gone a tenth of the way."""
    learner = learner_of(ARCHER, 2, precision="fp64")
    rows = rows_of(sampled_groups(learner.model), [ROLE], 0, merge=False)
    critic: Any = learner.critic
    batch: Any = rows.batch
    parts = [MicroBatch((0, 1, 2, 3)), MicroBatch(tuple(range(4, batch.shape[0])))]
    reading = critic.read(rows, range(batch.shape[0]))
    expected = 0.0
    for head in range(2):
        states, actions = reading.states[head, :, 0].tolist(), reading.actions[head, :, 0].tolist()
        for row in range(batch.shape[0]):  # a row is a model call, three an episode, in their order
            last = row % 3 == 2
            earned = [float(batch.steps.reward[row - row % 3 + k]) for k in range(3)]
            reward = float(batch.rewards[row]) - sum(earned[:2]) if last else earned[row % 3]
            target = reward + (0.0 if last else 0.95 * states[row + 1])
            expected += 0.5 * (actions[row] - target) ** 2 + 0.5 * (states[row] - actions[row]) ** 2
    start = {name: value.clone() for name, value in critic.state()["averages"].items()}
    learned = critic.teach(rows, parts, ARCHER, denominators(batch, ARCHER))
    assert learned["value_loss"] == pytest.approx(expected / batch.shape[0], rel=1e-5)
    for name, value in critic.state()["averages"].items():
        moved = critic.state()["master_weights"][name]
        torch.testing.assert_close(value, 0.9 * start[name] + 0.1 * moved)
        named = critic.master_weights.named[name].detach()
        assert torch.equal(named, moved.to(named.dtype))
    assert any(not torch.equal(start[name], value) for name, value in critic.state()["averages"].items())


def test_earlier_episodes_teach_an_utterance_critic_its_actions_alone() -> None:
    learner = learner_of(ARCHER, critic=CriticSettings(replay=16))
    critic: Any = learner.critic
    critic.remember(rows_of(sampled_groups(learner.model), [ROLE], 0, merge=False))
    states, actions = critic.head.weight.detach().clone(), critic.action_head.weight.detach().clone()
    critic.replay(learner.passes.split, ARCHER)
    assert torch.equal(critic.head.weight, states)
    assert not torch.equal(critic.action_head.weight, actions)


def test_a_replay_lets_go_of_the_oldest_and_is_large_enough_for_one_update() -> None:
    model = tiny_model(hidden=32)
    large, small = (learner_of(BY_TURN, critic=CriticSettings(replay=replay, warmup=9)) for replay in (17, 7))
    critic: Any = large.critic
    steps = []
    for seed in range(4):
        large.update(sampled_groups(model, seed=seed))  # an update has 8 episodes
        steps.append(critic.steps)
    assert (steps, len(critic.past)) == ([1, 3, 6, 9], 2)
    with pytest.raises(ValueError, match=r"replay = 7 holds less than the 8 episodes of one update.*Set it to as many"):
        small.update(sampled_groups(model))


def test_a_frozen_critic_gives_advice_as_it_is_and_has_learned_before() -> None:
    learner = learner_of(BY_TURN, 2, critic=CriticSettings(learning_rate=2e-2, warmup=2, frozen=True))
    model, critic = learner.model, cast(Any, learner.critic)
    for seed in range(2):
        assert learner.update(sampled_groups(model, seed=seed))["value_loss"] > 0
    warm = {name: value.clone() for name, value in critic.state()["master_weights"].items()}
    measured = learner.update(sampled_groups(model, seed=2))
    assert "value_loss" not in measured
    assert measured["gradient_norm"] > 0
    assert all(torch.equal(warm[name], value) for name, value in critic.state()["master_weights"].items())
    follower = learner_of(BY_TURN, 2, critic=CriticSettings(frozen=True))
    with pytest.raises(ValueError, match=r"The critic is frozen and has learned nothing.*Set warmup"):
        follower.update(sampled_groups(follower.model))
    cast(Any, follower.critic).load(critic.state())
    assert follower.update(sampled_groups(follower.model))["gradient_norm"] > 0


@pytest.mark.parametrize(("objective", "settings"), [
    (ARCHER, CriticSettings(replay=16)), (BY_TURN, CriticSettings(replay=16)),
    (BY_TURN, CriticSettings(warmup=2, frozen=True, replay=16)), (preset("duration"), CriticSettings()),
])  # fmt: skip
def test_a_run_that_goes_on_from_its_file_has_the_same_weights(
    objective: Objective, settings: CriticSettings, tmp_path: Path
) -> None:
    def run(stop: int) -> dict[str, torch.Tensor]:
        learner = learner_of(objective, 2, critic=settings)
        for step in range(4):
            if step == stop:
                torch.save(learner.state(), tmp_path / "state")
                model = tiny_model(hidden=32)
                fresh = attach_lora(model, 2, seed=5)
                learner = Learner(model, fresh, objective, Optimisation(), ROLE, critic=settings)
                learner.load(torch.load(tmp_path / "state", weights_only=True))
            learner.update(sampled_groups(learner.model, seed=step))
        critic: Any = learner.critic
        return learner.model.network.state_dict() | critic.state()["averages"] | critic.head.state_dict()

    straight = run(-1)
    for stop in (1, 3):
        assert same(straight, run(stop))
