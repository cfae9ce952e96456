"""Collector: where the trainer's groups come from, in turns with the learner or ahead of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from keepworth.episodes.episode import Episode, Group
from keepworth.learning.run.checkpoint import Checkpoint


class Curriculum(Protocol):
    """What a recipe says about its training in turns: sample, learn, sample."""

    def rollout(self, step: int) -> list[Group]:
        """The groups of step `step` (from 0), sampled with the model as it is."""
        ...

    def evaluate(self, step: int) -> None:
        """Measure the model after `step` updates and write the measurements to the run."""
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """What one update trains on; episodes that came to nothing, with their errors; and how the collecting went."""

    groups: list[Group]
    failed: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


class Collector:
    """Groups for the trainer's loop. What is here is the synchronous one: a curriculum, asked once per step.

    `keepworth.learning.collect.asynchronous.Pipeline` is the other.
    """

    def __init__(self, curriculum: Curriculum) -> None:
        self._curriculum = curriculum

    def begin(self, checkpoint: Checkpoint | None, step: int) -> None:
        """Called once, after the learner has its weights. checkpoint: what this training continues from; step: the run's."""

    def collect(self, step: int) -> Collected:
        """The groups of step `step` (from 0)."""
        return Collected(self._curriculum.rollout(step))

    def publish(self) -> dict[str, float]:
        """The learner has taken a step: what is sampled from here on is sampled from its weights. Returns metrics."""
        return {}

    def save(self, folder: Path, step: int) -> None:
        """Add to the checkpoint of `step` what collecting continues from: nothing where it is a function of the step."""

    def evaluate(self, step: int) -> None:
        self._curriculum.evaluate(step)

    def close(self) -> None:
        """Called once, at the end, however the training ends."""
