"""Steering: what is sampled for each step, and which of it is trained on, with every rejection written down.

`SteeredCollector` stands where the trainer's synchronous collector stands. Every part may be left out; without any of
them it collects exactly what the sampling gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.branches import Branches, BranchesAhead, branched
from keepworth.learning.collect.collector import Collected, Collector
from keepworth.learning.collect.difficulty import Band, Difficulty
from keepworth.learning.collect.stages import Stage, reweighed, reweighted, stage_at
from keepworth.learning.collect.tickets import LOOKS
from keepworth.learning.run.checkpoint import Checkpoint
from keepworth.learning.run.run_folder import RunFolder

T = TypeVar("T")
AfterGroup = Callable[[int, Group], Group | None]


def without_signal(group: Group) -> str:
    """Why a group teaches nothing to whoever compares its members; "" where it does."""
    rewards = [episode.reward for episode in group.episodes]
    if len(rewards) < 2:
        return "one episode, nothing to compare it with"
    return f"all {len(rewards)} rewards are {rewards[0]:g}" if min(rewards) == max(rewards) else ""


class Sampling(Protocol[T]):
    """A recipe's training in its parts: which tasks, and their groups."""

    def tasks(self, step: int, attempt: int, count: int) -> list[T]:
        """`count` tasks for step `step` (from 0). attempt 0 is the step's own; later ones are others, in place of those
        that were rejected. A function of its arguments."""
        ...

    def key(self, task: T) -> str:
        """The task's key, as in `Group.task`."""
        ...

    def sample(self, tasks: Sequence[T], step: int, attempt: int, stage: Stage | None) -> list[Group]:
        """One group per task, in order, sampled with the model as it is; as far as `stage` lets them go."""
        ...

    def evaluate(self, step: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Steering:
    """tasks_per_step: groups of a step. stages: see `Stage`. band: put tasks aside that are too hard or too easy.
    refill: how often other tasks are sampled in place of groups without a signal (dynamic sampling: DAPO, arXiv 2503.14476).
    reject: why a group is to be replaced so, or "". branches: re-rolls of single calls, `BranchesAhead` where
    groups are sampled ahead.
    before_rollout is called with the step (from 0) before anything is sampled for it; after_group with each group that is to
    be trained on, and answers with it, with another in its place, or with None to leave it out.

    The same data steers a `Pipeline`, which samples ahead: see `keepworth.learning.collect.steering_ahead`."""

    tasks_per_step: int
    stages: tuple[Stage, ...] = ()
    band: Band | None = None
    refill: int = 0
    reject: Callable[[Group], str] = without_signal
    branches: Branches | BranchesAhead | None = None
    before_rollout: Callable[[int], None] | None = None
    after_group: AfterGroup | None = None

    def __post_init__(self) -> None:
        if self.tasks_per_step < 1 or self.refill < 0:
            raise ValueError("tasks_per_step must be at least 1 and refill at least 0")
        if self.reject is not without_signal and not self.refill:
            raise ValueError("reject has no effect without refill, which samples others in place of what it rejects")


class SteeredCollector(Collector, Generic[T]):
    """Collects a step's groups as `steering` says. What was rejected goes to the run's curriculum.jsonl, with the reason.

    first: the run's step at which this training begins, as in `Schedule`."""

    def __init__(self, sampling: Sampling[T], run: RunFolder, steering: Steering, first: int = 0) -> None:
        if isinstance(steering.branches, BranchesAhead):
            raise ValueError("BranchesAhead are for a Pipeline: training in turns re-rolls whole groups, with Branches")
        self._sampling, self._run, self._first = sampling, run, first
        self._branches = steering.branches
        self.steering = steering
        self._difficulty = None if steering.band is None else Difficulty(steering.band)

    def begin(self, checkpoint: Checkpoint | None, step: int) -> None:
        # The log holds nothing later than the checkpoint: what it says is what was known there.
        if self._difficulty is not None:
            self._difficulty.restore(row for row in self._run.curriculum() if int(row["step"]) > self._first)

    def evaluate(self, step: int) -> None:
        self._sampling.evaluate(step)

    def collect(self, step: int) -> Collected:
        steering = self.steering
        if steering.before_rollout is not None:
            steering.before_rollout(step)
        number, stage = stage_at(steering.stages, step) if steering.stages else (None, None)
        kept: list[Group] = []
        silent: list[Group] = []
        seen: set[str] = set()
        for attempt in range(steering.refill + 1):
            tasks = self._chosen(step, attempt, steering.tasks_per_step - len(kept), seen)
            if not tasks:
                break  # there are no others
            groups = self._sampling.sample(tasks, step, attempt, stage)
            for group in reweighted(groups, stage.weights if stage is not None else {}):
                self._note(group, step)
                if steering.refill and (reason := steering.reject(group)):
                    self._reject(group.task, reason, step)
                    silent.append(group)
                else:
                    kept.append(group)
            if len(kept) >= steering.tasks_per_step:
                break
        # Nothing with a signal: the step is measured by what there is, and teaches nothing.
        chosen = self._looked_at(kept, step) if kept else silent
        metrics = {}
        if steering.refill:
            every = [episode.reward for group in (*kept, *silent) for episode in group.episodes]
            metrics = {
                "curriculum/sampled_groups": float(len(kept) + len(silent)),
                "curriculum/rejected_groups": float(len(silent)),
                "curriculum/reward_sampled": sum(every) / len(every),  # `reward` is that of what was kept
            }
        if number is not None:
            metrics["curriculum/stage"] = float(number)
        if self._branches is not None:
            rerolls = branched(chosen, self._branches, step)[len(chosen) :]
            chosen += [reweighed(group, stage.weights if stage is not None else {}) for group in rerolls]
        return Collected(chosen, metrics=metrics)

    def _chosen(self, step: int, attempt: int, count: int, seen: set[str]) -> list[T]:
        """Up to `count` tasks that are in the band. The step's own come as they are drawn, others once each: `seen` grows.

        Of the step's own, those put aside are taken after all where nothing else is found, the longest ago first."""
        chosen: list[T] = []
        aside: dict[str, T] = {}
        for look in range(LOOKS if attempt or self._difficulty else 1):
            # A draw for each (attempt, look), the step's own being (0, 0).
            for task in self._sampling.tasks(step, attempt * LOOKS + look, count - len(chosen)):
                key = self._sampling.key(task)
                if key in seen and (attempt or look):
                    continue
                seen.add(key)
                if reason := self._aside(key, step):
                    self._reject(key, reason, step, what="aside")
                    aside[key] = task
                else:
                    chosen.append(task)
            if len(chosen) >= count:
                return chosen
        while self._difficulty is not None and not attempt and aside and len(chosen) < count:
            chosen.append(aside.pop(self._difficulty.oldest(list(aside))))
        return chosen

    def _aside(self, task: str, step: int) -> str:
        return "" if self._difficulty is None else self._difficulty.aside(task, self._first + step + 1)

    def _looked_at(self, groups: Sequence[Group], step: int) -> list[Group]:
        seen, left_out = looked_at(groups, step, self.steering.after_group)
        for row in left_out:
            self._run.append_curriculum(self._first + step + 1, **row)
        return [group for group in seen if group is not None]

    def _note(self, group: Group, step: int) -> None:
        if self._difficulty is None:
            return
        score = sum(episode.metric for episode in group.episodes) / len(group.episodes)
        at = self._first + step + 1
        self._difficulty.note(group.task, score, at)
        self._run.append_curriculum(at, what="outcome", task=group.task, score=score)

    def _reject(self, task: str, reason: str, step: int, what: str = "rejected") -> None:
        self._run.append_curriculum(self._first + step + 1, what=what, task=task, reason=reason)


def looked_at(
    groups: Sequence[Group], step: int, after_group: AfterGroup | None
) -> tuple[list[Group | None], list[dict[str, str]]]:
    """The groups as the hook wants them, None where it left one out, and a row of the log for each of those. Raises
    KeepworthError where none is left."""
    if after_group is None:
        return list(groups), []
    seen = [after_group(step, group) for group in groups]
    left_out = [
        {"what": "rejected", "task": group.task, "reason": "left out by after_group"}
        for group, kept in zip(groups, seen, strict=True)
        if kept is None
    ]
    if all(group is None for group in seen):
        raise KeepworthError(
            f"after_group left out every group of step {step + 1}: there is nothing to learn from.",
            "Let at least one through.",
        )
    return seen, left_out
