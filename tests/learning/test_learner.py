"""The learner against gradients worked out without it, its learning rates, and groups that are split between passes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from keepworth.base.errors import KeepworthError
from keepworth.methods.objectives.tis import Truncate
from keepworth.records import FinishReason, Group, RewardTerm, Sample, SamplingParams, VersionSpan
from keepworth.training.critic import CriticSettings
from keepworth.training.learner import Learner, Optimisation, rate_at
from keepworth.training.master_weights import Diverged, MasterWeights
from keepworth.training.objective.options import Objective, ObjectiveError
from keepworth.training.objective.parts import EntropyBonus, Mixed, Sequence
from keepworth.training.objective.presets import preset, presets, vary_objective
from keepworth.training.rows import rows_of
from keepworth.training.settings import GROUP_RELATIVE
from tests.episode_of import call_of, episode_of
from tests.learning.turns import REWARDS, ROLE, descend_plainly, learner_of, same, sampled_groups, weights
from tests.models.tiny import tiny_model

PROMPTS = [tuple(b"say a vowel:"), tuple(b"and one more vowel, please:")]


def group(number: int, prompt: tuple[int, ...], samples: list[Sample], rewards: Iterable[float]) -> Group:
    calls = [[call_of(ROLE, prompt, sample)] for sample in samples]
    terms = [[RewardTerm("r", reward)] for reward in rewards]
    made = enumerate(zip(calls, terms, strict=True))
    return Group(
        str(number), "", tuple(episode_of(f"{number}/{j}", *of, task=str(number), role=ROLE) for j, of in made)
    )


def sampled(model, seed: int = 0, n: int = 4, tokens: int = 3) -> list[list[Sample]]:
    return model.sample(PROMPTS, SamplingParams(tokens, n=n, seed=seed))


def groups_of(model, rewards: Iterable[Iterable[float]] = REWARDS) -> list[Group]:
    return [group(i, p, s, r) for i, (p, s, r) in enumerate(zip(PROMPTS, sampled(model), rewards, strict=True))]


def test_zero_variance_groups_are_counted_without_an_update() -> None:
    learner = learner_of(GROUP_RELATIVE, precision="fp64")
    before = weights(learner)
    metrics = learner.update(groups_of(learner.model, [[0.5] * 4] * 2))
    assert (metrics["zero_variance_groups"], metrics["trained_rows"]) == (1.0, 0.0)
    assert same(before, weights(learner))


def test_filters_and_batches_go_by_the_score_before_shaping() -> None:
    """DAPO's filter drops a group whose members all did the task: a term for length or format must not hide that."""
    learner = learner_of(vary_objective(GROUP_RELATIVE, name="filtered", group_filter=Mixed()), precision="fp64")
    shaped = []
    for i, each in enumerate(groups_of(learner.model)):
        episodes = [
            replace(e, rewards=(RewardTerm("f1", 1.0 if i else e.reward), RewardTerm("length", -0.1 * j, shaping=True)))
            for j, e in enumerate(each.episodes)
        ]
        shaped.append(replace(each, episodes=tuple(episodes)))
    metrics = learner.update(shaped)
    assert (metrics["rejected_groups"], metrics["trained_rows"]) == (1.0, 4.0)
    assert rows_of(shaped, (ROLE,), 0).batch.metric.tolist() == [*REWARDS[0], 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("dtype", "rate", "gradient", "says"), [
    (torch.float32, 0.5, [1.0, math.nan, 0.0], "Lower the learning rate"),
    (torch.float16, 1e6, [1.0, 1.0, 1.0], "not taken"),  # the master overflows the live type
])  # fmt: skip
def test_diverging_step_raises_and_keeps_the_weights(
    dtype: torch.dtype, rate: float, gradient: list[float], says: str
) -> None:
    value = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    masters = MasterWeights({"w": value}, learning_rate=rate)
    value.grad = torch.tensor(gradient, dtype=dtype)
    with pytest.raises(Diverged, match=says):
        masters.step()
    assert torch.equal(value, torch.ones(3, dtype=dtype))


@pytest.mark.parametrize("scale", [1e36, 1e45])  # the second passes what a float32 step size can be
def test_a_step_to_weights_that_are_not_finite_is_not_taken_and_can_be_followed_by_others(scale: float) -> None:
    start = torch.tensor([1.0, 0.0, 2.0])
    value, fresh = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    masters, unharmed = MasterWeights({"w": value}, 1.0, weight_decay=1e3), MasterWeights({"w": fresh}, 1.0)
    value.grad = torch.tensor([1.0, 0.0, 1.0])
    with pytest.raises(Diverged, match=r"first in w.*not taken.*Lower the learning rate"):
        masters.step(scale)
    assert torch.equal(value, start)
    assert torch.equal(masters.state()["master_weights"]["w"], value)
    masters.optimiser.param_groups[0]["weight_decay"] = 0.0
    for each, moved in ((masters, value), (unharmed, fresh)):
        moved.grad = torch.tensor([1.0, 0.0, 1.0])
        each.step(scale=1e-3)
    assert torch.equal(value, fresh)
    assert not torch.equal(value, start)


@pytest.mark.parametrize("learning_rate", [math.inf, math.nan, -1.0])
def test_a_learning_rate_that_is_no_number_is_refused_at_the_start(learning_rate: float) -> None:
    with pytest.raises(KeepworthError, match=r"learning_rate = .*(finite number|greater than or equal to 0)"):
        Optimisation(learning_rate=learning_rate)


def test_masters_keep_updates_that_bfloat16_would_lose() -> None:
    value = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    masters = MasterWeights({"w": value}, learning_rate=1e-4)
    for _ in range(60):
        value.grad = torch.ones(1, dtype=torch.bfloat16)
        masters.step()
    assert float(value) < 1.0  # 60 steps of 1e-4 each are below one bfloat16 step at 1, but not their sum
    lost = torch.ones(1, dtype=torch.bfloat16)
    for _ in range(60):
        lost -= 1e-4
    assert float(lost) == 1.0


def test_mixed_temperatures_are_refused() -> None:
    learner = learner_of(GROUP_RELATIVE)
    first, second = groups_of(learner.model)
    episodes = tuple(replace(e, segments=(replace(e.segments[0], temperature=0.5),)) for e in second.episodes)
    with pytest.raises(ValueError, match="one temperature"):
        learner.update([first, replace(second, episodes=episodes)])


def test_the_proximal_policy_of_a_single_step_needs_no_pass_of_its_own(monkeypatch) -> None:
    def weights_and_metrics(unpacked: bool) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        monkeypatch.setattr(Learner, "_reads_proximal_first", lambda self: unpacked)
        objective = vary_objective(presets()["grpo"], kl=None, correction=Truncate(2.0))
        learner = learner_of(objective, precision="fp64", learning_rate=1e-2)
        measured = learner.update(groups_of(learner.model))
        return weights(learner), {name: value for name, value in measured.items() if "seconds" not in name}

    (first, measured), (second, lazily) = weights_and_metrics(True), weights_and_metrics(False)
    assert all(torch.allclose(first[name], second[name], atol=1e-10) for name in first)
    assert measured == pytest.approx(lazily, abs=1e-6)
    assert lazily["mismatch_max"] > 0.0


@pytest.mark.parametrize(("name", "words", "given"), [
    ("kdrl", "lp_teacher.*hand the learner one", {}), ("a_star_po", "soft_value", {}), ("t_spmo", "adapter", {}),
    ("grpo", "critic settings", {"critic": CriticSettings()}), ("grpo", "values of tasks", {"soft_values": {}}),
    ("grpo", "passes", {"passes": 0}),
])  # fmt: skip
def test_missing_and_unused_objective_inputs_are_refused(name: str, words: str, given: dict[str, Any]) -> None:
    with pytest.raises(ObjectiveError, match=words):
        learner_of(preset(name), **given)


def test_rejected_groups_are_counted_without_training() -> None:
    learner = learner_of(preset("dapo", length_budget=3))
    flat = groups_of(learner.model, [[1.0] * 4] * 2)
    assert learner.update(flat) == {"rejected_groups": 2.0, "trained_rows": 0.0}
    assert learner.update([groups_of(learner.model)[0], flat[1]])["rejected_groups"] == 1.0


def test_a_decaying_adapter_shrinks_by_its_own_gradient() -> None:
    """T-SPMO's term: with SGD, one step takes off rate * 2 * decay of every weight beyond the same step without it."""

    def stepped(decay: float) -> dict[str, torch.Tensor]:
        learner = learner_of(preset("t_spmo", adapter_decay=decay), 2, max_norm=1e9)
        descend_plainly(learner, 0.1)
        before = weights(learner)
        learner.update(groups_of(learner.model))
        return {name: value - before[name] + (0.2 * decay) * before[name] for name, value in weights(learner).items()}

    without = stepped(0.0)
    assert any(value.abs().max() > 0 for value in without.values())
    torch.testing.assert_close(stepped(0.5), without, atol=1e-6, rtol=1e-4)


THEIRS = {"linear": get_linear_schedule_with_warmup, "cosine": get_cosine_schedule_with_warmup}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize(("steps", "rising"), [(1, 0), (7, 0), (20, 1), (20, 6), (20, 19)])
def test_like_transformers_after_the_rise_and_a_step_ahead_of_it_before(schedule: str, steps: int, rising: int) -> None:
    """Theirs begins at 0, which moves nothing: the first of our steps takes what their second one does."""
    optimisation = Optimisation(warmup_steps=rising, schedule=schedule, steps=steps)  # type: ignore[arg-type]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = THEIRS[schedule](optimiser, rising, steps)
    expected = []
    for _ in range(steps + 1):
        expected.append(theirs.get_last_lr()[0])
        optimiser.step()
        theirs.step()
    ours = [rate_at(optimisation, step) for step in range(steps)]
    assert ours[:rising] == pytest.approx(expected[1 : rising + 1])
    assert ours[rising:] == pytest.approx(expected[rising:steps])
    last = 1 / (steps - rising)
    assert ours[-1] == pytest.approx(last if schedule == "linear" else (1 - math.cos(math.pi * last)) / 2)


def test_the_optimiser_takes_the_rate_and_a_step_says_it() -> None:
    learner = learner_of(GROUP_RELATIVE, 2, learning_rate=1e-3, warmup_steps=1, schedule="cosine", steps=3)
    for step in range(3):
        said = learner.imitate([((1, 2), (3, 4))])
        (group,) = learner.master_weights.optimiser.param_groups
        assert said["learning_rate"] == group["lr"] == pytest.approx(1e-3 * rate_at(learner.optimisation, step))
    assert learner.imitate([((1, 2), (3, 4))], learning_rate=0.5)["learning_rate"] == 0.5


def test_a_schedule_that_cannot_fall_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="steps = 4 after warmup_steps = 4: nothing is"):
        Optimisation(schedule="linear", steps=4, warmup_steps=4)
    with pytest.raises(ObjectiveError, match="schedule = 'cosin': input should be 'constant', 'linear' or"):
        Optimisation(schedule="cosin", steps=4)  # type: ignore[arg-type]


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
    learner = learner_of(objective, precision="fp64", role=role, max_norm=1e9, **how)
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
        torch.testing.assert_close(parts, whole, atol=1e-10, rtol=0)
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
    require_equal(OBJECTIVES[name], groups, ROLE, budget)


def test_imitation_is_split_as_well() -> None:
    pairs = [(tuple(b"a prompt"), tuple(range(1, length))) for length in (3, 30, 14, 22)] + [(tuple(b"b"), (5, 6))]

    def imitated(**how: Any) -> dict[str, torch.Tensor]:
        learner = learner_of(GROUP_RELATIVE, precision="fp64", **how)
        learner.imitate(pairs)
        return weights(learner)

    whole = imitated(token_budget=4096)
    for how in ("off", "on"):
        torch.testing.assert_close(imitated(token_budget=48, checkpointing=how), whole, atol=1e-8, rtol=0)
