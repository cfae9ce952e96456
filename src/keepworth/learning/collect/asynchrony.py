"""Asynchrony: how sampler and learner share the machine, and what a recipe says about its rollouts. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from keepworth.episodes.episode import Episode
from keepworth.episodes.task import Task
from keepworth.learning.collect.admission import AdmissionError, Staleness
from keepworth.learning.collect.attempt import Attempt

Mode = Literal["overlap", "turns", "serial"]
Order = Literal["arrival", "longest_first"]
Caches = Literal["recompute", "keep"]


class Episodes(Protocol):
    """What a recipe says about its asynchronous training."""

    def task(self, ticket: int) -> Task:
        """The task of the group with this number; the same whenever it is asked for."""
        ...

    async def rollout(self, task: Task, attempt: Attempt) -> Episode:
        """One episode, called `attempt.id`. Raise whatever went wrong: it becomes an episode that says so."""
        ...

    def evaluate(self, step: int) -> None:
        """Measure the learner's model after `step` updates and write the measurements to the run."""
        ...


@dataclass(frozen=True, slots=True)
class Asynchrony:
    """How sampler and learner share the machine.

    mode: "overlap", the sampler goes on in a thread of its own while the learner computes; "turns", they alternate on
    the same cores, and what is unfinished is parked meanwhile; "serial", turns in which decoding also waits for every
    other call, so that a run repeats exactly, and continues exactly after a kill.
    group_size: episodes per group. slots: sequences decoded together, whatever the group size. refill, order: see
    `ContinuousBatch`; "longest_first" expects a task's answers to be as long as its last ones were.
    caches: of unfinished sequences when new weights arrive: "recompute" reads them again, "keep" goes on with the old keys and
    values, which costs nothing and cannot be repeated.
    call_seconds, episode_seconds: how long a call of an environment or reward, and a whole episode, may take.
    retries: how often a failed episode is begun anew. failed_reward: what a reward that fails is worth; None fails its episode.
    least: episodes that make a group where others failed; two, where None. patience: failed groups in a row that end the run.
    """

    staleness: Staleness
    group_size: int
    mode: Mode = "overlap"
    slots: int = 32
    refill: int = 1
    order: Order = "arrival"
    caches: Caches = "recompute"
    seed: int = 0
    call_seconds: float = 60.0
    episode_seconds: float = 600.0
    retries: int = 1
    failed_reward: float | None = None
    least: int | None = None
    patience: int = 16

    def __post_init__(self) -> None:
        known = {
            "mode": ("overlap", "turns", "serial"),
            "order": ("arrival", "longest_first"),
            "caches": ("recompute", "keep"),
        }
        if self.mode == "serial" and self.caches == "keep":
            raise AdmissionError(
                "caches = 'keep' cannot be repeated, which is what mode = 'serial' is for.",
                "Set one of them otherwise.",
            )
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise AdmissionError(f"{name} = {getattr(self, name)!r} is unknown.", f"Known: {', '.join(values)}.")
        for name in ("group_size", "slots", "patience"):
            if getattr(self, name) < 1:
                raise AdmissionError(f"{name} = {getattr(self, name)} is below 1.", "Set it to 1 or more.")
        if self.least is not None and not 1 <= self.least <= self.group_size:
            raise AdmissionError(
                f"least = {self.least} is not between 1 and group_size = {self.group_size}: no group could be complete.",
                "Set least to the group size or less.",
            )

    @property
    def enough(self) -> int:
        """Whole episodes that make a group."""
        return min(2, self.group_size) if self.least is None else self.least
