"""The trainer: one loop from a task to better weights, and back after a kill.

It reads like the algorithm. What is sampled and how it is measured is a `Curriculum`, handed in; everything that the
next step depends on is either in the checkpoint or a function of (seed, step), so that a run killed anywhere continues
as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from recollect.episodes.episode import Group
from recollect.learning.episode_metrics import episode_metrics
from recollect.learning.masters import Masters
from recollect.learning.progress import Progress
from recollect.learning.run_folder import RunFolder
from recollect.models.adapter import save_trained
from recollect.models.inprocess import InProcessModel


class Curriculum(Protocol):
    """What a recipe says about its training."""

    def rollout(self, step: int) -> list[Group]:
        """The groups of step `step` (from 0), sampled with the model as it is."""
        ...

    def evaluate(self, step: int) -> None:
        """Measure the model after `step` updates and write the measurements to the run."""
        ...


class Learns(Protocol):
    """What the loop needs of a learner: `Learner`, or `Imitator` for the supervised arm."""

    @property
    def model(self) -> InProcessModel: ...

    @property
    def role(self) -> str: ...

    @property
    def masters(self) -> Masters: ...

    def update(self, groups: Sequence[Group]) -> dict[str, float]: ...

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
    run: RunFolder, learner: Learns, curriculum: Curriculum, schedule: Schedule, progress: Progress, title: str
) -> None:
    """Take `schedule.steps` optimiser steps, or those that are left of them.

    KeyboardInterrupt leaves at once, without a checkpoint of a half-made step: the last one stands.
    FloatingPointError (a diverging step) leaves the weights of the step before, saved.
    """
    done = restore(run, learner, schedule.first)
    progress.start(schedule.steps, title)
    if done is None:
        progress.phase("measuring before training")
        curriculum.evaluate(0)
        done = 0
    for step in range(done, schedule.steps):
        begun = time.perf_counter()
        progress.phase("answering")
        groups = curriculum.rollout(step)
        sampled = time.perf_counter()
        progress.phase("learning")
        measured = episode_metrics(groups, learner.model.version)
        try:
            learned = learner.update(groups)
        except FloatingPointError:
            save(run, learner, schedule.first, step)
            raise
        row = {**measured, **learned, "seconds/sample": sampled - begun, "role": learner.role}
        run.write_episodes(schedule.first + step + 1, [episode for group in groups for episode in group.episodes])
        run.append_metrics(schedule.first + step + 1, row)
        last = step + 1 == schedule.steps
        if last or (step + 1) % schedule.evaluate_every == 0:
            progress.phase("measuring")
            curriculum.evaluate(step + 1)
        if last or (step + 1) % schedule.checkpoint_every == 0:
            save(run, learner, schedule.first, step + 1)
        progress.step(step + 1, {k: v for k, v in row.items() if isinstance(v, float)})


def save(run: RunFolder, learner: Learns, first: int, step: int) -> None:
    """A checkpoint that continues exactly: trained weights, masters, optimiser, controls, random state."""
    with run.checkpoint(first + step) as folder:
        save_trained(learner.model, learner.masters.named, folder / learner.role)
        state = {"first": first, "step": step, "role": learner.role, "torch_rng": torch.get_rng_state()}
        torch.save({**state, "learner": learner.state()}, folder / "learner.pt")


def restore(run: RunFolder, learner: Learns, first: int) -> int | None:
    """Continue from the run's last checkpoint if it belongs to this training; returns how many steps are done.

    None where there is none, which is not 0: a training whose first step diverged left a checkpoint of 0 steps, and
    what comes before the first step is behind it."""
    last = run.latest_checkpoint()
    if last is None:
        return None
    state = torch.load(last.path / "learner.pt", weights_only=True)
    if state["first"] != first or state["role"] != learner.role:
        return None
    learner.load(state["learner"])
    torch.set_rng_state(state["torch_rng"])
    return int(state["step"])
