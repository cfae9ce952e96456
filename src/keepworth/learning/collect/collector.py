"""Where the trainer's groups come from: what a collector is, and the settings of one that samples ahead of the learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from keepworth.episodes.episode import Episode, Group, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run.checkpoint import Checkpoint

if TYPE_CHECKING:
    from keepworth.learning.collect.groups import RecordedContext


# Collector: where the trainer's groups come from. `keepworth.learning.collect.pipeline.Pipeline` is the one that samples.


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


# How far the sampler may run ahead of the learner, and how both share the machine: the settings of a pipeline, as plain data.
#
# Staleness is bounded where a group is started, not by throwing finished work away (AReaL, arXiv 2505.24298, section 4.2):
# with B groups per update, S versions of lag allowed and v updates made, a group starts only while
#
#     accepted + running < (S + v + 1) * B,
#
# `accepted` counting every group that was ever finished and kept. The bound is on groups, so one slow group can still
# outlive it; `Staleness.choose` says for which groups the next update has to wait so that none does. Synchronous training is
# staleness 0 of the same: see `synchronous`.


OnStale = Literal["wait", "keep", "evict"]


class AdmissionError(KeepworthError, ValueError):
    """Settings of asynchronous training that cannot take effect."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """groups: trained per update. max_staleness: by how many versions a trained token may be behind the learner.
    pipeline_depth: groups started and not yet trained, in batches: 1.5 asks for half a batch more than is needed and
    goes on with the rest in the next round (APRIL, arXiv 2509.18521). on_stale: what happens to a group that would
    exceed `max_staleness`: the update waits for it ("wait"), it is trained anyway and counted ("keep"), or it is dropped
    and one other is started for it ("evict").

    Raises AdmissionError.
    """

    groups: int
    max_staleness: int = 1
    pipeline_depth: float = 2.0
    on_stale: OnStale = "wait"

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise AdmissionError(f"An update trains at least one group, not {self.groups}.", "Set groups to 1 or more.")
        if self.max_staleness < 0:
            raise AdmissionError(
                f"max_staleness = {self.max_staleness} is below 0.",
                "0 is synchronous; asynchronous training uses 1 to 8.",
            )
        if self.on_stale not in ("wait", "keep", "evict"):
            raise AdmissionError(f"on_stale = {self.on_stale!r} is unknown.", "Known: wait, keep, evict.")
        if not 1 <= self.pipeline_depth < math.inf:
            raise AdmissionError(
                f"pipeline_depth = {self.pipeline_depth} is not a number of batches from 1 on.", "Set it to 1 or more."
            )
        if self.pipeline_depth > self.max_staleness + 1:
            raise AdmissionError(
                f"pipeline_depth = {self.pipeline_depth:g} cannot take effect: with max_staleness = {self.max_staleness} "
                f"at most {self.max_staleness + 1} batches may be started and not yet trained.",
                f"Lower pipeline_depth to {self.max_staleness + 1} or less, or raise max_staleness.",
            )

    def capacity(self, *, version: int, accepted: int, running: int, consumed: int) -> int:
        """How many groups may be started now. All arguments are counts of groups, but `version`, which counts updates."""
        within = (self.max_staleness + version + 1) * self.groups - (accepted + running)
        ahead = math.ceil(self.pipeline_depth * self.groups) - (accepted + running - consumed)
        return max(0, min(within, ahead))

    def lag(self, version: int, born: int) -> int:
        """By how many versions a token of version `born` is behind. Of a version that a resumed run has not reached again,
        the distance counts: those weights are as foreign."""
        return abs(version - born)

    def choose(self, version: int, finished: Mapping[int, int], running: Mapping[int, int]) -> list[int] | None:
        """The groups of the update from `version`, oldest first; None where it has to wait for one that runs.

        finished, running: the version under which each group was started, by its index. With on_stale "wait" every group has
        a last version from which it can be trained, and an update waits unless, after it, all that is left can still be
        trained in time at `groups` per update. Taking what is ready is else free to leave more old groups behind than one
        later update can hold. Admission keeps it possible.
        """
        if len(finished) < self.groups:
            return None
        chosen = sorted(finished, key=lambda index: (finished[index], index))[: self.groups]
        if self.on_stale != "wait":
            return chosen
        for later in range(self.max_staleness):
            oldest = version + later - self.max_staleness  # what must be trained from version + later at the latest
            left = sum(born <= oldest for born in (*finished.values(), *running.values()))
            now = sum(finished[index] <= oldest for index in chosen)
            if now < min(self.groups, left - later * self.groups):
                return None
        return chosen


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
