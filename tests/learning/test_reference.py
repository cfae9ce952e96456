"""The reference stays where it was put, and becomes the policy when it is told to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from keepworth.base.errors import KeepworthError
from keepworth.methods.objectives.a_star_po import reference_values
from keepworth.methods.objectives.kdrl import Teacher
from keepworth.models.inprocess import InProcessModel
from keepworth.training.objective.parts import KlLoss, Reset
from keepworth.training.objective.presets import preset
from keepworth.training.passes import row_scores
from keepworth.training.reference import Reference
from keepworth.training.rows import rows_of
from tests.learning.turns import ROLE, learner_of, same, sampled_groups
from tests.models.tiny import ByteTokenizer, tiny_model


@pytest.mark.parametrize("adapter", [True, False])
def test_frozen_reference_stays_at_the_start(adapter: bool) -> None:
    learner = learner_of(preset("grpo"), 2 if adapter else 0, learning_rate=1e-2)
    model, named = learner.model, learner.master_weights.named
    groups = sampled_groups(model)
    rows = rows_of(groups, [ROLE], 0)
    first, _ = learner.passes.scores(rows, 1.0)
    for _ in range(3):
        learner.update(groups)
    assert learner.reference is not None
    kept = {name: value.detach().clone() for name, value in named.items()}
    with learner.reference.active(), torch.no_grad():
        lp, _ = row_scores(model, rows, list(range(len(rows.contexts))), 1.0)
    torch.testing.assert_close(lp, first, atol=1e-5, rtol=0)
    assert all(torch.equal(kept[name], value) for name, value in named.items())
    now, _ = learner.passes.scores(rows, 1.0)
    assert (now - first).abs().max() > 1e-3
    assert learner.update(groups)["reference_kl"] > 0


def test_a_reset_makes_the_policy_the_reference_and_forgets_the_moments() -> None:
    objective = preset("prorl", kl=KlLoss("k2", 1e-4, Reset(kl=1e-7, patience=5)))
    learner = learner_of(objective, 2, learning_rate=1e-2)
    groups = sampled_groups(learner.model)
    assert isinstance(learner.reference, Reference)
    assert learner.update(groups)["reference_kl"] == pytest.approx(0.0, abs=1e-9)
    assert learner.master_weights.optimiser.state
    assert learner.update(groups)["reference_kl"] > 1e-7
    assert learner.controls.reset
    assert not learner.master_weights.optimiser.state
    assert same(learner.reference.state(), learner.master_weights.named)
    assert learner.state()["reference"]


def test_a_teacher_must_read_the_same_tokens() -> None:
    class Shifted(ByteTokenizer):
        def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
            return {"input_ids": [(byte + 1) % 256 for byte in text.encode()]}

    teacher = InProcessModel(tiny_model(seed=1, hidden=32).network, Shifted(), "teacher")
    with pytest.raises(KeepworthError, match="cannot score"):
        learner_of(preset("kdrl"), teacher=teacher)


def test_a_teacher_pulls_the_student_towards_it() -> None:
    objective = preset("kdrl", teacher=Teacher(1.0, "all"))
    learner = learner_of(objective, teacher=tiny_model(seed=1, hidden=32), learning_rate=1e-2)
    groups = sampled_groups(learner.model)
    flat = [replace(g, episodes=tuple(replace(e, rewards=()) for e in g.episodes)) for g in groups]
    losses = [learner.update(flat)["teacher_loss"] for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]


def test_values_under_the_reference_by_hand() -> None:
    groups = sampled_groups(tiny_model(hidden=32))
    bare = [replace(g, episodes=tuple(replace(e, rewards=e.rewards[:1]) for e in g.episodes)) for g in groups]
    values = reference_values(bare, preset("a_star_po"))
    # 0.5 * log((e^2 + 1 + e^1 + 1) / 4) and 0.5 * log((e^2 + 3) / 4)
    assert values == pytest.approx({"kind0/0": 0.5538, "kind1/1": 0.4773}, abs=1e-4)
    with pytest.raises(ValueError, match="no SoftValue"):
        reference_values(groups, preset("grpo"))
