"""A group that does not fit into one pass is split, and nothing changes: gradients, and what is logged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes import FinishReason, Group, Sample, VersionSpan
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import EntropyBonus, Sequence
from keepworth.learning.objective.presets import preset
from keepworth.models.adapter import unfreeze
from keepworth.recipes.settings import GROUP_RELATIVE
from tests.learning.test_learner import group
from tests.learning.turns import ROLE, sampled_groups
from tests.models.tiny import tiny_model

OBJECTIVES: dict[str, Objective] = {
    "group_relative": GROUP_RELATIVE,
    "grpo": preset("grpo"),
    "gspo": preset("gspo", kl=None),
    "ppo": preset("ppo"),
    "vcpo": preset("vcpo"),
    "entropy": preset("rloo", entropy=EntropyBonus(0.01)),
    "episodes": preset("grpo", ratio=Sequence("proximal", unit="episode"), aggregation_unit="episode"),
}


def learned(
    objective: Objective, groups: list[Group], role: str, **how: Any
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """The gradient of the step, before it is taken, and what was logged."""
    model = tiny_model(precision="fp64", hidden=32)
    learner = Learner(model, unfreeze(model), objective, Optimisation(max_norm=1e9, **how), role)
    learner.model.version = 1
    taken: dict[str, torch.Tensor] = {}
    step = learner.master_weights.step

    def watched(*given: float) -> float:
        taken.update({name: value.grad.clone() for name, value in learner.master_weights.named.items()})
        return step(*given)

    learner.master_weights.step = watched  # type: ignore[method-assign]
    measured = learner.update(groups)
    return taken, {name: value for name, value in measured.items() if "seconds" not in name}


def require_equal(objective: Objective, groups: list[Group], role: str, budget: int) -> None:
    whole, measured = learned(objective, groups, role, token_budget=8192, checkpointing="off")
    assert whole
    for how in ("off", "auto", "on"):
        parts, also = learned(objective, groups, role, token_budget=budget, checkpointing=how)
        for name, value in whole.items():
            torch.testing.assert_close(parts[name], value, atol=1e-10, rtol=0)
        assert also == pytest.approx(measured, abs=1e-6), how


def written(prompt: bytes, lengths: list[int], seed: int) -> Group:
    generator = torch.Generator().manual_seed(seed)
    samples, rewards = [], []
    for number, length in enumerate(lengths):
        ids = tuple(torch.randint(1, 256, (length,), generator=generator).tolist())
        logprobs = tuple((-5 - torch.rand(length, generator=generator)).tolist())
        samples.append(Sample(ids, logprobs, FinishReason.LENGTH, (VersionSpan(1, 0, length),)))
        rewards.append(float(number % 3))
    return group(seed, tuple(prompt), samples, rewards)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_split_step_is_the_whole_step(name: str) -> None:
    require_equal(OBJECTIVES[name], sampled_groups(tiny_model(precision="fp64", hidden=32)), ROLE, 32)


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 50), min_size=2, max_size=6), min_size=1, max_size=2),
    st.sampled_from(["group_relative", "gspo", "episodes"]),
    st.integers(80, 200),
)
def test_ragged_branches_may_be_split_anywhere(lengths: list[list[int]], name: str, budget: int) -> None:
    groups = [written(b"a prompt" * (1 + number), own, number) for number, own in enumerate(lengths)]
    require_equal(OBJECTIVES[name], groups, "speaker", budget)


def test_imitation_is_split_as_well() -> None:
    pairs = [(tuple(b"a prompt"), tuple(range(1, length))) for length in (3, 30, 14, 22)] + [(tuple(b"b"), (5, 6))]

    def weights(**how: Any) -> list[torch.Tensor]:
        model = tiny_model(precision="fp64", hidden=32)
        Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(**how), ROLE).imitate(pairs)
        return [value.detach() for value in model.network.parameters()]

    whole = weights(token_budget=4096)
    for how in ("off", "on"):
        for one, other in zip(weights(token_budget=48, checkpointing=how), whole, strict=True):
            torch.testing.assert_close(one, other, atol=1e-8, rtol=0)
