"""Numbers outside their range are refused by name; inside it, every objective stays finite."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import fields
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.learning.objective.advantage import advantages, select
from keepworth.learning.objective.options import Objective, ObjectiveError, initial
from keepworth.learning.objective.parts import (
    PARTS,
    Advantage,
    Correction,
    Entropy,
    EntropyGate,
    EssControl,
    GroupStd,
    K3Mask,
    Kl,
    Outcome,
    OverlongPenalty,
    Selection,
    Surrogate,
    Teacher,
    Truncate,
)
from keepworth.learning.objective.policy_loss import denominators, loss
from keepworth.learning.objective.presets import preset, varied
from tests.learning.objective.toys import runnable, toy

READERS: dict[str, Objective] = {
    "length_budget": runnable(preset("dapo")),
    "local_weight": preset("memory_r2"),
    "adapter_decay": preset("t_spmo"),
}
INSIDE: dict[str, Any] = {
    "advantage_clamp": lambda value: 0 < value < math.inf,
    "length_budget": lambda value: value >= 1,
    "max_lag": lambda value: value >= 0,
    "local_weight": lambda value: 0 < value < math.inf,
    "adapter_decay": lambda value: 0 <= value < math.inf,
}
WHOLE = {"length_budget", "max_lag"}
FIELDS = st.sampled_from(sorted(INSIDE))


def with_value(field: str, value: float) -> Objective:
    return varied(READERS.get(field, preset("grpo")), **{field: value})


def test_every_number_of_an_objective_has_a_range() -> None:
    def leaves(kind: Any) -> set[Any]:
        return {kind}.union(*(leaves(each) for each in get_args(kind)))

    numbers = {name for name, info in Objective.model_fields.items() if leaves(info.annotation) & {int, float}}
    assert numbers == set(INSIDE)


@given(FIELDS, st.data())
def test_a_number_outside_its_range_is_refused_with_the_range(field: str, data: st.DataObject) -> None:
    numbers = st.integers(-5, 0) if field in WHOLE else st.floats() | st.floats(-3, 9)
    value = data.draw(numbers.filter(lambda number: not INSIDE[field](number)))
    with pytest.raises(ObjectiveError, match=re.escape(f"{field} = {value!r}: input should be ")):
        with_value(field, value)


@settings(max_examples=40)
@given(FIELDS, st.data())
def test_a_number_inside_its_range_keeps_every_loss_finite(field: str, data: st.DataObject) -> None:
    numbers = st.integers(0, 20) if field in WHOLE else st.floats(0, 8)
    value = data.draw(numbers.filter(INSIDE[field]))
    objective = None
    with contextlib.suppress(ObjectiveError):  # another rule speaks
        objective = runnable(with_value(field, value))
    if objective is not None:
        require_finite(objective)


POSITIVE = st.floats(0, 8, exclude_min=True)
NUMBERS_OF = {
    "Clip": (st.floats(0, 1), st.floats(0, 8)),
    "DualClip": (st.floats(0, 1), st.floats(0, 8), st.floats(1, 8, exclude_min=True)),
    "Cispo": (st.floats(0, 1), st.floats(0, 8)),
    "SoftGate": (st.floats(0.01, 8), st.floats(0.01, 8)),
    "Regression": (st.floats(0, 8, exclude_min=True),),
    "Truncate": (st.floats(1, 8), st.floats(0, 1)),
    **dict.fromkeys(("Mask", "SequenceMask", "GeometricMask"), (st.floats(0, 1), st.floats(1, 8))),
    "SequenceTruncate": (st.floats(1, 8),),
    **dict.fromkeys(("K2Mask", "K3Mask"), (st.floats(0, 8, exclude_min=True),)),
    "Veto": (st.floats(0, 1, exclude_min=True, exclude_max=True),),
    **dict.fromkeys(("KlReward", "EntropyBonus"), (POSITIVE,)),
    "KlLoss": (st.just("k3"), POSITIVE),
    "AdaptiveEntropy": (POSITIVE, POSITIVE, POSITIVE),
    "Teacher": (POSITIVE, st.just("wrong")),
    "EntropyGate": (st.floats(0, 1), st.floats(1, 8, exclude_min=True)),
    "FirstAndRandom": (st.integers(1, 5), st.floats(0, 1, exclude_max=True)),
    "TopEntropy": (st.floats(0, 1, exclude_min=True, exclude_max=True),),
    "OverlongPenalty": (st.floats(0, 1, exclude_min=True),),
    "GroupStd": (POSITIVE,),
    "RewardToGo": (st.floats(0, 1),),
    "Gae": (st.floats(0, 1), st.floats(0, 1)),
    "StepState": (st.floats(0.1, 8), st.floats(0, 8), st.floats(0, 1)),
    "StepIndex": (st.floats(0.1, 8), st.floats(0, 8), st.floats(0, 1)),
    "SoftValue": (POSITIVE,),
    "EssControl": (st.floats(0, 1, exclude_min=True), POSITIVE),
}
AXES = {
    "advantage": Advantage,
    "correction": Correction,
    "kl": Kl,
    "entropy": Entropy,
    "teacher": Teacher,
    "surrogate": Surrogate,
    "negatives": EntropyGate,
    "selection": Selection,
    "overlong": OverlongPenalty,
    "step_control": EssControl,
}
PRESET_OF = {"Regression": "a_star_po", "SoftValue": "a_star_po", "EssControl": "vcpo", "EntropyGate": "aepo"}


@settings(max_examples=40)
@given(st.sampled_from(sorted(NUMBERS_OF)), st.data())
def test_a_part_made_of_numbers_in_range_keeps_every_loss_finite(name: str, data: st.DataObject) -> None:
    made = PARTS[name](*(data.draw(each) for each in NUMBERS_OF[name]))
    made = Outcome("group", made) if isinstance(made, GroupStd) else made
    axis = next(axis for axis, kinds in AXES.items() if isinstance(made, kinds))
    require_finite(runnable(preset(PRESET_OF.get(name, "grpo"), **{axis: made})))


@given(st.sampled_from(sorted(NUMBERS_OF)), st.data())
def test_a_part_with_a_number_out_of_range_is_refused_with_its_name(name: str, data: st.DataObject) -> None:
    numbers = [data.draw(each) for each in NUMBERS_OF[name]]
    place = data.draw(st.sampled_from([place for place, each in enumerate(numbers) if not isinstance(each, str)]))
    field = fields(PARTS[name])[place].name
    numbers[place] = data.draw(
        st.floats(max_value=0, exclude_max=True) | st.sampled_from([math.nan, math.inf, -math.inf])
    )
    with pytest.raises(ObjectiveError, match=rf"{name}: {field} = "):
        PARTS[name](*numbers)


def require_finite(objective: Objective) -> None:
    world = toy()
    estimate = advantages(world.batch, objective)
    batch = select(world.batch, objective, estimate, initial(objective), torch.Generator().manual_seed(0))
    lp, entropy = world.forward()
    scalar, metrics = loss(objective, lp, entropy, estimate, batch, denominators(batch, objective), initial(objective))
    scalar.backward()
    assert math.isfinite(float(scalar.detach()))
    assert all(math.isfinite(number) for number in metrics.values())
    assert world.logits.grad is not None
    assert bool(torch.isfinite(world.logits.grad).all())


def test_gaps_have_a_bound_of_their_own() -> None:
    assert K3Mask(0.001).high == 0.001
    with pytest.raises(ObjectiveError, match=r"K3Mask: high = 0.0: input should be greater than 0"):
        K3Mask(0.0)
    with pytest.raises(ObjectiveError, match=r"Truncate: high = 0.5: input should be greater than or equal to 1"):
        Truncate(0.5)
