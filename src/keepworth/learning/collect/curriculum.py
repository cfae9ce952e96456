"""Curriculum: which tasks are sampled for each step, how far they may go, and which groups are trained on.

* In what order tasks come: functions of the position and the seed, with no state to lose.
* Stages: from which step on which reward counts, and how far an episode may go. Functions of the step alone.
* Difficulty: tasks that are always won or never won are put aside for a while. Sampling the middle is the idea of many curricula
  (for example "Prioritized Level Replay", arXiv 2010.03934); what is kept here is the simplest form that can be read in a log:
  a running mean, two bounds, and a second chance after some steps.
* Branches: single calls of a whole rollout, rolled again from the memory they began with (Memory-R2, LoGo-GRPO, arXiv
  2605.21768). The members of a group soon hold different memories, so that what they do later is not comparable; re-rolls of
  one call from one memory state are.

The step that a group belongs to is that of its position, whenever it is sampled and
whenever it is trained; so its stage is the same before a kill and after it. Every rejection is written to the run's log, and what
is known of the tasks comes back from it.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from keepworth.episodes.episode import Episode, Group, Task
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.run_folder import RunFolder

if TYPE_CHECKING:
    from keepworth.learning.collect.admission import Staleness
    from keepworth.learning.collect.groups import FinishedGroup, RecordedContext

# The index of a group: its position in the training and, a billion each, which candidate for that position it is.
#
# Position p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. Its own
# group is candidate 0. Where that is rejected, fails or is dropped, the position is retried with a later candidate, and positions
# after it stay what they are. So the task, the stage and the seeds of a group are functions of its index, and a continued run
# finds them again.


SPAN = 10**9
"""More positions than any training has: position 3 with candidate 4 is the group 4000000003."""
CANDIDATES = 4
"""How many tasks are looked at for one try of a position, where some are put aside or the step has them already."""


def group_at(position: int, candidate: int = 0) -> int:
    return candidate * SPAN + position


def position_of(group: int) -> int:
    return group % SPAN


def candidate_of(group: int) -> int:
    return group // SPAN


def retry_of(group: int) -> int:
    """How many groups of this position came to nothing before."""
    return candidate_of(group) // CANDIDATES


def instead_of(group: int) -> int:
    """The group that comes in the place of this one: the first candidate of the next retry."""
    return group_at(position_of(group), (retry_of(group) + 1) * CANDIDATES)


def draw_seed(seed: int, step: int, group: int) -> int:
    """Of the draws of a step's groups (step from 0); of those that come in the place of others, another."""
    return seed * 1_000_003 + step + retry_of(group) * 7_919_000_003


class GroupOrder:
    """Which group is started next: what is owed to positions whose groups came to nothing, then the next position.

    done: groups that are trained, or that came to nothing."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._next = 0
        self._owed: list[tuple[int, int]] = []
        self._filled: set[int] = set()

    def take(self) -> int:
        if self._owed:
            return group_at(*self._owed.pop(0))
        while self._next in self._filled:
            self._filled.discard(self._next)
            self._next += 1
        self._next += 1
        return group_at(self._next - 1)

    def replace(self, group: int) -> None:
        """The group came to nothing: exactly one other is owed to its position."""
        self.done.add(group)
        other = instead_of(group)
        bisect.insort(self._owed, (position_of(other), candidate_of(other)))

    def fill(self, group: int) -> None:
        """This group was found on disk: nothing else is to be started for its position."""
        position = position_of(group)
        self._owed = [each for each in self._owed if each[0] != position]
        if position >= self._next:
            self._filled.add(position)

    def skip(self, positions: int) -> None:
        """So many are behind the training: they were trained by a version that kept no order."""
        self._next = positions

    def state(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "done": to_ranges(self.done),
            "owed": [group_at(*each) for each in self._owed],
            "filled": sorted(self._filled),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._next, self.done = int(state["next"]), from_ranges(state["done"])
        self._owed = sorted((position_of(each), candidate_of(each)) for each in state.get("owed", ()))
        # A group that was found on disk may be trained before the positions ahead of it are begun.
        ahead = {position_of(each) for each in self.done if position_of(each) >= self._next}
        self._filled = ahead | {int(position) for position in state.get("filled", ())}


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """A set of numbers as [first, past the last] pairs: short, because nearly all are neighbours."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def from_ranges(ranges: Sequence[Sequence[int]]) -> set[int]:
    return {number for first, past in ranges for number in range(first, past)}


T = TypeVar("T")
OTHERS = 64
"""At most so many candidates are looked at for one position: its own, and others in place of those that were rejected."""


def batch(items: Sequence[T], size: int, step: int, seed: int | str) -> list[T]:
    """The items of step `step` (from 0): each once per pass, every pass in another seeded order.

    Raises KeepworthError where there are none."""
    _require(items)
    return [_drawn(items, position, f"{seed}") for position in range(step * size, (step + 1) * size)]


def balanced(items: Sequence[T], kind_of: Callable[[T], str], size: int, step: int, seed: int | str) -> list[T]:
    """The same with kinds in turn: over any stretch of the training their counts differ by one at most, however many items
    each kind has; within a kind each item comes once per pass.

    A kind with few items is repeated more often than the others: that is the price, and what it is for (uniform sampling
    would rarely train it)."""
    _require(items)
    by_kind: dict[str, list[T]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    kinds = sorted(by_kind)
    chosen = []
    for position in range(step * size, (step + 1) * size):
        turn, place = divmod(position, len(kinds))
        kind = kinds[place]
        chosen.append(_drawn(by_kind[kind], turn, f"{seed}/{kind}"))
    return chosen


def drawn_task(items: Sequence[T], kind_of: Callable[[T], str] | None, seed: int, group: int) -> T:
    """The task of the group with an index: a position's own in the order of `batch`, or of `balanced`; others, seeded apart, in
    its place.

    kind_of: the type of a task, where as many of each are wanted."""
    position, candidate = position_of(group), candidate_of(group)
    order, at = (f"{seed}/others", position * OTHERS + candidate) if candidate else (f"{seed}", position)
    (task,) = batch(items, 1, at, order) if kind_of is None else balanced(items, kind_of, 1, at, order)
    return task


def _drawn(items: Sequence[T], position: int, seed: str) -> T:
    epoch, index = divmod(position, len(items))
    order = list(range(len(items)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return items[order[index]]


def _require(items: Sequence[T]) -> None:
    if not items:
        raise KeepworthError("There is nothing to train on.", "Choose other tasks: see --print-config.")


class AdmissionError(KeepworthError, ValueError):
    """Settings of asynchronous training that cannot take effect."""


class BadStages(KeepworthError, ValueError):
    """Stages that cannot all take effect."""


@dataclass(frozen=True, slots=True)
class Stage:
    """steps: how many it lasts; the last stage goes on to the end. role: who trains ("": whoever the training is of).
    horizon: how far an episode may go, in what the recipe counts (turns, tokens of an answer). weights: of reward terms,
    by name, in the place of those the environment gave; a term that is not named keeps its own."""

    steps: int
    role: str = ""
    horizon: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BadStages(f"A stage of {self.steps} steps never takes place.", "Give it at least one.")
        if self.horizon is not None and self.horizon < 1:
            raise BadStages(f"A horizon of {self.horizon} leaves no room for an answer.", "Give it at least 1.")


def require_stages(stages: Sequence[Stage], steps: int) -> None:
    """Raises BadStages where one of them begins after the last of `steps` steps: it could have no effect."""
    begins = 0
    for number, stage in enumerate(stages, 1):
        if begins >= steps:
            raise BadStages(
                f"Stage {number} begins after step {begins}, and the training has {steps}.",
                "Make the stages before it shorter, or the training longer.",
            )
        begins += stage.steps


def stage_at(stages: Sequence[Stage], step: int) -> tuple[int, Stage]:
    """(number from 0, stage) of step `step` (from 0). Raises ValueError without a stage."""
    if not stages:
        raise ValueError("there is no stage")
    for number, stage in enumerate(stages[:-1]):
        if step < stage.steps:
            return number, stage
        step -= stage.steps
    return len(stages) - 1, stages[-1]


def reweighed(group: Group, weights: Mapping[str, float]) -> Group:
    """The same episodes with other weights on their reward terms, of which the group need not have every one that is named."""
    if not weights:
        return group
    return replace(
        group,
        episodes=tuple(
            replace(
                episode,
                rewards=tuple(replace(term, weight=weights.get(term.name, term.weight)) for term in episode.rewards),
            )
            for episode in group.episodes
        ),
    )


def require_terms(groups: Sequence[Group], weights: Mapping[str, float]) -> None:
    """Raises UnknownName for a weight of a reward term that none of the groups' episodes has."""
    if not weights:
        return
    known = {term.name for group in groups for episode in group.episodes for term in episode.rewards}
    for name in weights:
        if name not in known:
            raise UnknownName("reward term", name, known)


class BadBand(KeepworthError, ValueError):
    """A band that lets every task in, or none."""


@dataclass(frozen=True, slots=True)
class Band:
    """Tasks whose mean score is at `low` or below, or at `high` or above, are put aside for `retry` steps after they were
    last sampled; then they get another chance, because the policy has changed since. memory: weight of what was known
    before, against the newest group."""

    low: float = 0.0
    high: float = 1.0
    retry: int = 10
    memory: float = 0.5

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise BadBand(
                f"No task can lie between low = {self.low:g} and high = {self.high:g}.", "Set low below high."
            )
        if self.retry < 1:
            raise BadBand(f"retry = {self.retry} puts no task aside.", "Set it to 1 or more, or use no band.")
        if not 0 <= self.memory < 1:
            raise BadBand(f"memory = {self.memory:g} is not a share below 1.", "Set it between 0 and 1.")


class Difficulty:
    """What is known of each task. It is a fold over outcomes, so the rows of a run's log bring it back."""

    def __init__(self, band: Band) -> None:
        self.band = band
        self._mean: dict[str, float] = {}
        self._last: dict[str, int] = {}

    def restore(self, outcomes: Iterable[Mapping[str, Any]]) -> None:
        """Rows as the run's curriculum.jsonl holds them: {"step", "task", "score"}."""
        for row in outcomes:
            if row.get("what") == "outcome":
                self.note(str(row["task"]), float(row["score"]), int(row["step"]))

    def note(self, task: str, score: float, step: int) -> None:
        """A group of `task` scored so much on average (`Episode.metric`), at the run's step `step`."""
        before = self._mean.get(task)
        self._mean[task] = score if before is None else self.band.memory * before + (1 - self.band.memory) * score
        self._last[task] = step

    def aside(self, task: str, step: int) -> str:
        """Why the task is not to be sampled at the run's step `step`; "" where it is."""
        mean = self._mean.get(task)
        if mean is None or step - self._last[task] > self.band.retry:
            return ""
        if mean <= self.band.low:
            return f"too hard: mean score {mean:.2f} is not above {self.band.low:g}"
        if mean >= self.band.high:
            return f"too easy: mean score {mean:.2f} is not below {self.band.high:g}"
        return ""

    def oldest(self, tasks: Sequence[str]) -> str:
        """The task that was sampled longest ago: what to take where none is left in the band."""
        return min(tasks, key=lambda task: self._last.get(task, -1))


Reroll = Callable[[Episode, int, "RecordedContext"], Awaitable[Episode]]
"""(anchor, index of its segment, context) -> one episode from the memory before that segment: its id is the context's, its
task the anchor's, its parent the anchor's id."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Re-rolls begin when a group's own episodes are done, and the group waits for them.

    reroll: makes one episode of a re-roll; size: how many a call is rolled again; probability: of each call of the anchor to be
    rolled again (0.5 in the paper); seed."""

    reroll: Reroll
    size: int
    probability: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"a probability of {self.probability} rolls nothing again: it lies above 0, up to 1")
        if self.size < 2:
            raise ValueError(f"re-rolls are compared with each other: size = {self.size} is below 2")

    def calls(self, anchor: Episode, group: int) -> tuple[int, ...]:
        """Which of the anchor's calls are rolled again: a function of the seed and the group's index."""
        seed = random.Random(f"{self.seed}/{group}").getrandbits(31)
        return sampled_sessions(len(anchor.segments), self.probability, seed)


def sampled_sessions(sessions: int, probability: float, seed: int) -> tuple[int, ...]:
    """Which sessions of an anchor rollout are re-rolled: each on its own with `probability` (0.5 in the paper)."""
    generator = random.Random(seed)
    return tuple(session for session in range(sessions) if generator.random() < probability)


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

    def stage(self, group: int) -> tuple[int, Stage | None]:
        """(number from 0, stage) of the step that a group belongs to; None where there are no stages."""
        stages = self.curriculum.stages
        if not stages:
            return 0, None
        return stage_at(stages, position_of(group) // self.curriculum.tasks_per_step)

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
        _, stage = self.stage(index)
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

    def chosen(self, finished: Sequence[FinishedGroup], step: int) -> list[Group]:
        """What the update of `step` (from 0) trains on: the groups that teach something, all of them where none does; then
        their re-rolls.

        Raises UnknownName for a weight of a reward term that none of them has."""
        by_stage: dict[int, list[Group]] = {}
        for each in finished:
            by_stage.setdefault(self.stage(each.index)[0], []).append(each.group)
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
            found["curriculum/stage"] = float(max(self.stage(each)[0] for each in indices))
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
