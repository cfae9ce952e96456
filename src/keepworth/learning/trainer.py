"""The trainer: one loop from a task to better weights, and back after a kill.

It reads like the algorithm. What is sampled, and how far ahead of the learner, is the collector's affair; everything that the
next step depends on is either in the checkpoint or a function of (seed, step), so that a run killed anywhere continues
as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keepworth.episodes.needs import needs_train

import torch

from keepworth.episodes.episode import Group
from keepworth.learning.collect.collector import Collected, Collector
from keepworth.learning.run.checkpoint import LEARNER, read_learner, reading
from keepworth.learning.run.run_folder import RunFolder
from keepworth.learning.watch.episode_metrics import episode_metrics
from keepworth.learning.watch.progress import STEP, Plan, Progress
from keepworth.learning.weights.learner import MasterWeights
from keepworth.models.adapter import save_trained
from keepworth.models.inprocess import InProcessModel

__all__ = ["Learns", "Schedule", "restore", "save", "train"]

FAILED = "failed"
"""The arm under which episodes that failed are kept: they are not trained on."""


class Learns(Protocol):
    """What the loop needs of a learner: `Learner`, or `Imitator` for the supervised arm."""

    @property
    def model(self) -> InProcessModel: ...

    @property
    def role(self) -> str: ...

    @property
    def master_weights(self) -> MasterWeights: ...

    def update(self, groups: Sequence[Group]) -> dict[str, float]: ...

    def validated(self, score: float) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """steps in all; `first`: the run's step at which this training begins (another role may have trained before)."""

    steps: int
    evaluate_every: int
    checkpoint_every: int
    first: int = 0


def train(
    run: RunFolder,
    learner: Learns,
    collector: Collector,
    schedule: Schedule,
    progress: Progress,
    title: str,
    plan: Plan | None = None,
) -> None:
    """Take `schedule.steps` optimiser steps, or those that are left of them.

    collector: `keepworth.learning.collect.pipeline.Pipeline`. plan: is told of every step.
    KeyboardInterrupt leaves at once, without a checkpoint of a half-made step: the last one stands. FloatingPointError
    (a diverging step) leaves the weights of the step before, saved.
    """
    done = restore(run, learner, schedule.first)
    progress.start(schedule.steps, title)
    try:
        if done is None:
            progress.phase("measuring before training")
            collector.evaluate(0)
        collector.begin(None if done is None else run.latest_checkpoint(verify=False), schedule.first, done or 0)
        for step in range(done or 0, schedule.steps):
            begun = time.perf_counter()
            progress.phase("answering")
            collected = collector.collect(step)
            sampled = time.perf_counter()
            if reason := next((error for episode in collected.failed for error in episode.errors), ""):
                number = schedule.first + step + 1
                progress.note(
                    f"Step {number}: {len(collected.failed)} episodes are not trained on: {reason.rstrip('.')}."
                )
            progress.phase("learning")
            measured = episode_metrics(collected.groups, learner.model.version)
            try:
                learned = learner.update(collected.groups)
            except FloatingPointError:
                # A checkpoint of this step holds the same weights: writing it again could only lose it to a kill.
                last = run.latest_checkpoint(verify=False)
                if last is None or last.step != schedule.first + step:
                    save(run, learner, schedule.first, step, collector)
                raise
            published = collector.publish()
            seconds = {"seconds/sample": sampled - begun, "role": learner.role}
            row = {**measured, **learned, **collected.metrics, **published, **seconds}
            write_episodes(run, schedule.first + step + 1, collected)
            run.append_metrics(schedule.first + step + 1, row)
            if plan is not None:
                plan.did(STEP, 1, time.perf_counter() - begun)
            ends = step + 1 == schedule.steps
            if ends or (step + 1) % schedule.evaluate_every == 0:
                progress.phase("measuring")
                collector.evaluate(step + 1)
                if (score := validation_score(run, step + 1, learner.role)) is not None:
                    learner.validated(score)
            if ends or (step + 1) % schedule.checkpoint_every == 0:
                save(run, learner, schedule.first, step + 1, collector)
            progress.step(step + 1, {k: v for k, v in row.items() if isinstance(v, float)})
    finally:
        collector.close()


def validation_score(run: RunFolder, step: int, role: str) -> float | None:
    """What was measured first of the role on the dev split after that step; None where nothing was."""
    rows = [row for row in run.evals() if (row["step"], row.get("role"), row.get("split")) == (step, role, "dev")]
    return float(rows[0]["mean"]) if rows else None


def write_episodes(run: RunFolder, step: int, collected: Collected) -> None:
    """What was trained on, and beside it what came to nothing, with its errors."""
    run.write_episodes(step, [episode for group in collected.groups for episode in group.episodes])
    if collected.failed:
        run.write_episodes(step, collected.failed, arm=FAILED)


def save(run: RunFolder, learner: Learns, first: int, step: int, collector: Collector) -> None:
    """A checkpoint that continues exactly: trained weights, master weights, optimiser, controls, random state, and what waits."""
    with run.checkpoint(first + step) as folder:
        save_trained(learner.model, learner.master_weights.named, folder / learner.role)
        state = {"first": first, "step": step, "role": learner.role, "torch_rng": torch.get_rng_state()}
        torch.save({**state, "learner": learner.state()}, folder / LEARNER)
        collector.save(folder, first + step)


def restore(run: RunFolder, learner: Learns, first: int) -> int | None:
    """Continue from the run's last checkpoint if it belongs to this training; returns how many steps are done.

    None where there is none, which is not 0: a training whose first step diverged left a checkpoint of 0 steps, and
    what comes before the first step is behind it. Raises CheckpointCorrupt for one that cannot be continued from."""
    last = run.latest_checkpoint()
    if last is None:
        return None
    state = read_learner(last)
    with reading(last.path / LEARNER, last):
        if state["first"] != first or state["role"] != learner.role:
            return None
        learner.load(state["learner"])
        torch.set_rng_state(state["torch_rng"])
        return int(state["step"])
