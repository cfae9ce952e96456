"""`keepworth demo`: the answerer of Memory-R1 learns, after it was said what will be done and how long that takes here."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from keepworth.learning.learner import Learner
from keepworth.learning.run_folder import RunFolder
from keepworth.learning.watch.progress import STEP, Plan, PlanPart, Progress
from keepworth.methods.recipes._memory_r1.answerer import ANSWER, Answering, answers, train_answerer
from keepworth.methods.recipes._memory_r1.settings import Config
from keepworth.models.threads import available_cores
from keepworth.recipes.training import finish
from keepworth.rollouts.driver import together

LONG = 900.0
"""Seconds from which on the quick demo is offered."""
USUAL = {False: (7.3, 6.3), True: (1.5, 1.0)}
"""Minutes that the whole takes on one idle core and on two or more (the README's table); True: the quick demo."""


def demo_config(quick: bool) -> Config:
    """Quick: enough steps to see every part at work, too few to learn much."""
    if quick:
        return Config(curve="test", steps=4, evaluate_every=4, questions=12, checkpoint_every=2)
    return Config(curve="test", evaluate_every=5, checkpoint_every=5)


def demo(quick: bool, run: RunFolder, progress: Progress) -> None:
    """Plan, train, measure. A second call goes on where the first was stopped."""
    planner = Planner(quick, run, progress)
    if planner.done is None:
        cores = min(available_cores(), 2)
        progress.note(
            f"About {USUAL[quick][cores - 1]:.0f} min on {cores} idle cores with bfloat16, longer without it, or where other "
            "programs compute. A better time follows once this machine is measured."
        )
    tables = train_answerer(planner.config, run, progress, planner)
    minutes = planner.minutes()
    if "took" in minutes:
        progress.note(f"Planned: {minutes['planned']:.1f} min; took {minutes['took']:.1f} min.")
    finish(run, tables, minutes=minutes)


class Planner:
    """Measures one step and some answers before anything is done, and says what will be done and how long that takes."""

    def __init__(self, quick: bool, run: RunFolder, progress: Progress) -> None:
        self.config, self.quick, self.run, self.progress = demo_config(quick), quick, run, progress
        last = run.latest_checkpoint(verify=False)
        self.done = last.step if last else None
        self.plan: Plan | None = None
        self.began = 0.0

    def __call__(self, answering: Answering, learner: Learner) -> Plan:
        """See `train_answerer`. The learner is left as it was."""
        seconds = measured_seconds(answering, learner, self.progress)
        sizes = {split: len(tasks) for split, tasks in answering.sets.items()}
        self.plan = plan_of(self.config, sizes, self.done, seconds)
        self.began = time.monotonic()
        rest = "What will be done" if self.done is None else "What is left to do"
        measured = f"measured: {seconds[STEP]:.1f} s a step, {seconds[ANSWER]:.2f} s an answer"
        how = self.run.environment
        computed = f"threads = {how['threads']}, precision = {how['precision']}"
        head = f"{rest}, and how long it takes here ({computed}; {measured}):"
        self.progress.note("\n".join([head, *self.plan.lines()]))
        if self.plan.planned > LONG and not self.quick:
            short = demo_config(True)
            fewer = {split: min(size, short.questions or size) for split, size in sizes.items()}
            minutes = plan_of(short, fewer, None, seconds).planned / 60
            self.progress.note(
                f"That is long. `keepworth demo --quick` (make demo QUICK=1) takes about {max(1, round(minutes))} min here: "
                "every part at work, without time to learn much."
            )
        self.progress.planned(self.plan)
        return self.plan

    def minutes(self) -> dict[str, Any]:
        """What was planned and, of a run that was never stopped, what it took."""
        assert self.plan is not None
        parts = {part.name: self.plan.seconds(part) / 60 for part in self.plan.parts}
        planned = {"planned": self.plan.planned / 60, "parts": parts, "unit_seconds": self.plan.seconds_of_each}
        return planned if self.done is not None else {**planned, "took": (time.monotonic() - self.began) / 60}


def plan_of(config: Config, sizes: Mapping[str, int], done: int | None, seconds: Mapping[str, float]) -> Plan:
    """The parts of a training of the answerer with a curve on test questions.

    sizes: questions of each split; done: steps that are behind it, None where not even the first measurements are."""
    assert config.steps
    assert config.evaluate_every
    every = config.evaluate_every
    ends, between = (
        4 * sizes["test"],
        3 * sizes["test"],
    )  # `Answering.evaluate`: the arms of the table, and of the curve
    points = [step for step in range((done or 0) + 1, config.steps) if step % every == 0]
    left = config.steps - (done or 0)
    return Plan(
        [
            PlanPart("measuring before training", ANSWER, ends if done is None else 0),
            PlanPart(f"training, {left} steps", STEP, left),
            PlanPart(f"measuring every {every} steps", ANSWER, between * len(points)),
            PlanPart("measuring after training", ANSWER, ends if left else 0),
        ],
        seconds,
    )


def measured_seconds(answering: Answering, learner: Learner, progress: Progress) -> dict[str, float]:
    """Of one step (sampling and learning) and of one answer, measured on training questions; then all is as it was."""
    config, random = answering.config, torch.get_rng_state()
    before = copy.deepcopy(learner.state())
    begun = time.perf_counter()
    tasks = [answering.task(position) for position in range(config.tasks_per_step)]
    progress.phase(f"measuring a step: sampling {len(tasks) * config.group_size} answers")
    groups = together(answering.model, tasks, answering.rollout, n=config.group_size)
    progress.phase(f"measuring a step: sampled in {time.perf_counter() - begun:.0f} s, learning from it")
    learner.update(groups)
    step = time.perf_counter() - begun
    learner.load(before)
    torch.set_rng_state(random)
    tasks = answering.sets["train"][: len(answering.sets["test"])]
    progress.phase(f"a step took {step:.0f} s; measuring {len(tasks)} answers")
    begun = time.perf_counter()
    answers(answering.model, tasks, answering.recall, config.max_tokens, answering.style)
    return {STEP: step, ANSWER: (time.perf_counter() - begun) / len(tasks)}
