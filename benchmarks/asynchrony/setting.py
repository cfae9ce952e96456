"""What the measurements of asynchrony share: a world whose answers and waits are a fixed trace, and a stopwatch."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.episodes import Episode, RewardTerm, SamplingParams, Segment, StopReason, Task
from keepworth.learning.collect.groups import RecordedContext
from keepworth.learning.collect.pipeline import Asynchrony, Pipeline
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.options import Objective
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.trainer import Schedule, train
from keepworth.learning.watch.progress import SilentProgress
from keepworth.models.adapter import attach_lora, unfreeze
from keepworth.models.inprocess import InProcessModel

HERE = Path(__file__).parent
ROLE = "speaker"
Trace = Callable[[int, int], float]
"""A number for (index, member), the same in every arm."""


def lognormal(median: float, sigma: float, seed: int, low: float = 0.0, high: float = float("inf")) -> Trace:
    """Drawn once for each (index, member)."""

    def drawn(index: int, member: int) -> float:
        generator = np.random.default_rng((seed, index, member))
        return float(min(max(median * np.exp(sigma * generator.standard_normal()), low), high))

    return drawn


@dataclass(frozen=True, slots=True)
class World:
    """One call of the model per episode, of a length that the trace says, then a wait that it says. The prompt names one
    of `prompts` sets of letters; the reward is the share of drawn letters that are in it."""

    lengths: Trace
    waits: Trace | None = None
    prompts: int = 8
    encode: Callable[[str], tuple[int, ...]] = lambda text: tuple(text.encode())
    padding: str = ""

    def task(self, index: int) -> Task:
        number = index % self.prompts
        return Task(f"letters/{number}", "letters", f"{self.padding}letters {number}:", (), "none")

    async def rollout(self, task: Task, context: RecordedContext) -> Episode:
        prompt = self.encode(task.input)
        length = max(1, round(self.lengths(context.group, context.member)))
        sample = await context.sample(prompt, SamplingParams(length))
        wait = 0.0 if self.waits is None else self.waits(context.group, context.member)
        if wait:
            await self.spend(wait, context)
        segment = Segment(ROLE, "p", prompt, sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, "")
        return Episode(
            id=context.id,
            task=task.key,
            role=ROLE,
            question="",
            segments=(segment,),
            answer="",
            expected=(),
            rewards=(RewardTerm("share", share(int(task.key.split("/")[1]), sample.ids)),),
            stop=StopReason.COMPLETED,
            memory_snapshot="",
            policy_version=sample.spans[0].version,
            seconds={"environment": wait},
        )

    async def spend(self, wait: float, context: RecordedContext) -> None:
        """What an environment does after the answer. wait: seconds, as the trace says."""
        await asyncio.sleep(wait)

    def evaluate(self, step: int) -> None:
        """Nothing: every arm is measured by what it trained on, or afterwards."""


def share(number: int, ids: tuple[int, ...]) -> float:
    return sum(each % 4 == number % 4 for each in ids) / len(ids)


@dataclass(slots=True)
class Stopwatch(SilentProgress):
    """When each step ended, on the wall and on this process's processors, and its row."""

    ends: list[float] = field(default_factory=list)
    processors: list[float] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.ends.append(time.perf_counter())
        self.processors.append(time.process_time())
        self.rows.append(dict(metrics))

    def steady(self, skip: int) -> dict[str, float]:
        """Means per step over the steps after the first `skip`, while the pipeline is full."""
        rows = self.rows[skip:]
        seconds = (self.ends[-1] - self.ends[skip - 1]) / len(rows)
        cpu = (self.processors[-1] - self.processors[skip - 1]) / len(rows)
        mean = {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in NAMES}
        drawn = mean["drawn_tokens"]
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            **mean,
            "drawn_tokens_per_second": drawn / seconds,
            "drawn_tokens_per_cpu_second": drawn / cpu,
        }


NAMES = (
    "episodes",
    "drawn_tokens",
    "reward",
    "seconds/learn",
    "seconds/sample",
    "pipeline/unfinished_tokens",
    "pipeline/over_bound",
)


def tiny(seed: int = 0, hidden: int = 64) -> InProcessModel:
    from tests.models.tiny import tiny_model

    return tiny_model(seed, hidden=hidden)


def small() -> InProcessModel:
    """SmolLM2-135M in bfloat16."""
    from keepworth.models.files import ModelKind, path_of

    return InProcessModel.load(path_of("smollm2-135m-instruct", kind=ModelKind.LANGUAGE), precision="bf16")


def learner_of(
    model: InProcessModel, objective: Objective, learning_rate: float, lora: bool = False, minibatches: int = 1
) -> Learner:
    named = attach_lora(model, 16) if lora else unfreeze(model)
    return Learner(model, named, objective, Optimisation(learning_rate=learning_rate, minibatches=minibatches), ROLE)


def run(
    learner: Learner,
    world: World,
    asynchrony: Asynchrony,
    steps: int,
    pipeline: Callable[..., Pipeline] = Pipeline,
) -> Stopwatch:
    """Train in a folder of its own, which is deleted."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, RunFolder.create(Path(folder) / "run", {}) as opened:
        schedule = Schedule(steps, evaluate_every=steps + 1, checkpoint_every=steps + 1)
        train(opened, learner, pipeline(opened, learner, world, asynchrony), schedule, watch, "measured")
    return watch


def write(name: str, result: dict[str, Any]) -> None:
    (HERE / name).write_text(json.dumps(result, indent=2) + "\n")
