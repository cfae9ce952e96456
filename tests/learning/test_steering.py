"""Each part of the steering on a world where task n is won with a known chance, and all of them on the trainer's loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from keepworth.episodes import Episode, Group, RewardTerm, Segment, StopReason
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import FinishReason, SamplingParams
from keepworth.learning.collect.branches import Branches, branched
from keepworth.learning.collect.difficulty import BadBand, Band, Difficulty
from keepworth.learning.collect.stages import Stage
from keepworth.learning.collect.steering import SteeredCollector, Steering, without_signal
from keepworth.learning.collect.task_order import batch
from keepworth.learning.run.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.learning.weights.learner import Learner, Optimisation
from keepworth.models.adapter import unfreeze
from keepworth.recipes.settings import GROUP_RELATIVE
from tests.models.tiny import tiny_model

Rewards = dict[str, tuple[float, ...]]
MIXED, WON, LOST = (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)


def episode(task: str, reward: float, name: str = "e") -> Episode:
    return Episode(
        id=f"{task}{name}",
        task=task,
        role="r",
        question="",
        segments=(),
        answer="",
        expected=(),
        rewards=(RewardTerm("f1", reward), RewardTerm("em", float(reward == 1), 0.0)),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=0,
    )


class World:
    """Tasks in the order of their names; each earns what `rewards` says, at once and always."""

    def __init__(self, rewards: Rewards) -> None:
        self.rewards = rewards
        self.asked: list[tuple[int, int, list[str]]] = []
        self.horizons: list[int | None] = []

    def tasks(self, step: int, attempt: int, count: int) -> list[str]:
        names = sorted(self.rewards)
        start = step * 2 + attempt
        return [names[(start + i) % len(names)] for i in range(count)]

    def key(self, task: str) -> str:
        return task

    def sample(self, tasks: Sequence[str], step: int, attempt: int, stage: Stage | None) -> list[Group]:
        self.asked.append((step, attempt, list(tasks)))
        self.horizons.append(stage.horizon if stage else None)
        return [
            Group(task, "", tuple(episode(task, r, str(i)) for i, r in enumerate(self.rewards[task]))) for task in tasks
        ]

    def evaluate(self, step: int) -> None: ...


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "r", {})


def tasks_of(groups: Sequence[Group]) -> list[str]:
    return [group.task for group in groups]


def test_without_any_part_it_collects_what_is_sampled(run: RunFolder) -> None:
    world = World({"a": MIXED, "b": WON, "c": LOST, "d": MIXED})
    found = SteeredCollector(world, run, Steering(2)).collect(1)
    assert tasks_of(found.groups) == ["c", "d"]
    assert found.metrics == {}
    assert run.curriculum() == []


def test_groups_without_a_signal_are_replaced_and_written_down(run: RunFolder) -> None:
    world = World({"a": WON, "b": MIXED, "c": LOST, "d": MIXED})
    found = SteeredCollector(world, run, Steering(2, refill=3), first=10).collect(0)
    assert tasks_of(found.groups) == ["b", "d"]
    assert [(row["step"], row["what"], row["task"], row["reason"]) for row in run.curriculum()] == [
        (11, "rejected", "a", "all 2 rewards are 1"),
        (11, "rejected", "c", "all 2 rewards are 0"),
    ]
    assert found.metrics["curriculum/sampled_groups"] == 4
    assert found.metrics["curriculum/rejected_groups"] == 2
    assert found.metrics["curriculum/reward_sampled"] == 0.5
    assert [names for _, _, names in world.asked] == [["a", "b"], ["c"], ["d"]]


def test_where_no_group_has_a_signal_the_step_is_measured_all_the_same(run: RunFolder) -> None:
    found = SteeredCollector(World({"a": WON, "b": LOST}), run, Steering(2, refill=5)).collect(0)
    assert sorted(tasks_of(found.groups)) == ["a", "b"]
    assert without_signal(found.groups[0])
    assert without_signal(Group("x", "", (episode("x", 1.0),))) == "one episode, nothing to compare it with"


def test_tasks_outside_the_band_are_put_aside_and_come_back(run: RunFolder) -> None:
    world = World({"a": WON, "b": MIXED, "c": MIXED})
    collector = SteeredCollector(world, run, Steering(1, band=Band(0.0, 1.0, retry=3)))
    order = [tasks_of(collector.collect(step).groups) for step in (0, 3, 6)]  # the world offers a at each of these
    assert order[0] == ["a"]
    assert order[1] == ["b"]  # a was won at step 1: aside at step 4
    assert order[2] == ["a"]  # and is tried again at step 7, more than 3 steps later
    aside = [row for row in run.curriculum() if row["what"] == "aside"]
    assert aside[0]["reason"] == "too easy: mean score 1.00 is not below 1"


def test_what_is_known_of_tasks_comes_back_from_the_log(run: RunFolder) -> None:
    band = Band(0.25, 1.0, retry=50)
    world = World({"a": LOST, "b": MIXED})
    straight = SteeredCollector(world, run, Steering(1, band=band))
    straight.collect(0)
    continued = SteeredCollector(world, run, Steering(1, band=band))
    continued.begin(None, 1)
    assert tasks_of(straight.collect(2).groups) == tasks_of(continued.collect(2).groups) == ["b"]


def test_where_all_are_aside_the_one_of_longest_ago_is_taken(run: RunFolder) -> None:
    world = World({"a": WON, "b": WON})
    collector = SteeredCollector(world, run, Steering(1, band=Band(retry=99)))
    assert [tasks_of(collector.collect(step).groups) for step in (0, 1, 2)] == [["a"], ["b"], ["a"]]


def test_difficulty_is_a_running_mean() -> None:
    known = Difficulty(Band(0.3, 0.9, memory=0.5))
    assert known.aside("t", 1) == ""
    known.note("t", 1.0, 1)
    assert known.aside("t", 2).startswith("too easy")
    known.note("t", 0.0, 2)
    assert known.aside("t", 3) == ""
    known.note("t", 0.0, 3)
    assert known.aside("t", 4) == "too hard: mean score 0.25 is not above 0.3"
    assert known.aside("t", 14) == ""
    for wrong in ({"low": 0.5, "high": 0.5}, {"retry": 0}, {"memory": 1.0}):
        with pytest.raises(BadBand):
            Band(**wrong)  # type: ignore[arg-type]


def test_a_stage_sets_the_horizon_and_the_weights(run: RunFolder) -> None:
    world = World({"a": (1.0, 0.5), "b": (0.5, 0.5)})
    stages = (Stage(1, horizon=4), Stage(1, horizon=9, weights={"em": 1.0, "f1": 0.0}))
    collector = SteeredCollector(world, run, Steering(2, stages=stages))
    first, second = collector.collect(0), collector.collect(1)
    assert world.horizons == [4, 9]
    assert [e.reward for e in first.groups[0].episodes] == [1.0, 0.5]
    assert [e.reward for e in second.groups[0].episodes] == [1.0, 0.0]
    assert (first.metrics["curriculum/stage"], second.metrics["curriculum/stage"]) == (0, 1)


def test_hooks_see_each_step_and_each_group(run: RunFolder) -> None:
    seen: list[int] = []

    def after(step: int, group: Group) -> Group | None:
        return None if group.task == "a" else replace(group, episodes=group.episodes[:1])

    steering = Steering(2, before_rollout=seen.append, after_group=after)
    collector = SteeredCollector(World({"a": MIXED, "b": MIXED}), run, steering)
    found = collector.collect(0)
    assert seen == [0]
    assert [(group.task, len(group.episodes)) for group in found.groups] == [("b", 1)]
    assert run.curriculum()[0]["reason"] == "left out by after_group"
    nothing = SteeredCollector(World({"a": MIXED}), run, Steering(1, after_group=lambda step, group: None))
    with pytest.raises(KeepworthError, match="left out every group of step 1"):
        nothing.collect(0)


def anchored() -> Group:
    segments = tuple(
        Segment("r", "p", (1,), (2,), (0.0,), 1.0, FinishReason.STOP, (), "", memory_before=f"m{i}") for i in range(3)
    )
    return Group("a", "", (replace(episode("a", 1.0), segments=segments), episode("a", 0.0, "2")))


def test_branches_roll_calls_again_from_their_own_memory() -> None:
    def reroll(anchor: Episode, index: int) -> Group:
        before = anchor.segments[index].memory_before
        own = tuple(
            replace(episode("a", r, f"{index}/{r}"), parent=anchor.id, memory_snapshot=before) for r in (0.0, 1.0)
        )
        return Group("a", before, own)

    found = branched([anchored()], Branches(reroll, probability=1.0), step=0)
    assert [group.memory_snapshot for group in found] == ["", "m0", "m1", "m2"]
    drawn = [len(branched([anchored()], Branches(reroll, probability=0.5, seed=s), 0)) - 1 for s in range(200)]
    assert 1.2 < sum(drawn) / 200 < 1.8  # three calls, each with probability a half
    half = Branches(reroll, probability=0.5, seed=3)
    assert branched([anchored()], half, 4) == branched([anchored()], half, 4)


def test_a_branch_from_another_memory_or_of_another_parent_is_refused() -> None:
    def elsewhere(anchor: Episode, index: int) -> Group:
        return Group("a", "mX", (replace(episode("a", 1.0), parent=anchor.id, memory_snapshot="mX"),))

    def orphan(anchor: Episode, index: int) -> Group:
        before = anchor.segments[index].memory_before
        return Group("a", before, (replace(episode("a", 1.0), memory_snapshot=before),))

    with pytest.raises(ValueError, match="2 memory states"):
        branched([anchored()], Branches(elsewhere, probability=1.0), 0)
    with pytest.raises(ValueError, match="name another parent"):
        branched([anchored()], Branches(orphan, probability=1.0), 0)
    with pytest.raises(ValueError, match="rolls nothing again"):
        Branches(orphan, probability=0.0)


class Vowels:
    """A tiny model says a letter; a vowel is right. Tasks are prompts, some of which reward anything."""

    def __init__(self, model) -> None:
        self.model = model
        self.names = ["ab", "cd", "always", "never"]

    def tasks(self, step: int, attempt: int, count: int) -> list[str]:
        return batch(self.names, count, step if not attempt else 1000 * step + attempt, 0)

    def key(self, task: str) -> str:
        return task

    def sample(self, tasks: Sequence[str], step: int, attempt: int, stage: Stage | None) -> list[Group]:
        params = SamplingParams(stage.horizon if stage and stage.horizon else 1, n=4, seed=100 * step + attempt)
        prompts = [self.model.encode(task) for task in tasks]
        return [
            Group(task, "", tuple(self._episode(task, prompt, sample, i) for i, sample in enumerate(samples)))
            for task, prompt, samples in zip(tasks, prompts, self.model.sample(prompts, params), strict=True)
        ]

    def _episode(self, task: str, prompt, sample, index: int) -> Episode:
        reward = {"always": 1.0, "never": 0.0}.get(task, float(sample.ids[0] % 2))
        segment = Segment("r", "p", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "")
        return replace(episode(task, reward, str(index)), segments=(segment,))

    def evaluate(self, step: int) -> None: ...


def vowels(path: Path, steps: int, stop_after: int | None = None) -> list[dict[str, object]]:
    """Train with every part, killed after a checkpoint where asked; returns the rows without times."""
    model = tiny_model(precision="fp32")
    learner = Learner(model, unfreeze(model), GROUP_RELATIVE, Optimisation(learning_rate=1e-3), "r")
    stages = (Stage(2, horizon=1), Stage(2, horizon=2))

    def hook(step: int) -> None:
        if step == stop_after:
            raise KeyboardInterrupt

    with RunFolder.create(path, {}) as run:
        steering = Steering(2, stages=stages, band=Band(retry=3), refill=2, before_rollout=hook)
        collector = SteeredCollector(Vowels(model), run, steering)
        try:
            train(run, learner, collector, Schedule(steps, 9, 2), SilentProgress(), "vowels")
        except KeyboardInterrupt:
            assert stop_after is not None
        rows = [{k: v for k, v in row.items() if k != "time" and not k.startswith("seconds")} for row in run.metrics()]
        return [*rows, *run.curriculum()]


def test_a_steered_training_that_was_stopped_ends_like_a_straight_one(tmp_path: Path) -> None:
    straight = vowels(tmp_path / "straight", 6)
    stopped = vowels(tmp_path / "stopped", 6, stop_after=5)
    assert stopped != straight
    assert vowels(tmp_path / "stopped", 6) == straight
    assert [row["curriculum/stage"] for row in straight if "reward" in row and "episodes" in row] == [0, 0, 1, 1, 1, 1]
    assert {row["task"] for row in straight if row.get("what") == "aside"} <= {"ab", "cd", "always", "never"}
    assert any(row.get("what") == "rejected" for row in straight)


def test_difficulty_goes_by_the_score_before_shaping(run: RunFolder) -> None:
    """With a term for length on top, no task would ever look as if it were always won."""

    class Shaped(World):
        def sample(self, tasks: Sequence[str], step: int, attempt: int, stage: Stage | None) -> list[Group]:
            def longer(each: Episode, by: float) -> Episode:
                return replace(each, rewards=(*each.rewards, RewardTerm("length", -by, shaping=True)))

            groups = super().sample(tasks, step, attempt, stage)
            return [
                replace(group, episodes=tuple(longer(each, 0.1 * i) for i, each in enumerate(group.episodes)))
                for group in groups
            ]

    world = Shaped({"a": WON, "b": MIXED, "c": MIXED})
    collector = SteeredCollector(world, run, Steering(1, band=Band(0.0, 1.0, retry=3)))
    assert [tasks_of(collector.collect(step).groups) for step in (0, 3)] == [["a"], ["b"]]
    assert [row["score"] for row in run.curriculum() if row["what"] == "outcome"] == [1.0, 0.5]
