"""Every preset through the learner, on episodes of several rows: two optimiser steps against a plain computation.

The other side runs the network as transformers does, one sequence at a time, without trees, micro-batches or skipped
rows, and takes the loss of the whole batch at once. The losses themselves are checked against closed forms in
tests/learning/objective.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from keepworth.methods.objectives.vcpo import OptimalBaseline
from keepworth.training.critic import Critic
from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.options import Objective, initial
from keepworth.training.objective.policy_loss import denominators, loss
from keepworth.training.objective.presets import presets
from keepworth.training.rows import Rows, rows_of
from tests.learning import turns
from tests.learning.turns import ROLE, VALUES, descend_plainly, learner_of, objective_of, sampled_groups
from tests.models.tiny import tiny_model, tiny_network

RATE = 0.05


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    return sampled_groups(tiny_model(precision="fp64", hidden=32))


def prepared(name: str) -> Objective:
    objective = objective_of(name)
    return objective if name != "t_spmo" else objective.model_copy(update={"adapter_decay": 0.0})


def extras(objective: Objective, precision: Any = "fp64") -> dict[str, Any]:
    teacher = tiny_model(seed=5, precision=precision, hidden=32) if objective.teacher is not None else None
    return {"teacher": teacher, "soft_values": VALUES if objective.needs_soft_values else None}


def plain_scores(network: Any, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies [B,T], one sequence at a time."""
    lps, entropies = [], []
    for row, (context, answer) in enumerate(zip(rows.contexts, rows.answers, strict=True)):
        logits = network(input_ids=torch.tensor([context + answer])).logits[0, len(context) - 1 : -1]
        table = torch.log_softmax(logits, -1)
        pad = (0, rows.batch.shape[1] - len(answer))
        drawn = rows.batch.mask[row]
        lps.append(torch.nn.functional.pad(table.gather(1, torch.tensor(answer)[:, None])[:, 0], pad) * drawn)
        entropies.append(torch.nn.functional.pad(-(table.exp() * table).sum(-1), pad) * drawn)
    return torch.stack(lps), torch.stack(entropies)


@pytest.mark.parametrize("name", [*sorted(presets()), turns.WHOLE])
def test_steps_equal_the_plain_computation(name: str, groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two on the same episodes; one for an objective without a ratio, which takes no second. Groups are split: no pass holds
    more than 48 tokens, or what is kept of them where layers are recomputed."""
    objective = prepared(name)
    passes, again = (2 if objective.takes_passes else 1), "on" if len(name) % 2 else "off"
    how = {"max_norm": 1e9, "token_budget": 48, "passes": passes, "checkpointing": again, **extras(objective)}
    learner = learner_of(objective, precision="fp64", **how)
    descend_plainly(learner, RATE)
    advice: list[Rows] = []
    valued = Critic.valued

    def keep(self: Critic, *given: Any) -> Rows:
        advice.append(valued(self, *given))
        return advice[-1]

    monkeypatch.setattr(Critic, "valued", keep)
    assert learner.update(groups)["trained_rows"] > 0

    plain = tiny_network(attn="sdpa", precision="fp64", hidden=32)
    trained = {n: value.requires_grad_(True) for n, value in plain.named_parameters() if "embed" not in n}
    rows = rows_of(groups, [ROLE], 0, merge=objective.aggregation_unit == "episode")
    first, _ = plain_scores(plain, rows)
    batch = replace(rows.batch, lp_proximal=first.detach())
    if objective.needs_reference:  # at the first update the policy is its own reference
        batch = replace(batch, lp_reference=first.detach())
    if objective.teacher is not None:
        other = tiny_network(seed=5, attn="sdpa", precision="fp64", hidden=32)
        batch = replace(batch, lp_teacher=plain_scores(other, rows)[0])
    if objective.needs_soft_values:
        batch = replace(batch, soft_value=torch.tensor([VALUES[task] for task in rows.tasks], dtype=torch.float64))
    if learner.critic is not None and learner.critic.advantage.leads:  # its advice is checked in test_critic.py
        batch = replace(batch, values=advice[0].batch.values, action_values=advice[0].batch.action_values)
    elif advice:  # it starts at zero
        batch = replace(batch, values=torch.zeros(batch.shape, dtype=torch.float64))
    if isinstance(objective.advantage, OptimalBaseline):
        norms = torch.zeros(batch.shape[0], dtype=torch.float64)
        for number in batch.episode.unique():
            own = batch.episode == number
            score = torch.autograd.grad(first[own].sum(), list(trained.values()), retain_graph=True)
            norms[own] = torch.cat([g.flatten() for g in score]).norm()
        batch = replace(batch, score_norm=norms)
    estimate = advantages(batch, objective)
    controls = initial(objective)
    if objective.needs_selection:
        batch = select(batch, objective, estimate, controls, torch.Generator().manual_seed(0))
    for _ in range(passes):
        lp, entropy = plain_scores(plain, rows)
        value, _ = loss(objective, lp, entropy, estimate, batch, denominators(batch, objective), controls)
        gradients = torch.autograd.grad(value, list(trained.values()))
        with torch.no_grad():
            for parameter, gradient in zip(trained.values(), gradients, strict=True):
                parameter -= RATE * gradient
    moved = 0.0
    start = dict(tiny_network(precision="fp64", hidden=32).named_parameters())
    for n, ours in learner.model.network.named_parameters():
        if n in trained:
            # Behaviour log-probabilities and batches are float32: hence not closer.
            torch.testing.assert_close(ours.detach(), trained[n].detach(), atol=3e-7, rtol=1e-5)
            moved = max(moved, float((ours - start[n]).abs().max()))
    assert moved > 1e-4


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_trains_an_adapter_in_single_precision(name: str) -> None:
    objective = objective_of(name)
    learner = learner_of(objective, 2, **extras(objective, "fp32"))
    before = turns.weights(learner)
    metrics = learner.update(sampled_groups(learner.model))
    assert metrics["mismatch_max"] < 1e-5  # recomputed log-probabilities are the sampled ones
    assert all(torch.isfinite(torch.tensor(value)) for value in metrics.values())
    assert not turns.same(before, turns.weights(learner))
    assert all(value.grad is None for value in learner.model.network.parameters())


@pytest.mark.parametrize("name", ["grpo", "rloo", "dapo", "vcpo", "gigpo", "ppo"])
def test_the_order_of_groups_and_of_their_members_does_not_matter(name: str, groups: list[Any]) -> None:
    straight, other = (learner_of(prepared(name), precision="fp64", max_norm=1e9) for _ in range(2))
    straight.update(groups)
    other.update([replace(group, episodes=group.episodes[::-1]) for group in groups[::-1]])
    mine, theirs = (learner.model.network.state_dict() for learner in (straight, other))
    torch.testing.assert_close(mine, theirs, atol=1e-8, rtol=0)
