"""A task small enough to train on in a test: write letters that come early in the alphabet of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.records import Episode, RewardTerm, SamplingParams, Task
from keepworth.training.collect.asynchrony import Asynchrony, Staleness
from keepworth.training.collect.curriculum import SPAN
from keepworth.training.collect.groups import EpisodeContext
from keepworth.training.collect.pipeline import Pipeline
from keepworth.training.learner import Learner
from keepworth.training.objective.parts import GroupStd, Outcome
from keepworth.training.objective.presets import preset, vary_objective
from keepworth.training.run_folder import RunFolder
from keepworth.training.trainer import Schedule, train
from keepworth.training.watch.progress import Progress
from tests.episode_of import call_of, episode_of
from tests.learning.turns import learner_of

OBJECTIVE = vary_objective(preset("areal"), advantage=Outcome("group", GroupStd()))


def low(ids: tuple[int, ...]) -> float:
    return sum(identifier < 100 for identifier in ids) / len(ids)


class Letters:
    """lengths: of the answer, by index; turns: model calls per episode; latency: seconds
    before the reward; score: the reward function, called like a user's."""

    def __init__(
        self,
        lengths: Callable[[int], int] = lambda index: 3 + 5 * (index % 3),
        turns: int = 1,
        latency: Callable[[int, int], float] | None = None,
        score: Callable[..., Any] = low,
    ) -> None:
        self.lengths, self.turns, self.latency, self.score = lengths, turns, latency, score
        self.measured: list[int] = []

    def task(self, index: int) -> Task:
        number = sum(divmod(index, SPAN)) % 5
        return Task(f"letters/{number}", "letters", f"letters {number}:", (), "none")

    async def rollout(self, task: Task, context: EpisodeContext) -> Episode:
        prompt = tuple(task.input.encode())
        segments = []
        for turn in range(self.turns):
            length = self.lengths(context.group)
            sample = await context.sample(prompt, SamplingParams(length, temperature=1.0))
            segments.append(call_of("speaker", prompt, sample))
            if self.latency is not None:
                await asyncio.sleep(self.latency(context.group, context.member))
            prompt = (*prompt, *sample.ids, *f"/{turn}".encode())
        drawn = tuple(identifier for segment in segments for identifier in segment.ids)
        rewards = [await context.reward("low", self.score, drawn)]
        version = segments[0].spans[0].version
        return episode_of(context.id, segments, rewards, task=task.key, role="speaker", policy_version=version)

    def evaluate(self, step: int) -> None:
        self.measured.append(step)


def press() -> None:
    raise KeyboardInterrupt


class Stops(Letters):
    """As if somebody pressed Ctrl-C at the measurements after the beginning. at_step: what happens there instead."""

    def __init__(self, *given: Any, at_step: Callable[[], None] = press, **more: Any) -> None:
        super().__init__(*given, **more)
        self.at_step = at_step

    def evaluate(self, step: int) -> None:
        if step:
            self.at_step()


def trained(folder: Path, arm: str = "train") -> list[tuple[int, Episode]]:
    """Step and episode of all that was trained; of all that failed, where that is the arm."""
    return [(stored.step, stored.episode) for stored in RunFolder.open(folder).episodes(arm=arm)]


def failed(folder: Path) -> list[Episode]:
    return [episode for _, episode in trained(folder, "failed")]


def index_of(episode: Episode) -> int:
    """Of its group."""
    return int(episode.id.split("/")[0])


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What a run measured at each step, but for times."""
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in RunFolder.open(folder).metrics()]


async def again(anchor: Episode, index: int, context: EpisodeContext) -> Episode:
    """A re-roll: the same call from the same context."""
    of = anchor.segments[index]
    sample = await context.sample(of.context, SamplingParams(len(of.ids), temperature=1.0))
    segment = replace(of, ids=sample.ids, logprobs=sample.logprobs, finish=sample.finish, spans=sample.spans)
    more = {"memory_snapshot": of.memory_before, "policy_version": sample.spans[0].version, "parent": anchor.id}
    rewards = [RewardTerm("low", low(sample.ids))]
    return episode_of(context.id, [segment], rewards, task=anchor.task, role="speaker", **more)


def settings(**changes: Any) -> Asynchrony:
    """Four groups of three, in turns, unless changed; staleness settings by their names. mode = "serial" is staleness 0."""
    if changes.get("mode") == "serial":
        changes = {"max_staleness": 0, "pipeline_depth": 1.0, "slots": None, **changes}
    of_staleness = {"max_staleness": 2, "pipeline_depth": 2.0}
    staleness = Staleness(
        changes.pop("groups", 4), **{name: changes.pop(name, value) for name, value in of_staleness.items()}
    )
    return Asynchrony(staleness, **{"group_size": 3, "mode": "turns", "slots": 6, "call_seconds": 20.0, **changes})


def train_letters(
    folder: Path,
    steps: int,
    asynchrony: Asynchrony,
    letters: Letters | None = None,
    checkpoint_every: int = 2,
    learner: Learner | None = None,
    evaluate_every: int = 100,
    progress: Progress = Progress(),  # noqa: B008
    **hooks: Any,
) -> Learner:
    """Train in `folder`, or continue what is there. hooks: what else the pipeline is given."""
    learner = learner or learner_of(OBJECTIVE, hidden=16, learning_rate=1e-2)
    letters = letters or Letters()
    with RunFolder.create(folder, {"steps": steps}, clock=lambda: 0.0) as run:
        collector = Pipeline(run, learner, letters, asynchrony, **hooks)
        train(run, learner, collector, Schedule(steps, evaluate_every, checkpoint_every), progress, "letters")
    return learner
