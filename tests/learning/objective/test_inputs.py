"""What an objective needs of a run is asked for by name before the run begins, and what could change nothing is refused."""

from __future__ import annotations

import warnings

import pytest
import torch

from keepworth.methods.objectives.memory_r2 import DualClip
from keepworth.methods.recipes.overwrite_reading import MULTI_CONVERSATION
from keepworth.training.learner import Optimisation
from keepworth.training.objective.inputs import episode_inputs, idle_clip, require_episodes, require_off_policy
from keepworth.training.objective.options import Objective, ObjectiveError
from keepworth.training.objective.parts import Clip, Plain, Token
from keepworth.training.objective.presets import preset, presets, vary_objective
from keepworth.training.settings import GROUP_RELATIVE
from tests.learning.test_learner import groups_of
from tests.learning.turns import learner_of
from tests.models.tiny import tiny_model

WITHOUT_RATIO = {"reinforce", "rloo", "vcpo", "aepo", "archer"}
CORRECTED = {"areal", "tis", "icepop", "vcpo"}
WITHOUT_CLIP = {*WITHOUT_RATIO, "a_star_po"}


@pytest.mark.parametrize("name", sorted(presets()))
def test_more_passes_need_a_ratio_and_stale_tokens_a_correction(name: str) -> None:
    """Eight steps of the score function on the same tokens raised a ratio to 842, unclipped and unsaid."""
    if name in WITHOUT_RATIO:
        with pytest.raises(ObjectiveError, match=rf"passes = 2 with objective '{name}': it has no ratio"):
            require_off_policy(preset(name), 2)
    else:
        require_off_policy(preset(name), 8)
    if name in CORRECTED:
        require_off_policy(preset(name), 1, max_staleness=4)
    else:
        with pytest.raises(ObjectiveError, match=rf"objective '{name}' takes tokens as drawn .* 4 updates old"):
            require_off_policy(preset(name), 1, max_staleness=4)


def test_the_recipes_own_objectives_take_both() -> None:
    for objective in (GROUP_RELATIVE, MULTI_CONVERSATION):
        require_off_policy(objective, 4, max_staleness=2)
    require_off_policy(vary_objective(preset("grpo"), kl=None, ratio=Token("behaviour")), 4, max_staleness=2)


def test_minibatches_are_steps_of_an_update_too() -> None:
    with pytest.raises(
        ObjectiveError, match=r"minibatches = 2 with objective 'rloo': it has no ratio.*Set minibatches = 1"
    ):
        learner_of(preset("rloo"), minibatches=2)
    with pytest.raises(ObjectiveError, match=r"passes = 3 and minibatches = 2 with objective 'rloo'"):
        require_off_policy(preset("rloo"), 3, 2)
    assert idle_clip(preset("grpo"), 1, 1)
    assert not idle_clip(preset("grpo"), 1, 2)


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "cispo", "lite_ppo", "tis"])
def test_a_clip_acts_from_the_second_pass_on_and_before_that_it_is_said(name: str) -> None:
    """Weights with and without the clip: equal with one pass, whatever policy the sampler was."""
    objective = preset(name)
    objective = vary_objective(objective, kl=None) if objective.needs_reference else objective
    objective = vary_objective(objective, length_budget=8) if objective.needs_length_budget else objective
    bare = vary_objective(objective, name="bare", surrogate=Plain())
    behind = groups_of(tiny_model(seed=3, precision="fp64"))  # another policy sampled these

    def weights(of: Objective, passes: int, minibatches: int = 1) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            how = {"passes": passes, "minibatches": minibatches}
            learner = learner_of(of, precision="fp64", learning_rate=3e-3, **how)
        for _ in range(2):
            learner.update(behind)
        return torch.cat([value.detach().flatten() for value in learner.master_weights.named.values()])

    assert (weights(objective, 1) - weights(bare, 1)).abs().max() < 1e-12
    assert (weights(objective, 4) - weights(bare, 4)).abs().max() > 1e-6
    assert (weights(objective, 2, 2) - weights(bare, 2, 2)).abs().max() > 1e-6
    with pytest.warns(UserWarning, match=rf"{name}: .*changes nothing with passes = 1 and minibatches = 1"):
        learner_of(objective)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner_of(objective, passes=2)


def test_every_preset_with_a_clip_is_warned_of_and_no_other() -> None:
    assert {name for name in presets() if not idle_clip(preset(name), 1)} == WITHOUT_CLIP
    assert not any(idle_clip(objective, 2) for objective in presets().values())


def test_a_clip_of_one_s_own_that_cannot_act_is_an_error() -> None:
    for objective in (
        preset("grpo", surrogate=Clip(0.2, 0.28)),
        vary_objective(preset("areal"), name="mine"),
        preset("memory_r2", surrogate=DualClip(0.2, 0.2, 2.0)),
    ):
        with pytest.raises(ObjectiveError, match=r"changes nothing with passes = 1 and.*Set passes = 2 or more"):
            learner_of(objective)
        learner_of(objective, passes=2)
    learner_of(
        vary_objective(preset("grpo"), kl=None, name="mine", ratio=Token("behaviour"))
    )  # against the sampler it acts


def test_required_episode_fields_are_named() -> None:
    needs = {name: episode_inputs(preset(name)) for name in presets() if episode_inputs(preset(name))}
    assert needs == {
        "duration": ("durations of turns",),
        "gigpo": ("states of turns",),
        "fine_mem": ("rewards of turns",),
        "memory_r2": ("re-rolls",),
        "memory_r_plus": ("a reward term 'episodic'",),
    }
    with pytest.raises(ObjectiveError, match=r"'gigpo' needs states of turns, which episodes of this recipe"):
        require_episodes(preset("gigpo"), (), "this recipe")
    require_episodes(preset("gigpo"), ("states of turns",), "this recipe")


@pytest.mark.parametrize(("name", "value"), [
    ("passes", 0), ("minibatches", 0), ("warmup_steps", -1), ("max_norm", 0.0), ("max_norm", float("nan")),
    ("weight_decay", -0.1),
    ("token_budget", 0), ("betas", (0.9, 1.0)), ("betas", (float("nan"), 0.9)),
])  # fmt: skip
def test_numbers_of_the_optimiser_have_ranges_too(name: str, value: object) -> None:
    with pytest.raises(ObjectiveError, match=rf"{name} = .*: input should be"):
        Optimisation(**{name: value})  # type: ignore[arg-type]
