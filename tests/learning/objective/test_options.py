"""An option that cannot take effect is refused when the objective is made."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from keepworth.base.errors import UnknownName
from keepworth.methods.objectives.memory_r2 import DualClip
from keepworth.training.objective.advantage import advantages, select
from keepworth.training.objective.batch import Batch
from keepworth.training.objective.inputs import inputs, require_inputs
from keepworth.training.objective.options import Objective, ObjectiveError
from keepworth.training.objective.parts import PARTS, Clip, KlLoss, KlReward, Plain, read, signature
from keepworth.training.objective.policy_loss import denominators, loss
from keepworth.training.objective.presets import preset, presets, source_of, vary_objective
from tests.learning.objective.toys import runnable, toy

GRPO = preset("grpo", kl=None)


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"advantage": "Gae"}, "Gae: it needs trace_decay"),
    ({"advantage": "Gae(0.9, baseline=group)"}, "it takes no 'baseline'; it takes trace_decay, discount, scale"),
    ({"advantage": "episode"}, r"it takes Outcome\(baseline, scale\), Gae"),
    ({"advantage": "Outcome(grup)"}, "Outcome: baseline = 'grup': input should be 'group', 'leave_one_out'"),
    ({"ratio": "NoRatio", "surrogate": "Cispo(1.0, 4.0)"}, r"ratio=NoRatio\(\) gives it none"),
    ({"ratio": "Token(current)"}, "could never clip"),
    ({"ratio": "Token(behaviour)", "correction": "Truncate(2.0)"}, "count it twice"),
    ({"correction": Clip(0.2, 0.2)}, r"cannot stand here: it takes Mask\(low, high\), .*Truncate"),
    ({"advantage": "Outcome(group, discount=0.9)"}, "it takes no 'discount'"),
    ({"advantage": "RewardToGo(scale=GroupStd)"}, r"RewardToGo: scale = GroupStd\(\)"),
    ({"advantage": "OptimalBaseline(Whitened)"}, r"OptimalBaseline: scale = Whitened\(\)"),
    ({"advantage": "StepIndex(0, 0)"}, "both 0: nothing is learned from"),
    ({"advantage": "SoftValue(0.5)"}, "belong together"),
    ({"kl": "KlLoss(k1, 0.1)"}, "KlLoss: estimator = 'k1': input should be 'k2' or 'k3'"),
    ({"kl": "KlLoss(0.1)"}, "estimator = 0.1: input should be 'k2'.*it needs coefficient"),
    ({"kl": "KlReward(0.1, Clip(0.2, 0.2))"}, r"KlReward: reset = Clip\(0.2, 0.2\): input should be"),
    ({"kl": "KlReward(0.1)", "advantage": "PrefixTree"}, r"kl=KlReward\(0.1\) has no effect"),
    ({"kl": Clip(0.2, 0.2)}, r"cannot stand here: it takes KlReward\(coefficient, reset\), KlLoss"),
    ({"entropy": "bonus"}, r"there is no part 'bonus'.* it takes EntropyBonus\(coefficient\)"),
    ({"entropy": "EntropyBonus"}, "it needs coefficient"),
    ({"length_budget": 64}, "length_budget has no effect"),
    ({"overlong": "penalty"}, r"it takes OverlongMask\(\), OverlongPenalty\(buffer\) or none"),
    ({"overlong": "OverlongPenalty"}, "OverlongPenalty: it needs buffer"),
    ({"negatives": "EntropyGate(0.3, 0.2)"}, "EntropyGate: low = 0.3 must be below high = 0.2"),
    ({"selection": "tree_nodes"}, r"it takes FirstAndRandom\(first, probability\)"),
    ({"selection": "FirstAndRandom(1, 0.2)", "advantage": "PrefixTree"}, "selects its own tokens"),
    ({"selection": "FirstAndRandom(1, 0.2, weighted=True)"}, "it takes no 'weighted'; it takes first, probability"),
    ({"selection": "FirstAndRandom(0, 0.0)"}, "selects no token"),
    ({"selection": "FirstAndRandom(1, 1.0)"}, "probability = 1.0: input should be less than 1"),
    ({"step_control": "EssControl(1.0, 0.5)"}, "set a correction"),
    ({"teacher": "Teacher(0.1)"}, "it needs on"),
    ({"ratio": "Token(unit=episode)"}, "Token: it takes no .unit.; it takes anchor"),
    ({"anchor": "behaviour"}, "no option .anchor."),
    ({"ratio": "token"}, "did you mean .Token.*it takes NoRatio"),
    ({"ratio": "Sequence(unit=episode)", "aggregation_unit": "row"}, "aggregation_unit='episode'"),
    ({"advantage": "StepState(1, 1, scale=BatchStd)"}, r"StepState: scale = BatchStd\(\)"),
    ({"surrogate": "Regression(0.1)"}, "belong together"),
    ({"advantage": "Outcome(group, GroupStd(0.0))"}, r"GroupStd: epsilon = 0.0: input should be greater than 0"),
    ({"surrogate": 0.2}, r"0.2 cannot stand here: it takes Plain\(\), Clip\(low, high\)"),
    ({"negatives": "drop"}, "no part 'drop'; it takes EntropyGate"),
    ({"kl": "reset"}, "no part 'reset'; it takes KlReward"),
    ({"advantage": "Outcome(group, GrupStd())"}, "no part 'GrupStd', did you mean 'GroupStd'"),
    ({"correction": "Msk(0.5, 5.0)"}, "no part 'Msk', did you mean 'Mask'"),
    ({"kl": ["KlReward(0.1)"]}, r"\['KlReward\(0.1\)'\] cannot stand here: it takes KlReward"),
])  # fmt: skip
def test_combinations_that_cannot_take_effect(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ObjectiveError, match=complaint):
        vary_objective(GRPO, **changes)


@pytest.mark.parametrize(("text", "complaint"), [
    ("Clip(-0.1, 0.2)", r"Clip: low = -0.1: input should be greater than or equal to 0"),
    ("Clip(0.2)", "Clip: it needs high"),
    ("Clip(0.2, 0.2, hihg=3)", "it takes no 'hihg'; it takes low, high"),
    ("DualClip(0.2, 0.2, 1.0)", "DualClip: bound = 1.0: input should be greater than 1"),
    ("Clip(1, float('nan'))", "no part of an objective 'float'"),
    ("Clip(1, 2 ** 9)", "is not a part of an objective. Write it as Clip"),
    ("Regression('x')", "Regression: coefficient = 'x': input should be a valid number"),
    ("Clip(0.2", "is not a part of an objective"),
    ("Clip(*(0.2, 0.2))", "is not a part of an objective"),
    ("Clip(0.2, 0.2, 0.2)", "Clip: it takes low, high.$"),
    ("Outcome(group, GroupStd, 3, 4)", "it takes baseline, scale"),
    ("OverlongPenalty(0.1, 0.2)", "OverlongPenalty: it takes buffer.$"),
    ("Plain(0.1)", "Plain: it takes no values.$"),
    ("Outcome(group, Mixed)", r"Outcome: scale = Mixed\(\): input should be an instance of Scale"),
    ("(" * 5000 + ")" * 5000, "is not a part of an objective"),
    ("Clip" + "[0]" * 3, "is not a part of an objective"),
    ("__import__('os')", "no part of an objective '__import__'"),
])  # fmt: skip
def test_a_part_that_cannot_be_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises((ObjectiveError, UnknownName), match=complaint):
        read(text)


OURS = ("keepworth.training.", "keepworth.methods.objectives.")
"""Where parts are that every objective may have; recipes declare some of their own."""


WRITTEN = [
    "Clip(0.2, 0.28)", "DualClip(0.2, 0.2, 3.0)", "Cispo(1.0, 4.0)", "Regression(0.1)", "Plain()", "Truncate(2.0)",
    "Mask(0.5, 5.0)", "SequenceTruncate(8.0, 'episode')", "Reset(0.1, 5)", "KlReward(0.1, Reset(0.1, 5))", "KlLoss('k3', 0.1)",
    "EntropyBonus(0.1)", "EntropyGate(0.1, 0.2)", "FirstAndRandom(2, 0.5)", "OverlongPenalty(0.2)", "OverlongMask()", "Mixed()",
    "EssControl(1.0, 0.5)", "Outcome('group', GroupStd(0.0001))", "OptimalBaseline(GroupStd())", "GroupStd()", "BatchStd()",
    "RewardToGo(0.9, Whitened())", "Gae(0.95, bootstrap=True)", "StepState(1.0, 1.0)", "StepIndex(0.0, 1.0, 0.0)", "PrefixTree()",
    "SoftValue(0.5)", "NoRatio('proximal')", "Token()", "Sequence('behaviour', 'episode')", "TaskStd()", "Whitened(0.1)",
    "Anneal(0.1, 7)", "Teacher(0.1, 'wrong', Anneal(0.0, 7))", "Utterance()", "Duration(90.0)", "Spurious(0.25, GroupStd())",
]  # fmt: skip
"""A part of every kind."""


def test_parts_are_read_as_they_are_written() -> None:
    made = [read(text) for text in WRITTEN]
    assert [read(repr(part)) for part in made] == made
    assert {type(part) for part in made} == {kind for kind in PARTS.values() if kind.__module__.startswith(OURS)}
    assert made[:2] == [Clip(0.2, 0.28), DualClip(0.2, 0.2, 3)]
    assert (repr(made[0]), read("Plain"), read("Clip(low=0.2, high=0.28)")) == (WRITTEN[0], Plain(), made[0])
    assert (read("KlLoss(k3, 0.1)"), read("KlReward(0.1, none)")) == (KlLoss("k3", 0.1), KlReward(0.1))
    assert read("none") is None


def test_every_part_is_described_and_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
    for kind in (value for value in PARTS.values() if value.__module__.startswith(OURS)):
        named = set(re.findall(r"`(\w+)`", str(inspect.getdoc(kind))))
        assert named <= {field.name for field in fields(kind)}, kind
        assert f"`{signature(kind)}`" in page, kind


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'surrogate'"):
        Objective.model_validate({"surogate": "clip"})
    with pytest.raises(ObjectiveError, match=r"no part 'clp', did you mean 'Clip'.*Asked for: surrogate='clp'"):
        preset("grpo", surrogate="clp")
    with pytest.raises(UnknownName, match="'gspo'"):
        source_of("gsppo")


def test_objectives_survive_a_round_trip_through_json() -> None:
    for objective in presets().values():
        assert Objective.model_validate_json(objective.model_dump_json()) == objective


def test_configuration_does_not_load_torch() -> None:
    code = (
        "import sys; from keepworth.training.objective.inputs import inputs\n"
        "from keepworth.training.objective.presets import presets; from keepworth.training.objective.options import initial\n"
        "[inputs(objective) for objective in presets().values()]; initial(presets()['grpo'])\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_objective_inputs_are_known_before_a_run() -> None:
    assert inputs(preset("reinforce")) == ()
    assert inputs(GRPO) == ("lp_proximal",)
    assert inputs(preset("ppo")) == ("lp_proximal", "values", "critic", "lp_reference")
    assert inputs(preset("vcpo")) == ("lp_proximal", "score_norm", "learning_rate_scale", "whole_episodes")
    assert inputs(preset("dapo")) == ("lp_proximal", "group_filter", "length_budget")
    assert "length_budget" not in inputs(preset("dapo", length_budget=64))
    require_inputs(GRPO, {}, "the learner")
    with pytest.raises(ObjectiveError, match="'kdrl' needs lp_teacher, which the learner does not provide"):
        require_inputs(preset("kdrl"), {"lp_teacher": False}, "the learner")


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_batch_with_exactly_the_named_inputs_is_enough(name: str) -> None:
    world, objective = toy(), runnable(preset(name))
    always = {"mask", "lp_behaviour", "rewards", "group", "episode"}
    wanted = always | set(inputs(objective)) | ({"step"} if "steps" in inputs(objective) else set())
    bare = replace(world.batch, **{field.name: None for field in fields(Batch) if field.name not in wanted | {"ids"}})
    estimate = advantages(bare, objective)
    chosen = select(bare, objective, estimate, generator=torch.Generator().manual_seed(0))
    lp, entropy = world.forward()
    value, _ = loss(objective, lp, entropy, estimate, chosen, denominators(chosen, objective))
    assert torch.isfinite(value)
    zero = torch.zeros_like(estimate)
    value, _ = loss(objective, lp, entropy, zero, chosen, denominators(chosen, objective))
    if value.requires_grad:
        (grad,) = torch.autograd.grad(value, world.logits, allow_unused=True)
        assert bool(grad is not None and grad.any()) == objective.reads_every_row
