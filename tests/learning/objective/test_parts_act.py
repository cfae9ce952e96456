"""Every value of every part changes something: what is computed, which tokens and groups count, or the next step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from keepworth.methods.objectives.a_star_po import soft_value
from keepworth.methods.recipes import openclaw_rl
from keepworth.training.objective.advantage import advantages, rejection, select, value_targets
from keepworth.training.objective.options import Controls, Objective, ObjectiveError, advance, initial
from keepworth.training.objective.parts import PARTS
from keepworth.training.objective.policy_loss import denominators, loss, value_loss
from keepworth.training.objective.presets import preset, vary_objective
from tests.learning.objective.toys import runnable, toy

GRPO = preset("grpo", kl=None)
OF_GRPO: dict[str, tuple[str, ...]] = {
    "advantage": (
        "Outcome(group, TaskStd)", "Outcome(batch, BatchStd)", "Outcome(group)", "RewardToGo(0.9, Whitened)", "PrefixTree",
        openclaw_rl.NextState.__name__, "StepState(1.0, 1.0, 0.9, GroupStd)", "StepIndex(1.0, 1.0, 0.9, GroupStd)",
    ),
    "ratio": ("Sequence(behaviour, episode)",),
    "surrogate": ("DualClip(0.1, 0.1, 1.2)", "Cispo(0.1, 0.1)", "Plain"),
    "correction": ("Mask(0.9, 1.1)", "Truncate(1.1)", "SequenceTruncate(1.1)"),
    "teacher": ("Teacher(0.1, wrong, Anneal(0.01, 4))",),
}  # fmt: skip
OBJECTIVES = (
    *(vary_objective(GRPO, **{axis: part}) for axis, parts in OF_GRPO.items() for part in parts),
    *map(preset, ("vcpo", "spurious", "a_star_po", "aepo", "dapo")),
    preset("ppo", advantage="Gae(0.9, 0.9, Whitened, value_clip=0.1, bootstrap=True)"),
    preset("ppo", advantage="Gae(0.9, 0.9, value_clip=0.1, level=turn, target_decay=0.5)"),
    preset("prorl", overlong="OverlongMask"),
    preset("reinforce_pp", entropy="EntropyBonus(0.1)", kl="KlReward(0.1, Reset(0.1, 5))"),
    preset("s_grpo", selection="FirstAndRandom(1, 0.5)"),
)
"""Together they hold every part; where a part needs another to act, beside it."""


def others(kind: Any, value: Any) -> Iterator[Any]:
    """Other values that a field of this type could hold."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        words = [arg for option in (kind, *get_args(kind)) if get_origin(option) is Literal for arg in get_args(option)]
        yield from (word for word in words if word != value)
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, float):
        yield from (value * 0.5, value * 1.5, value + 0.4, value - 0.1)


def changed(part: Any) -> Iterator[tuple[str, Any]]:
    """(its name, the part with one other value), for each value of the part and of the parts in it."""
    kinds = get_type_hints(type(part))
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            for name, inner in changed(value):
                yield name, replace(part, **{field.name: inner})
        for other in (None,) if is_dataclass(value) else others(kinds[field.name], value):
            try:
                yield f"{type(part).__name__}.{field.name}", replace(part, **{field.name: other})
            except ObjectiveError:
                continue  # out of range


def variants(objective: Objective) -> Iterator[tuple[str, Objective]]:
    for axis in Objective.model_fields:
        value = getattr(objective, axis)
        for name, other in changed(value) if type(value) in PARTS.values() else ():
            try:
                yield name, vary_objective(objective, **{axis: other})
            except ObjectiveError:
                continue  # another rule speaks


def outcome(objective: Objective) -> list[torch.Tensor]:
    """Everything that an update and the step after it take from the objective."""
    world = toy(lag=0.6)
    batch = replace(world.batch, bootstrap=torch.full((world.batch.shape[0],), 0.3, dtype=torch.float64))
    if objective.needs_critic and not getattr(objective.advantage, "bootstrap", False):
        batch = replace(batch, bootstrap=None)  # as the learner does
    temperature = getattr(objective.advantage, "temperature", 1.0)
    batch = replace(batch, soft_value=soft_value(batch.rewards, temperature).expand(len(batch.rewards)))
    estimate = advantages(batch, objective)
    batch = select(batch, objective, estimate, Controls(positives_only=True), torch.Generator().manual_seed(0))
    lp, entropy = world.forward()
    shared = denominators(batch, objective)
    scalar, _ = loss(objective, lp, entropy, estimate, batch, shared, initial(objective))
    (gradient,) = torch.autograd.grad(scalar, world.logits)
    found = [scalar.detach(), gradient, estimate]
    if objective.needs_critic:
        assert batch.values is not None
        found.append(value_loss(batch.values + 0.3, batch.values + 1.0, batch, objective, shared))
        found.append(value_targets(batch, objective))
    controls, steered = initial(objective), []
    for measured in (0.1, 0.2, 0.5, 0.9, 0.22, 0.12, 0.7, 0.3, *[0.0] * 12):
        controls = advance(controls, objective, entropy=measured, kl=measured / 4, validation=-measured)
        steered += [controls.positives_only, controls.reset, controls.teacher_coefficient]
    scores = {1: [1.0, 0.0], 2: [0.5, 0.5], 3: [0.5, 0.7], 4: [0.1, 0.6], 5: [1.0]}
    control = objective.step_control
    rates = [1.0 if control is None else control.scale(share) for share in (0.2, 0.7)]
    trained = [group for group, values in scores.items() if not rejection(values, objective)]
    numbers = [*map(float, steered), *map(float, trained), *rates]
    return [*found, torch.tensor(numbers, dtype=torch.float64)]


def differs(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_value_of_every_part_acts() -> None:
    acts: dict[str, bool] = {}
    for each in OBJECTIVES:
        objective = runnable(each)
        plain = outcome(objective)
        for name, other in variants(objective):
            if not acts.get(name):
                acts[name] = differs(plain, outcome(runnable(other)))
    assert {name for name, found in acts.items() if not found} == set()
    elsewhere = ("Utterance", "Duration")  # tests of their own methods
    ours = {
        name: kind for name, kind in PARTS.items() if kind.__module__.startswith("keepworth.") and name not in elsewhere
    }
    every = {f"{name}.{field.name}" for name, kind in ours.items() for field in fields(kind)}
    lacking = sorted(every - set(acts))
    assert not lacking, f"no objective of OBJECTIVES, above in this file, holds {lacking}: add one that does"
    assert every == set(acts)
