"""SteeredAhead: what `Steering` says, for groups that are sampled ahead: by ticket instead of by step.

The step that a group belongs to is that of its place (`keepworth.learning.collect.tickets`), whenever it is sampled and whenever
it is trained; so its stage is the same before a kill and after it. What is known of the tasks comes back from the run's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keepworth.episodes.episode import Group
from keepworth.episodes.task import Task
from keepworth.learning.collect.admission import AdmissionError, Staleness
from keepworth.learning.collect.branches import Branches
from keepworth.learning.collect.difficulty import Difficulty
from keepworth.learning.collect.pipeline_store import Finished
from keepworth.learning.collect.stages import Stage, require_terms, reweighed, stage_at
from keepworth.learning.collect.steering import Steering, looked_at
from keepworth.learning.collect.tickets import LOOKS, SPAN, attempt_of, place_of
from keepworth.learning.run.run_folder import RunFolder


class SteeredAhead:
    """Raises AdmissionError where `steering` does not fit the pipeline's settings.

    task: of a ticket. What is rejected or put aside is written to curriculum.jsonl by `write`, under the update that it came
    before: what a checkpoint knows is then in the log as far as that checkpoint, and nothing else is."""

    def __init__(self, steering: Steering, staleness: Staleness, run: RunFolder, task: Callable[[int], Task]) -> None:
        if steering.tasks_per_step != staleness.groups:
            raise AdmissionError(
                f"Steering has {steering.tasks_per_step} tasks per step, and an update trains {staleness.groups} groups.",
                "Set both to the same number.",
            )
        if isinstance(steering.branches, Branches):
            raise AdmissionError(
                "Branches re-roll whole groups in turns with the learner, and a pipeline samples one episode at a time.",
                "Use BranchesAhead.",
            )
        self.steering, self.branches = steering, steering.branches
        self._run, self._task = run, task
        self._difficulty = None if steering.band is None else Difficulty(steering.band)
        self._announced = 0
        self._rows: list[dict[str, Any]] = []
        self._sampled = self._rejected = 0
        self._rewards: list[float] = []

    # -- before a group is sampled ----------------------------------------------------------------------------------

    def stage(self, ticket: int) -> Stage | None:
        return self._stage(ticket)[1]

    def admit(self, ticket: int, at: int) -> tuple[int, Task]:
        """The ticket to start, and its task: this one's, or a later draw's for the same place where the task is put aside;
        where all that are looked at are, the one that was sampled longest ago. at: the run's step, from 1."""
        step = place_of(ticket) // self.steering.tasks_per_step
        while self._announced <= step:
            if self.steering.before_rollout is not None:
                self.steering.before_rollout(self._announced)
            self._announced += 1
        if self._difficulty is None:
            return ticket, self._task(ticket)
        aside: dict[str, tuple[int, Task]] = {}
        for draw in range(ticket, ticket + LOOKS * SPAN, SPAN):
            task = self._task(draw)
            reason = self._difficulty.aside(task.key, at)
            if not reason:
                return draw, task
            if task.key not in aside:
                self._rows.append({"what": "aside", "task": task.key, "reason": reason})
                aside[task.key] = draw, task
        return aside[self._difficulty.oldest(list(aside))]

    # -- when it has ended ------------------------------------------------------------------------------------------

    def weighed(self, ticket: int, group: Group) -> Group:
        """With the reward weights of its stage."""
        stage = self.stage(ticket)
        return group if stage is None else reweighed(group, stage.weights)

    def replaces(self, ticket: int, group: Group, at: int) -> bool:
        """Whether another group is to be sampled in the place of this one, which has ended."""
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
        return bool(reason) and attempt_of(ticket) < self.steering.refill

    def calls(self, ticket: int, group: Group) -> tuple[int, ...]:
        """Which calls of its first episode are rolled again before it is trained on."""
        if self.branches is None or self._silent(group):
            return ()
        return self.branches.calls(group.episodes[0], ticket)

    # -- when it is to be trained on --------------------------------------------------------------------------------

    def chosen(self, finished: Sequence[Finished], step: int) -> list[Group]:
        """What the update of `step` (from 0) trains on: the groups that teach something, all of them where none does; then
        their re-rolls.

        Raises UnknownName for a weight of a reward term that none of them has."""
        by_stage: dict[int, list[Group]] = {}
        for each in finished:
            by_stage.setdefault(self._stage(each.ticket)[0], []).append(each.group)
        for number, groups in by_stage.items():
            if self.steering.stages:
                require_terms(groups, self.steering.stages[number].weights)
        kept = [each for each in finished if not self._silent(each.group)]
        if not kept:  # the step is measured by what there is, and teaches nothing
            return [each.group for each in finished]
        seen, left_out = looked_at([each.group for each in kept], step, self.steering.after_group)
        self._rows += left_out
        rerolls = [again for each, group in zip(kept, seen, strict=True) if group is not None for again in each.rerolls]
        return [*(group for group in seen if group is not None), *rerolls]

    def metrics(self, tickets: Iterable[int]) -> dict[str, float]:
        """Of an update with these tickets, and of what ended since the one before."""
        found: dict[str, float] = {}
        if self.steering.refill:
            found["curriculum/sampled_groups"] = float(self._sampled)
            found["curriculum/rejected_groups"] = float(self._rejected)
            if self._rewards:
                found["curriculum/reward_sampled"] = sum(self._rewards) / len(self._rewards)
        if self.steering.stages:
            found["curriculum/stage"] = float(max(self._stage(ticket)[0] for ticket in tickets))
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

    def load(self, state: Mapping[str, int]) -> None:
        self._announced = int(state.get("announced", 0))

    def restore(self, first: int) -> None:
        """What the run's log says of the tasks since its step `first`, where this training began."""
        if self._difficulty is not None:
            self._difficulty.restore(row for row in self._run.curriculum() if int(row["step"]) > first)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _stage(self, ticket: int) -> tuple[int, Stage | None]:
        steering = self.steering
        if not steering.stages:
            return 0, None
        return stage_at(steering.stages, place_of(ticket) // steering.tasks_per_step)

    def _silent(self, group: Group) -> str:
        return self.steering.reject(group) if self.steering.refill else ""
