"""Collector: where the trainer's groups come from. `keepworth.learning.collect.pipeline.Pipeline` is the one that samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from keepworth.episodes.episode import Episode, Group
from keepworth.learning.run.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Collected:
    """What one update trains on; episodes that came to nothing, with their errors; and how the collecting went."""

    groups: list[Group]
    failed: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


class Collector(Protocol):
    """Groups for the trainer's loop."""

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        """Called once, after the learner has its weights. checkpoint: what this training continues from; first: the run's step
        at which it began; done: how many steps of it are behind it."""
        ...

    def collect(self, step: int) -> Collected:
        """The groups of step `step` (from 0)."""
        ...

    def publish(self) -> dict[str, float]:
        """The learner has taken a step: what is sampled from here on is sampled from its weights. Returns metrics."""
        ...

    def save(self, folder: Path, step: int) -> None:
        """Add to the checkpoint of `step` what collecting continues from."""
        ...

    def evaluate(self, step: int) -> None:
        """Measure the model after `step` updates and write the measurements to the run."""
        ...

    def close(self) -> None:
        """Called once, at the end, however the training ends."""
        ...
