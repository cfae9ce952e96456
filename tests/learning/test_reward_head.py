"""A learned reward: preferences are learned, the policy does not notice, and scores become reward terms."""

from __future__ import annotations

import pytest
import torch

from keepworth.learning.objective import preset
from keepworth.learning.weights.heads import CriticSettings, RewardHead, RewardSettings
from keepworth.learning.weights.learner import Learner, Optimisation
from keepworth.models.adapter import attach_lora, unfreeze
from tests.learning.turns import ROLE, sampled_groups
from tests.models.tiny import tiny_model

GOOD = [tuple(f"question {number}: yes".encode()) for number in range(6)]
BAD = [tuple(f"question {number}: no no".encode()) for number in range(6)]


@pytest.mark.parametrize("lora", [True, False], ids=["adapter", "head alone"])
def test_preferences_are_learned_and_the_policy_does_not_move(lora: bool) -> None:
    model = tiny_model(hidden=32)
    named = attach_lora(model, 4) if lora else unfreeze(model)
    before = {name: value.detach().clone() for name, value in named.items()}
    scored = model.score([(1, 2, 3)], [[(4, 5)]])
    head = RewardHead(model, RewardSettings(learning_rate=2e-2))
    assert head.scores(GOOD[:2]) == [0.0, 0.0]
    measured = [head.prefer(list(zip(GOOD, BAD, strict=True))) for _ in range(25)]
    assert measured[0]["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert measured[-1]["loss"] < 0.3
    assert measured[-1]["accuracy"] == 1.0
    assert min(head.scores(GOOD)) > max(head.scores(BAD))
    assert all(torch.equal(before[name], value) for name, value in named.items())
    assert all(value.grad is None and value.requires_grad for value in named.values())
    assert model.score([(1, 2, 3)], [[(4, 5)]]) == scored


def test_scores_do_not_depend_on_company() -> None:
    model = tiny_model(hidden=32)
    attach_lora(model, 4)
    head = RewardHead(model)
    head.prefer([(GOOD[0], BAD[0])])
    together = head.scores([*GOOD, *BAD, tuple(b"a much longer text than all of the others, to be padded to")])
    alone = [head.scores([text])[0] for text in GOOD]
    assert together[: len(alone)] == pytest.approx(alone, abs=1e-5)


def test_a_learned_reward_trains_a_policy_beside_a_critic() -> None:
    model = tiny_model(hidden=32)
    named = attach_lora(model, 4)
    objective = preset("ppo")
    learner = Learner(model, named, objective, Optimisation(), ROLE, critic=CriticSettings(rank=2))
    head = RewardHead(model)
    head.prefer([(GOOD[0], BAD[0])])
    groups = head.rewarded(sampled_groups(model), weight=0.5)
    terms = [episode.rewards[-1] for group in groups for episode in group.episodes]
    assert {term.name for term in terms} == {"learned"}
    assert len({term.value for term in terms}) > 1
    assert learner.update(groups)["gradient_norm"] > 0
    with pytest.raises(ValueError, match="already has an adapter called 'reward'"):
        RewardHead(model)


def test_a_saved_head_scores_as_it_did() -> None:
    heads = []
    for seed in (0, 1):
        model = tiny_model(hidden=32)
        attach_lora(model, 4)
        heads.append(RewardHead(model, RewardSettings(seed=seed)))
    heads[0].prefer(list(zip(GOOD, BAD, strict=True)))
    heads[1].load(heads[0].state())
    assert heads[1].scores(GOOD) == heads[0].scores(GOOD)


def test_nothing_to_score_is_named() -> None:
    head = RewardHead(tiny_model(hidden=32))
    with pytest.raises(ValueError, match="no pair"):
        head.prefer([])
    with pytest.raises(ValueError, match="text 0 is empty"):
        head.scores([()])
