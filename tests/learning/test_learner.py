"""The learner against gradients worked out without it, its learning rates, and groups that are split between passes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from keepworth.episodes import FinishReason, Group, RewardTerm, Sample, SamplingParams, VersionSpan
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.critic import CriticSettings
from keepworth.learning.learner import Learner, Optimisation, rate_at
from keepworth.learning.master_weights import Diverged, MasterWeights
from keepworth.learning.objective.options import Objective, ObjectiveError
from keepworth.learning.objective.parts import EntropyBonus, Mixed, Sequence
from keepworth.learning.objective.presets import preset, presets, varied
from keepworth.learning.rows import rows_of
from keepworth.methods.objectives.tis import Truncate
from keepworth.models.adapter import attach_lora, unfreeze
from keepworth.recipes.settings import GROUP_RELATIVE
from tests.episode_of import call_of, episode_of
from tests.learning.turns import ROLE, descend_plainly, sampled_groups
from tests.models.tiny import tiny_model

# -- the learner against gradients worked out without it, and a tiny model that really learns ------------------------


PROMPTS = [tuple(b"say a vowel:"), tuple(b"and one more vowel, please:")]


def group(number: int, prompt: tuple[int, ...], samples: list[Sample], rewards: list[float]) -> Group:
    episodes = tuple(
        episode_of(
            f"{number}/{j}",
            [call_of("speaker", prompt, sample)],
            [RewardTerm("r", reward)],
            task=str(number),
            role="speaker",
        )
        for j, (sample, reward) in enumerate(zip(samples, rewards, strict=True))
    )
    return Group(str(number), "", episodes)


def sampled(model, seed: int = 0, n: int = 4, tokens: int = 3) -> list[list[Sample]]:
    return model.sample(PROMPTS, SamplingParams(tokens, n=n, seed=seed))


REWARDS = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]


def groups_of(model) -> list[Group]:
    return [group(i, p, s, r) for i, (p, s, r) in enumerate(zip(PROMPTS, sampled(model), REWARDS, strict=True))]


def test_groups_without_a_difference_change_nothing_but_are_counted() -> None:
    model = tiny_model(precision="fp64")
    learner = Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(), "speaker")
    before = {name: value.clone() for name, value in model.network.named_parameters()}
    flat = [group(i, p, s, [0.5] * 4) for i, (p, s) in enumerate(zip(PROMPTS, sampled(model), strict=True))]
    metrics = learner.update(flat)
    assert metrics["zero_variance_groups"] == 1.0
    assert metrics["trained_rows"] == 0.0
    assert all(torch.equal(before[name], value) for name, value in model.network.named_parameters())


def test_filters_and_batches_go_by_the_score_before_shaping() -> None:
    """DAPO's filter drops a group whose members all did the task: a term for length or format must not hide that."""
    model = tiny_model(precision="fp64")
    objective = varied(GROUP_RELATIVE, name="filtered", group_filter=Mixed())
    learner = Learner(model, unfreeze(model), objective, Optimisation(), "speaker")
    shaped = []
    for i, each in enumerate(groups_of(model)):
        episodes = [
            replace(e, rewards=(RewardTerm("f1", 1.0 if i else e.reward), RewardTerm("length", -0.1 * j, shaping=True)))
            for j, e in enumerate(each.episodes)
        ]
        shaped.append(replace(each, episodes=tuple(episodes)))
    metrics = learner.update(shaped)
    assert (metrics["rejected_groups"], metrics["trained_rows"]) == (1.0, 4.0)
    assert rows_of(shaped, ("speaker",), 0).batch.metric.tolist() == [*REWARDS[0], 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("dtype", "rate", "gradient", "says"), [
    (torch.float32, 0.5, [1.0, math.nan, 0.0], "Lower the learning rate"),
    (torch.float16, 1e6, [1.0, 1.0, 1.0], "not taken"),  # the master overflows the live type
])  # fmt: skip
def test_a_step_that_diverges_changes_nothing_and_says_so(
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
    masters, unharmed = (
        MasterWeights({"w": value}, learning_rate=1.0, weight_decay=1e3),
        MasterWeights({"w": fresh}, 1.0),
    )
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
    with pytest.raises(KeepworthError, match=r"learning_rate = .* not a finite number"):
        MasterWeights({"w": torch.nn.Parameter(torch.ones(1))}, learning_rate=learning_rate)


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
    model = tiny_model()
    learner = Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(), "speaker")
    first, second = groups_of(model)
    episodes = tuple(replace(e, segments=(replace(e.segments[0], temperature=0.5),)) for e in second.episodes)
    with pytest.raises(ValueError, match="one temperature"):
        learner.update([first, Group(second.task, "", episodes)])


def test_the_proximal_policy_of_a_single_step_needs_no_pass_of_its_own(monkeypatch) -> None:
    def weights_and_metrics(unpacked: bool) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        monkeypatch.setattr(Learner, "_reads_proximal_first", lambda self: unpacked)
        model = tiny_model(precision="fp64")
        objective = varied(presets()["grpo"], kl=None, correction=Truncate(2.0))
        learner = Learner(model, unfreeze(model), objective, Optimisation(learning_rate=1e-2), "speaker")
        metrics = learner.update(groups_of(model))
        return dict(model.network.state_dict()), metrics

    (first, measured), (second, lazily) = weights_and_metrics(True), weights_and_metrics(False)
    assert all(torch.allclose(first[name], second[name], atol=1e-10) for name in first)
    assert {k: v for k, v in measured.items() if "seconds" not in k} == pytest.approx(
        {k: v for k, v in lazily.items() if "seconds" not in k}, abs=1e-6
    )
    assert lazily["mismatch_max"] > 0.0


@pytest.mark.parametrize(
    ("name", "words"),
    [("kdrl", "lp_teacher.*hand the learner one"), ("a_star_po", "soft_value"), ("t_spmo", "adapter")],
)
def test_an_objective_that_needs_more_is_refused_at_the_start(name: str, words: str) -> None:
    model = tiny_model()
    with pytest.raises(ObjectiveError, match=words):
        Learner(model, unfreeze(model), preset(name), Optimisation(), "speaker")


@pytest.mark.parametrize(
    ("extra", "words"), [({"critic": CriticSettings()}, "critic settings"), ({"soft_values": {}}, "values of tasks")]
)
def test_what_an_objective_would_leave_unused_is_refused(extra, words: str) -> None:
    model = tiny_model()
    with pytest.raises(ObjectiveError, match=words):
        Learner(model, unfreeze(model), preset("grpo"), Optimisation(), "speaker", **extra)
    with pytest.raises(ObjectiveError, match="passes"):
        Learner(model, unfreeze(model), preset("grpo"), Optimisation(passes=0), "speaker")


def test_rejected_groups_are_counted_and_teach_nothing() -> None:
    model = tiny_model()
    flat = [group(i, p, s, [1.0] * 4) for i, (p, s) in enumerate(zip(PROMPTS, sampled(model), strict=True))]
    learner = Learner(model, unfreeze(model), preset("dapo", length_budget=3), Optimisation(), "speaker")
    assert learner.update(flat) == {"rejected_groups": 2.0, "trained_rows": 0.0}
    mixed = learner.update([groups_of(model)[0], flat[1]])
    assert mixed["rejected_groups"] == 1.0


def test_a_decaying_adapter_shrinks_by_its_own_gradient() -> None:
    """T-SPMO's term: with SGD, one step takes off rate * 2 * decay of every weight beyond the same step without it."""

    def stepped(decay: float) -> dict[str, torch.Tensor]:
        model = tiny_model()
        objective = preset("t_spmo", adapter_decay=decay)
        learner = Learner(model, attach_lora(model, 2), objective, Optimisation(max_norm=1e9), "speaker")
        descend_plainly(learner, 0.1)
        before = {n: value.detach().clone() for n, value in learner.master_weights.named.items()}
        learner.update(groups_of(model))
        return {
            n: value.detach() - before[n] + (0.2 * decay) * before[n]
            for n, value in learner.master_weights.named.items()
        }

    with_decay, without = stepped(0.5), stepped(0.0)
    assert any(value.abs().max() > 0 for value in without.values())
    for name, value in without.items():
        torch.testing.assert_close(with_decay[name], value, atol=1e-6, rtol=1e-4)


# -- schedules of the learning rate against transformers', and against what the optimiser is told --------------------


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
    model = tiny_model()
    optimisation = Optimisation(learning_rate=1e-3, warmup_steps=1, schedule="cosine", steps=3)
    learner = Learner(model, attach_lora(model, rank=2), GROUP_RELATIVE, optimisation, "r")
    for step in range(3):
        said = learner.imitate([((1, 2), (3, 4))])
        (group,) = learner.master_weights.optimiser.param_groups
        assert said["learning_rate"] == group["lr"] == pytest.approx(1e-3 * rate_at(optimisation, step))
    assert learner.imitate([((1, 2), (3, 4))], learning_rate=0.5)["learning_rate"] == 0.5


def test_a_schedule_that_cannot_fall_is_refused() -> None:
    with pytest.raises(ObjectiveError, match="steps = 4 after warmup_steps = 4: nothing is"):
        Optimisation(schedule="linear", steps=4, warmup_steps=4)
    with pytest.raises(ObjectiveError, match="schedule = 'cosin': input should be 'constant', 'linear' or"):
        Optimisation(schedule="cosin", steps=4)  # type: ignore[arg-type]


# -- A group that does not fit into one pass is split, and nothing changes: gradients, and what is logged ------------


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
