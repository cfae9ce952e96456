"""Asynchrony: how sampler and learner share the machine, and what a recipe says about its rollouts. Plain data.

Synchronous training is staleness 0 of the same: see `synchronous`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from keepworth.episodes.episode import Episode
from keepworth.episodes.task import Task
from keepworth.learning.collect.admission import AdmissionError, Staleness
from keepworth.learning.collect.context import RecordedContext

Mode = Literal["overlap", "turns", "serial"]
Order = Literal["arrival", "longest_first"]
Caches = Literal["recompute", "keep"]


class Episodes(Protocol):
    """What a recipe says about its training."""

    def task(self, group: int) -> Task:
        """The task of the group with this index; the same whenever it is asked for."""
        ...

    async def rollout(self, task: Task, context: RecordedContext) -> Episode:
        """One episode, called `context.id`. Raise whatever went wrong: it becomes an episode that says so."""
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
    group_size: episodes per group. slots: sequences decoded together, whatever the group size; None is 32. refill, order: see
    `ContinuousBatch`; "longest_first" expects a task's answers to be as long as its last ones were. None of the three has an
    effect on whole calls (see `whole_calls`), and is refused there.
    caches: of unfinished sequences when new weights arrive: "recompute" reads them again, "keep" goes on with the old keys and
    values, which costs nothing and cannot be repeated.
    call_seconds, episode_seconds: how long a call of an environment or reward, and a whole episode, may take.
    retries: how often a failed episode is begun anew. failed_reward: what a reward that fails is worth; None fails its episode.
    least: episodes that make a group where others failed; two, where None. patience: failed groups in a row that end the run.
    """

    staleness: Staleness
    group_size: int
    mode: Mode = "overlap"
    slots: int | None = None
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
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise AdmissionError(f"{name} = {getattr(self, name)} is below 1.", "Set it to 1 or more.")
        if self.least is not None and not 1 <= self.least <= self.group_size:
            raise AdmissionError(
                f"least = {self.least} is not between 1 and group_size = {self.group_size}: no group could be complete.",
                "Set least to the group size or less.",
            )

        given = {"slots": self.slots, "refill": self.refill, "order": self.order}
        for name, value in given.items() if self.whole_calls else ():
            if value != type(self).__dataclass_fields__[name].default:
                raise AdmissionError(
                    f"{name} = {value!r} has no effect with mode = 'serial' and max_staleness = 0, where whole calls are drawn.",
                    "Leave it out, or set mode = 'turns', which decodes in slots.",
                )

    @property
    def whole_calls(self) -> bool:
        """Whether this process draws whole calls in the place of single tokens: where everybody waits for everybody anyway,
        and nothing goes on under the next weights. It is faster there, because a group's prompt is kept once."""
        return self.mode == "serial" and self.staleness.max_staleness == 0

    @property
    def width(self) -> int:
        """Sequences decoded together."""
        return 32 if self.slots is None else self.slots

    @property
    def enough(self) -> int:
        """Whole episodes that make a group."""
        return min(2, self.group_size) if self.least is None else self.least


def synchronous(groups: int, group_size: int, *, seed: int = 0, episode_seconds: float = 86_400.0) -> Asynchrony:
    """Synchronous training: `groups` groups are sampled for each update, with the weights as they are. It repeats exactly.

    episode_seconds: a day, because every episode takes as long as its step."""
    staleness = Staleness(groups, max_staleness=0, pipeline_depth=1.0)
    return Asynchrony(staleness, group_size, mode="serial", seed=seed, episode_seconds=episode_seconds)
