"""Hooks of the loop: members that differ, groups made again, a rollout that makes a whole group, sources and mixed losses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.base.errors import KeepworthError
from keepworth.methods.recipes import strings
from keepworth.methods.recipes.dart import SuccessPool
from keepworth.methods.recipes.datamind import Demonstrations
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Episode, Group, RewardTerm, Sample, SamplingParams, Task
from keepworth.records.model import FinishReason, VersionSpan
from keepworth.training.collect.groups import Again, EpisodeContext
from keepworth.training.collect.sources import Source, Sources
from keepworth.training.hooks import Hooks
from keepworth.training.learner import Learner
from keepworth.training.mixture import Falling, Imitation, MixedLoss, OtherLoss, Preference
from keepworth.training.objective.parts import Mixed, ObjectiveError
from keepworth.training.objective.presets import preset, vary_objective
from keepworth.training.rows import Texts
from keepworth.training.watch.progress import Progress
from keepworth.worlds.agent import Completer
from keepworth.worlds.driver import Play, Variation, playing
from keepworth.worlds.question import Question
from tests.episode_of import call_of, episode_of
from tests.learning.letters import Letters, settings, train_letters, trained
from tests.learning.turns import learner_of, same, weights
from tests.models.tiny import tiny_model
from tests.rollouts.scripted_model import ScriptedModel

TASK = Task("t/1", "t", "2+2", ("4",), "same_words")


class Context:
    """Draws the same words for every call, as the first member of a group that is trained on."""

    id, group, seed, member = "0/0", 0, 0, 0

    def __init__(self, variation: Variation | None = None) -> None:
        self.variation = variation
        self.asked: list[SamplingParams] = []

    async def sample(self, prompt: Any, params: SamplingParams) -> Sample:
        self.asked.append(params)
        ids = tuple(map(ord, "4\n"))
        return Sample(ids, (-1.0,) * len(ids), FinishReason.STOP, (VersionSpan(0, 0, len(ids)),))

    async def shared(self, name: str, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


def played(variation: Variation | None, context: Context | None = None, vary: Any = None) -> Episode:
    play = Play(lambda task: Question(), lambda task, memory: Completer("", after=" =", max_tokens=4), vary=vary)
    rollout = playing(ScriptedModel(lambda prompt, number: ""), play)
    return asyncio.run(rollout(TASK, context or Context(variation)))  # type: ignore[arg-type]


def text_of(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def test_hint_is_read_and_stripped_before_training() -> None:
    kept, stripped = (
        played(Variation("hint", lambda seen: replace(seen, text=f"It is even.\n{seen.text}"), strip=strip))
        for strip in (False, True)
    )
    plain = played(None)
    assert text_of(kept.segments[0].context) == "It is even. 2+2 ="
    assert text_of(stripped.segments[0].context) == text_of(plain.segments[0].context) == "2+2 ="
    assert stripped.segments[0].ids == plain.segments[0].ids
    assert stripped.segments[0].logprobs == ()  # nobody has scored them behind this prompt
    assert (kept.variation, plain.variation) == ("hint", "")


def test_a_prefix_is_read_with_the_answer_and_not_trained_on() -> None:
    episode = played(Variation("begun", prefix="3+1="))
    (segment,) = episode.segments
    assert text_of(segment.context) == "2+2 =3+1="
    assert text_of(segment.ids) == "4\n"
    assert episode.answer == "3+1=4"


def test_a_member_is_varied_by_its_position_and_never_where_it_is_measured() -> None:
    def vary(task: Task, member: int) -> Variation:
        return Variation(f"member {member}")

    measured = Context()
    measured.member = None  # type: ignore[assignment]
    assert played(None, vary=vary).variation == "member 0"
    assert played(None, measured, vary).variation == ""


def test_learner_computes_missing_log_probabilities() -> None:
    """An update on stripped log-probabilities is that on the right ones."""
    moved = []
    for strip in (False, True):
        learner = learner_of(preset("tis"), hidden=16, learning_rate=1e-2)
        learner.update([group_of("letters/0", sampled_by(learner, 4, seed=1), strip)])
        moved.append(weights(learner))
    torch.testing.assert_close(*moved, atol=1e-6, rtol=1e-5)


PROMPT = tuple(b"letters")


def sampled_by(learner: Learner, count: int, seed: int) -> list[Sample]:
    return learner.model.sample([PROMPT], SamplingParams(4, n=count, seed=seed))[0]


def group_of(task: str, samples: Sequence[Sample], strip: bool = False) -> Group:
    made = (played_of(f"{j}", task, PROMPT, sample, float(j % 2), strip) for j, sample in enumerate(samples))
    return Group(task, "", tuple(made))


def played_of(
    name: str, task: str, prompt: tuple[int, ...], sample: Sample, reward: float, strip: bool = False
) -> Episode:
    call = call_of("speaker", prompt, replace(sample, logprobs=()) if strip else sample)
    return episode_of(name, [call], [RewardTerm("low", reward)], task=task, role="speaker")


class Guided(Letters):
    """Members that were asked for again are begun with a low letter."""

    async def rollout(self, task: Task, context: EpisodeContext) -> Episode:
        episode = await super().rollout(task, context)
        return episode if context.variation is None else replace(episode, variation=context.variation.name)


@pytest.mark.parametrize("mode", ["serial", "turns"])
def test_a_group_may_be_sampled_again_and_a_killed_run_repeats_it(tmp_path: Path, mode: str) -> None:
    sizes: list[int] = []

    async def regroup(task: Task, group: Group, again: Again) -> Group:
        more = await again.play([Variation("guided"), None])
        sizes.append(len(more))
        assert [episode.variation for episode in more] == ["guided", ""]
        return replace(group, episodes=(*group.episodes[1:], *more))

    class Stopped(Guided):
        def evaluate(self, step: int) -> None:
            if step == 2:
                raise KeyboardInterrupt

    def train(folder: str, letters: Letters) -> dict[str, torch.Tensor]:
        how = {"regroup": regroup, "evaluate_every": 1}
        return weights(train_letters(tmp_path / folder, 3, settings(mode=mode), letters, 1, **how))

    straight = train("straight", Guided())
    with pytest.raises(KeyboardInterrupt):
        train("continued", Stopped())
    continued = train("continued", Guided())
    assert set(sizes) == {2}
    if mode == "serial":
        assert same(straight, continued)


def test_a_group_that_is_turned_down_makes_room_for_another(tmp_path: Path) -> None:
    turned_down: list[str] = []

    async def regroup(task: Task, group: Group, again: Again) -> Group | None:
        if len(turned_down) < 2:
            turned_down.append(group.task)
            return None
        return group

    train_letters(tmp_path, 1, settings(mode="serial"), regroup=regroup)
    assert len(turned_down) == 2


def test_a_regroup_of_another_shape_is_named(tmp_path: Path) -> None:
    async def regroup(task: Task, group: Group, again: Again) -> Any:
        return list(group.episodes)

    with pytest.raises(KeepworthError, match=r"regroup made .* of the group 0"):
        train_letters(tmp_path, 1, settings(mode="serial"), regroup=regroup)
    with pytest.raises(KeepworthError, match=r"regroup, of the group 0 of task .* failed: TypeError.*line \d+"):
        train_letters(tmp_path / "plain", 1, settings(mode="serial"), regroup=lambda task, group, again: group)


def test_one_rollout_may_make_the_whole_group(tmp_path: Path) -> None:
    """Three answers of one tree: two that share their beginning."""

    async def tree(task: Task, context: EpisodeContext, model: InProcessModel) -> list[Episode]:
        prompt = tuple(task.input.encode())
        begun = await context.sample(prompt, SamplingParams(2, temperature=1.0))
        ends = [await context.sample((*prompt, *begun.ids), SamplingParams(2, temperature=1.0)) for _ in range(2)]
        first = played_of("", task.key, prompt, begun, 0.0).segments[0]
        grown = [played_of("", task.key, (*prompt, *begun.ids), end, float(j)) for j, end in enumerate(ends)]
        return [replace(episode, segments=(first, *episode.segments)) for episode in grown]

    train_letters(tmp_path, 1, settings(mode="serial"), group_rollout=tree)
    assert [episode.id for _, episode in trained(tmp_path)] == [
        f"{index}/{member}" for index in range(4) for member in range(2)
    ]


def success(task: str, reward: float = 1.0, number: int = 0) -> Episode:
    sample = Sample((65,), (-1.0,), FinishReason.STOP, (VersionSpan(0, 0, 1),))
    return played_of(f"{task}#{number}", task, (1, 2), sample, reward)


def groups(*tasks: str, reward: float = 1.0) -> list[Group]:
    return [Group(task, "", (success(task, reward),)) for task in tasks]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.75])
def test_over_many_steps_a_source_has_its_share_of_the_groups(share: float) -> None:
    source = Demonstrations(lambda model: groups("a", "b", "c"), share)
    sources = Sources([source], tiny_model(hidden=16))
    counts = []
    for step in range(40):
        mixed = sources.mix(groups("x", "y", "z"), step)[0]
        counts.append(sum(group.episodes[0].origin == "demonstrations" for group in mixed))
    assert sum(counts) / (sum(counts) + 120) == pytest.approx(share, abs=0.01)
    assert max(counts) - min(counts) <= 1


def test_a_source_that_is_empty_is_an_error_before_the_first_step() -> None:
    empty = Demonstrations(lambda model: [], 0.5, name="experts")
    with pytest.raises(KeepworthError, match="'experts' is empty"):
        Sources([empty], tiny_model(hidden=16))

    silent = Source()
    silent.name, silent.share, silent.replays = "silent", 0.5, False
    with pytest.raises(KeepworthError, match="'silent' is empty"):
        Sources([silent], tiny_model(hidden=16)).mix(groups("x"), 0)


MIXTURE = MixedLoss((Imitation("experts", 0.5),))
WITHOUT_EFFECT: dict[str, Hooks] = {
    "no source 'experts'": Hooks(mixture=MIXTURE),
    "imitated and has no share": Hooks(sources=(Demonstrations(groups, 0.0, name="experts"),), mixture=MIXTURE),
    "services and no later reward": Hooks(services={"judge": None}),  # type: ignore[dict-item]
    "vary has no effect": Hooks(group_rollout=lambda *given: None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("says", WITHOUT_EFFECT)
def test_a_hook_without_effect_is_refused_before_a_model_is_loaded(says: str) -> None:
    made = strings.system(strings.Config(model="none"))
    made = replace(made, hooks=WITHOUT_EFFECT[says], play=replace(made.play, vary=lambda task, member: None))
    with pytest.raises(KeepworthError, match=says):
        made.learn(strings.Config(model="none"), None, Progress())  # type: ignore[arg-type]


def test_a_pool_keeps_the_newest_successes_of_a_task_and_forgets_old_ones() -> None:
    pool = SuccessPool(0.5, per_task=2, expires=3)
    for step in range(3):
        pool.keep([Group("a", "", (success("a", 1.0, step), success("a", 0.0, 9)))], step)
    pool.keep(groups("b"), 3)
    assert {pool.success("a", key).id for key in range(20)} == {"a#1", "a#2"}  # type: ignore[union-attr]
    assert pool.success("c", 0) is None
    again = SuccessPool(0.5, per_task=2, expires=3)
    again.load(pool.state())
    assert again.take(4, 2) == pool.take(4, 2)
    pool.keep([], 4)
    assert [pool.success(task, 0) is None for task in "ab"] == [False, False]
    pool.keep([], 5)
    assert [pool.success(task, 0) is None for task in "ab"] == [True, False]


def test_pool_samples_do_not_reenter_the_pool() -> None:
    pool = SuccessPool(0.5)
    pool.keep(groups("a"), 0)
    pool.keep(pool.take(0, 1), 1)
    assert pool.keep([], 2) == {"sources/successes": 1.0}


def test_a_weight_rises_and_then_falls_along_half_a_cosine() -> None:
    weight = Falling(0.9, 0.1, warmup=2, decay=4)
    assert [weight.at(step) for step in (0, 1, 2, 4, 6, 60)] == pytest.approx([0.45, 0.9, 0.9, 0.5, 0.1, 0.1])


def test_token_weights_of_imitation_by_hand() -> None:
    lp = torch.tensor([0.5, 0.25]).log()
    by_hand = {"one": math.log(8) / 4, "probability": (0.5 * math.log(2) + 0.25 * math.log(4)) / 4}
    by_hand["unsure"] = (0.25 * math.log(2) + 0.1875 * math.log(4)) / 4
    for tokens, value in by_hand.items():
        assert float(Imitation("x", 1.0, tokens).loss(lp, 4)) == pytest.approx(value)  # type: ignore[arg-type]


def learner_with(mixture: MixedLoss | None, rate: float = 1e-2) -> Learner:
    return learner_of(preset("reinforce"), hidden=16, learning_rate=rate, mixture=mixture)


def test_a_mixture_is_the_weighted_sum_of_its_losses() -> None:
    """Gradients of an update: 0.25 of imitation's and 0.75 of the policy's."""
    sampled = group_of("t", sampled_by(learner_with(None), 2, seed=3))
    shown = Group("t", "", (replace(success("t"), origin="demonstrations"),))
    gradients = []
    for mixture, given in (
        (None, [sampled]),
        (MixedLoss((Imitation("demonstrations", 0.25),)), [sampled, shown]),
        (MixedLoss((Imitation("demonstrations", 1.0),)), [sampled, shown]),
    ):
        learner = learner_with(mixture)
        caught: list[list[torch.Tensor]] = []

        def keep(scale: float = 1.0, decay: float = 0.0, learner: Learner = learner, caught: Any = caught) -> float:
            caught.append([value.grad.clone() for value in learner.master_weights.named.values()])  # type: ignore[union-attr]
            return 0.0

        learner.master_weights.step = keep  # type: ignore[method-assign]
        learner.update(given)
        gradients.append(caught[0])
    policy, mixed, imitation = gradients
    for one, both, other in zip(policy, mixed, imitation, strict=True):
        assert torch.allclose(0.75 * one + 0.25 * other, both, atol=1e-6)
    rejecting = learner_of(vary_objective(preset("reinforce"), group_filter=Mixed()), hidden=16, mixture=mixture)
    assert rejecting.update([replace(sampled, episodes=sampled.episodes[:1]), shown])["gradient_norm"] > 0


def test_a_preference_by_hand_and_its_slopes_by_finite_differences() -> None:
    pairs = (((0,), (1,), 0.5), ((2, 3), (4,), -1.0))
    loss = OtherLoss("x", Preference(1.0, beta=0.7), 1.0, Texts((), ()), pairs)
    sums = {0: -1.0, 1: -2.0, 2: -0.5, 3: -1.5, 4: -3.0}
    value, slopes = loss._preferred(sums)
    margins = [0.7 * (-1.0 + 2.0 - 0.5), 0.7 * (-2.0 + 3.0 + 1.0)]
    assert value == pytest.approx(sum(math.log(1 + math.exp(-margin)) for margin in margins) / 2)
    for row in sums:
        up, down = (loss._preferred({**sums, row: sums[row] + sign * 1e-5})[0] for sign in (1, -1))
        assert slopes[row] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_a_preference_makes_the_better_answer_likelier() -> None:
    learner = learner_with(MixedLoss((Preference(1.0, beta=0.5),), policy=0.0), rate=3e-2)
    sampled = [group_of("t", sampled_by(learner, 2, seed=3))]
    losses = [learner.update(sampled)["loss/preference"] for _ in range(8)]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("weights", [(0.7, 0.7), (-0.1,)])
def test_mixture_weights_above_one_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ObjectiveError, match="less than nothing"):
        MixedLoss(tuple(Imitation(f"source {number}", weight) for number, weight in enumerate(weights)))
