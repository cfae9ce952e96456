"""Curriculum: what is sampled for each step, and which of it is trained on, with every rejection written down.

The step that a group belongs to is that of its position (`keepworth.learning.collect.group_index`), whenever it is sampled and
whenever it is trained; so its stage is the same before a kill and after it. What is known of the tasks comes back from the run's
log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.episode import Group
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.task import Task
from keepworth.learning.collect.admission import AdmissionError, Staleness
from keepworth.learning.collect.branches import Branches
from keepworth.learning.collect.difficulty import Band, Difficulty
from keepworth.learning.collect.group_index import CANDIDATES, SPAN, position_of, retry_of
from keepworth.learning.collect.pipeline_store import Finished
from keepworth.learning.collect.stages import Stage, require_terms, reweighed, stage_at
from keepworth.learning.run.run_folder import RunFolder

AfterGroup = Callable[[int, Group], Group | None]


def without_signal(group: Group) -> str:
    """Why a group teaches nothing to whoever compares its members; "" where it does."""
    rewards = [episode.reward for episode in group.episodes]
    if len(rewards) < 2:
        return "one episode, nothing to compare it with"
    return f"all {len(rewards)} rewards are {rewards[0]:g}" if min(rewards) == max(rewards) else ""


@dataclass(frozen=True, slots=True)
class Curriculum:
    """tasks_per_step: groups of a step. stages: see `Stage`. band: put tasks aside that are too hard or too easy.
    refill: how often other tasks are sampled in place of groups without a signal (dynamic sampling: DAPO, arXiv 2503.14476).
    reject: why a group is to be replaced so, or "". branches: re-rolls of single calls.
    before_rollout is called with the step (from 0) before anything is sampled for it; after_group with each group that is to
    be trained on, and answers with it, with another in its place, or with None to leave it out."""

    tasks_per_step: int
    stages: tuple[Stage, ...] = ()
    band: Band | None = None
    refill: int = 0
    reject: Callable[[Group], str] = without_signal
    branches: Branches | None = None
    before_rollout: Callable[[int], None] | None = None
    after_group: AfterGroup | None = None

    def __post_init__(self) -> None:
        if self.tasks_per_step < 1 or self.refill < 0:
            raise ValueError("tasks_per_step must be at least 1 and refill at least 0")
        if self.reject is not without_signal and not self.refill:
            raise ValueError("reject has no effect without refill, which samples others in place of what it rejects")


class AppliedCurriculum:
    """A curriculum at work in a pipeline. Raises AdmissionError where it does not fit the pipeline's settings.

    task: of the group with an index. What is rejected or put aside is written to curriculum.jsonl by `write`, under the
    update that it came before: what a checkpoint knows is then in the log as far as that checkpoint, and nothing else is."""

    def __init__(
        self, curriculum: Curriculum, staleness: Staleness, run: RunFolder, task: Callable[[int], Task]
    ) -> None:
        if curriculum.tasks_per_step != staleness.groups:
            raise AdmissionError(
                f"The curriculum has {curriculum.tasks_per_step} tasks per step, and an update trains {staleness.groups} groups.",
                "Set both to the same number.",
            )
        self.curriculum, self.branches = curriculum, curriculum.branches
        self._run, self._task = run, task
        self._difficulty = None if curriculum.band is None else Difficulty(curriculum.band)
        self._announced = 0
        self._rows: list[dict[str, Any]] = []
        self._sampled = self._rejected = 0
        self._rewards: list[float] = []

    # -- before a group is sampled ----------------------------------------------------------------------------------

    def stage(self, group: int) -> Stage | None:
        return self._stage(group)[1]

    def admit(self, group: int, at: int) -> tuple[int, Task]:
        """The group to start, and its task: this one, or a later candidate for the same position where the task is put aside, or
        where it is to replace another and the step has that task already. Where nothing else is found, of those put aside the one
        that was sampled longest ago. at: the run's step, from 1."""
        count = self.curriculum.tasks_per_step
        step = position_of(group) // count
        while self._announced <= step:
            if self.curriculum.before_rollout is not None:
                self.curriculum.before_rollout(self._announced)
            self._announced += 1
        first = self._task(group)
        if self._difficulty is None and not retry_of(group):
            return group, first
        own = range(step * count, (step + 1) * count)
        taken = {self._task(each).key for each in own} if retry_of(group) else set()
        aside: dict[str, tuple[int, Task]] = {}
        for candidate in range(group, group + CANDIDATES * SPAN, SPAN):
            task = self._task(candidate)
            if task.key in taken:
                continue
            reason = "" if self._difficulty is None else self._difficulty.aside(task.key, at)
            if not reason:
                return candidate, task
            if task.key not in aside:
                self._rows.append({"what": "aside", "task": task.key, "reason": reason})
                aside[task.key] = candidate, task
        if self._difficulty is None or not aside:
            return group, first
        return aside[self._difficulty.oldest(list(aside))]

    # -- when it has ended ------------------------------------------------------------------------------------------

    def weighed(self, index: int, group: Group) -> Group:
        """With the reward weights of its stage."""
        stage = self.stage(index)
        return group if stage is None else reweighed(group, stage.weights)

    def replaces(self, index: int, group: Group, at: int) -> bool:
        """Whether another group is to be sampled in place of this one, which has ended."""
        rewards = [episode.reward for episode in group.episodes]
        if self._difficulty is not None:
            score = sum(episode.metric for episode in group.episodes) / len(group.episodes)
            self._difficulty.note(group.task, score, at)
            self._rows.append({"what": "outcome", "task": group.task, "score": score})
        reason = self._silent(group)
        self._sampled += 1
        self._rejected += bool(reason)
        self._rewards += rewards
        if reason:
            self._rows.append({"what": "rejected", "task": group.task, "reason": reason})
        return bool(reason) and retry_of(index) < self.curriculum.refill

    def calls(self, index: int, group: Group) -> tuple[int, ...]:
        """Which calls of its first episode are rolled again before it is trained on."""
        if self.branches is None or self._silent(group):
            return ()
        return self.branches.calls(group.episodes[0], index)

    # -- when it is to be trained on --------------------------------------------------------------------------------

    def chosen(self, finished: Sequence[Finished], step: int) -> list[Group]:
        """What the update of `step` (from 0) trains on: the groups that teach something, all of them where none does; then
        their re-rolls.

        Raises UnknownName for a weight of a reward term that none of them has."""
        by_stage: dict[int, list[Group]] = {}
        for each in finished:
            by_stage.setdefault(self._stage(each.index)[0], []).append(each.group)
        for number, groups in by_stage.items():
            if self.curriculum.stages:
                require_terms(groups, self.curriculum.stages[number].weights)
        kept = [each for each in finished if not self._silent(each.group)]
        if not kept:  # the step is measured by what there is, and teaches nothing
            return [each.group for each in finished]
        seen, left_out = looked_at([each.group for each in kept], step, self.curriculum.after_group)
        self._rows += left_out
        rerolls = [again for each, group in zip(kept, seen, strict=True) if group is not None for again in each.rerolls]
        return [*(group for group in seen if group is not None), *rerolls]

    def metrics(self, indices: Iterable[int]) -> dict[str, float]:
        """Of an update with these groups, and of what ended since the one before."""
        found: dict[str, float] = {}
        if self.curriculum.refill:
            found["curriculum/sampled_groups"] = float(self._sampled)
            found["curriculum/rejected_groups"] = float(self._rejected)
            if self._rewards:
                found["curriculum/reward_sampled"] = sum(self._rewards) / len(self._rewards)
        if self.curriculum.stages:
            found["curriculum/stage"] = float(max(self._stage(each)[0] for each in indices))
        self._sampled = self._rejected = 0
        self._rewards.clear()
        return found

    # -- on disk ----------------------------------------------------------------------------------------------------

    def write(self, at: int) -> None:
        """Everything that was said since it was written last, under the run's step `at`."""
        rows, self._rows = self._rows, []
        for row in rows:
            self._run.append_curriculum(at, **row)

    def state(self) -> dict[str, int]:
        return {"announced": self._announced}

    def skip(self, steps: int) -> None:
        """So many are behind the training, which kept no state."""
        self._announced = steps

    def load(self, state: Mapping[str, int]) -> None:
        self._announced = int(state.get("announced", 0))

    def restore(self, first: int) -> None:
        """What the run's log says of the tasks since its step `first`, where this training began."""
        if self._difficulty is not None:
            self._difficulty.restore(row for row in self._run.curriculum() if int(row["step"]) > first)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _stage(self, index: int) -> tuple[int, Stage | None]:
        stages = self.curriculum.stages
        if not stages:
            return 0, None
        return stage_at(stages, position_of(index) // self.curriculum.tasks_per_step)

    def _silent(self, group: Group) -> str:
        return self.curriculum.reject(group) if self.curriculum.refill else ""


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
