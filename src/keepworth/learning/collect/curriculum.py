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
was learned of the tasks comes back from it.
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
    from keepworth.learning.collect.groups import EpisodeContext, FinishedGroup, GroupRollout, Regroup
    from keepworth.learning.collect.pipeline import Staleness

T = TypeVar("T")

# The index of a group: its position in the training and, a billion each, which candidate for that position it is.
#
# Position p is the p-th group (from 0) that the training asks for; with B groups an update it belongs to step p // B. Its own
# group is candidate 0. Where that is rejected or fails, the position is retried with a later candidate, and positions after it
# stay what they are. So the task, the stage and the seeds of a group are functions of its index.

SPAN = 10**9
"""More positions than any training has: position 3 with candidate 4 is the group 4000000003."""
CANDIDATES = 4
"""How many tasks are looked at for one try of a position, where some are put aside or the step has them already."""
OTHERS = 64
"""At most so many candidates are looked at for one position: its own, and others in place of those that were rejected."""


class AdmissionError(KeepworthError, ValueError):
    """Settings of a curriculum or of asynchronous training that cannot take effect."""


def group_at(position: int, candidate: int = 0) -> int:
    """The index of a candidate for a position."""
    return candidate * SPAN + position


def position_of(group: int) -> int:
    return group % SPAN


def candidate_of(group: int) -> int:
    return group // SPAN


def retry_of(group: int) -> int:
    """How many groups of this position came to nothing before."""
    return candidate_of(group) // CANDIDATES


def draw_seed(seed: int, step: int, group: int) -> int:
    """Of the draws of a step's groups (step from 0); of those that come in the place of others, another."""
    return seed * 1_000_003 + step + retry_of(group) * 7_919_000_003


class GroupOrder:
    """Which group is started next: what is owed to positions whose groups came to nothing, then the next position."""

    def __init__(self) -> None:
        self._next = 0
        self._owed: list[tuple[int, int]] = []

    def take(self) -> int:
        if self._owed:
            return group_at(*self._owed.pop(0))
        self._next += 1
        return group_at(self._next - 1)

    def replace(self, group: int) -> None:
        """The group came to nothing: exactly one other, the first candidate of the next retry, is owed to its position."""
        bisect.insort(self._owed, (position_of(group), (retry_of(group) + 1) * CANDIDATES))

    def state(self) -> dict[str, Any]:
        return {"next": self._next, "owed": [group_at(*owed) for owed in self._owed]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._next = int(state["next"])
        self._owed = sorted((position_of(group), candidate_of(group)) for group in state["owed"])


def batch(items: Sequence[T], size: int, step: int, seed: int | str) -> list[T]:
    """The items of step `step` (from 0): each once per pass, every pass in another seeded order.

    Raises KeepworthError where there are none."""
    return [_drawn(items, position, f"{seed}") for position in range(step * size, (step + 1) * size)]


def balanced(items: Sequence[T], kind_of: Callable[[T], str], size: int, step: int, seed: int | str) -> list[T]:
    """The same with kinds in turn: over any stretch of the training their counts differ by one at most, however many items
    each kind has; within a kind each item comes once per pass. A kind with few items is repeated more often than the others."""
    by_kind: dict[str, list[T]] = {}
    for item in items:
        by_kind.setdefault(kind_of(item), []).append(item)
    kinds = sorted(by_kind) or [""]
    chosen = []
    for position in range(step * size, (step + 1) * size):
        turn, number = divmod(position, len(kinds))
        kind = kinds[number]
        chosen.append(_drawn(by_kind.get(kind, []), turn, f"{seed}/{kind}"))
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
    if not items:
        raise KeepworthError("There is nothing to train on.", "Choose other tasks: see --print-config.")
    epoch, index = divmod(position, len(items))
    order = list(range(len(items)))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return items[order[index]]


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
            raise AdmissionError(f"A stage of {self.steps} steps never takes place.", "Give it at least one.")
        if self.horizon is not None and self.horizon < 1:
            raise AdmissionError(f"A horizon of {self.horizon} leaves no room for an answer.", "Give it at least 1.")


def require_stages(stages: Sequence[Stage], steps: int) -> None:
    """Raises AdmissionError where one of them begins after the last of `steps` steps: it could have no effect."""
    begins = 0
    for number, stage in enumerate(stages, 1):
        if begins >= steps:
            raise AdmissionError(
                f"Stage {number} begins after step {begins}, and the training has {steps}.",
                "Make the stages before it shorter, or the training longer.",
            )
        begins += stage.steps


def stage_at(stages: Sequence[Stage], step: int) -> tuple[int, Stage]:
    """(number from 0, stage) of step `step` (from 0). Raises IndexError without a stage."""
    for number, stage in enumerate(stages[:-1]):
        if step < stage.steps:
            return number, stage
        step -= stage.steps
    return len(stages) - 1, stages[-1]


def reweighed(group: Group, weights: Mapping[str, float]) -> Group:
    """The same episodes with other weights on their reward terms, of which the group need not have every one that is named."""

    def weigh(episode: Episode) -> Episode:
        terms = (replace(term, weight=weights.get(term.name, term.weight)) for term in episode.rewards)
        return replace(episode, rewards=tuple(terms))

    return replace(group, episodes=tuple(map(weigh, group.episodes))) if weights else group


def require_terms(groups: Sequence[Group], weights: Mapping[str, float]) -> None:
    """Raises UnknownName for a weight of a reward term that none of the groups' episodes has."""
    names = {term.name for group in groups for episode in group.episodes for term in episode.rewards}
    for name in weights:
        if name not in names:
            raise UnknownName("reward term", name, names)


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
            raise AdmissionError(
                f"No task can lie between low = {self.low:g} and high = {self.high:g}.", "Set low below high."
            )
        if self.retry < 1:
            raise AdmissionError(f"retry = {self.retry} puts no task aside.", "Set it to 1 or more, or use no band.")
        if not 0 <= self.memory < 1:
            raise AdmissionError(f"memory = {self.memory:g} is not a share below 1.", "Set it between 0 and 1.")


class Difficulty:
    """Running means of each task's score. It is a fold over outcomes, so the rows of a run's log bring it back."""

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


Reroll = Callable[[Episode, int, "EpisodeContext"], Awaitable[Episode]]
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
    if len(group.episodes) < 2:
        return "one episode, nothing to compare it with"
    roles = {term.role for episode in group.episodes for term in episode.rewards if term.role} or {""}
    rewards = [{episode.reward_of(role) if role else episode.reward for episode in group.episodes} for role in roles]
    if any(len(values) > 1 for values in rewards):
        return ""
    return f"all {len(group.episodes)} rewards are {', '.join(f'{value:g}' for values in rewards for value in values)}"


@dataclass(frozen=True, slots=True)
class Curriculum:
    """tasks_per_step: groups of a step. stages: see `Stage`. band: put tasks aside that are too hard or too easy.
    refill: how often other tasks are sampled in place of groups without a signal (dynamic sampling: DAPO, arXiv 2503.14476).
    branches: re-rolls of single calls. after_group is called with the step and each group that is to be trained on, and answers
    with it, with another in its place, or with None to leave it out. regroup: makes of a group that has ended another one, and
    may sample for it. group_rollout: makes all episodes of a group at once, in the place of one rollout for each."""

    tasks_per_step: int
    stages: tuple[Stage, ...] = ()
    band: Band | None = None
    refill: int = 0
    branches: Branches | None = None
    after_group: AfterGroup | None = None
    regroup: Regroup | None = None
    group_rollout: GroupRollout | None = None

    def __post_init__(self) -> None:
        if self.tasks_per_step < 1 or self.refill < 0:
            raise ValueError("tasks_per_step must be at least 1 and refill at least 0")


class AppliedCurriculum:
    """A curriculum at work in a pipeline. Raises AdmissionError where it does not fit the pipeline's settings.

    task: of the group with an index. What is rejected or put aside is written to curriculum.jsonl by `write`, under the
    update that it came before: a checkpoint knows what the log holds as far as that checkpoint."""

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
        self._rows: list[dict[str, Any]] = []
        self._sampled = self._rejected = 0
        self._rewards: list[float] = []

    # -- before a group is sampled ----------------------------------------------------------------------------------

    def stage(self, group: int) -> tuple[int, Stage | None]:
        """(number from 0, stage) of the step that a group belongs to; None where there are no stages."""
        stages = self.curriculum.stages
        return stage_at(stages, position_of(group) // self.curriculum.tasks_per_step) if stages else (0, None)

    def admit(self, group: int, at: int) -> tuple[int, Task]:
        """The group to start, and its task: this one, or a later candidate for the same position where the task is put aside, or
        where it is to replace another and the step has that task already. Where there is no other, of those put aside the one
        that was sampled longest ago. at: the run's step, from 1."""
        if self._difficulty is None and not retry_of(group):
            return group, self._task(group)
        count = self.curriculum.tasks_per_step
        first = position_of(group) // count * count
        taken = {self._task(other).key for other in range(first, first + count)} if retry_of(group) else set()
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
            return group, self._task(group)
        return aside[self._difficulty.oldest(list(aside))]

    # -- when it has ended ------------------------------------------------------------------------------------------

    def weigh(self, index: int, group: Group) -> Group:
        """With the reward weights of its stage."""
        _, stage = self.stage(index)
        return group if stage is None else reweighed(group, stage.weights)

    def replaces(self, index: int, group: Group, at: int) -> bool:
        """Whether another group is to be sampled in place of this one, which has ended."""
        if self._difficulty is not None:
            score = sum(episode.metric for episode in group.episodes) / len(group.episodes)
            self._difficulty.note(group.task, score, at)
            self._rows.append({"what": "outcome", "task": group.task, "score": score})
        reason = self._silent(group)
        self._sampled += 1
        self._rejected += bool(reason)
        self._rewards += [episode.reward for episode in group.episodes]
        if reason:
            self._rows.append({"what": "rejected", "task": group.task, "reason": reason})
        return bool(reason) and retry_of(index) < self.curriculum.refill

    def calls(self, index: int, group: Group) -> tuple[int, ...]:
        """Which calls of its first episode are rolled again before it is trained on."""
        if self.branches is None or self._silent(group):
            return ()
        return self.branches.calls(group.episodes[0], index)

    # -- when it is to be trained on --------------------------------------------------------------------------------

    def choose(self, finished: Sequence[FinishedGroup], step: int) -> list[Group]:
        """What the update of `step` (from 0) trains on: the groups that teach something, all of them where none does; then
        their re-rolls.

        Raises UnknownName for a weight of a reward term that none of them has, and KeepworthError where after_group leaves
        nothing."""
        by_stage: dict[int, list[Group]] = {}
        for ended in finished:
            by_stage.setdefault(self.stage(ended.index)[0], []).append(ended.group)
        for number, groups in by_stage.items():
            if self.curriculum.stages:
                require_terms(groups, self.curriculum.stages[number].weights)
        kept = [ended for ended in finished if not self._silent(ended.group)]
        if not kept:  # the step is measured by what there is, and teaches nothing
            return [ended.group for ended in finished]
        chosen: list[Group] = []
        rerolls: list[Group] = []
        for ended in kept:
            look = self.curriculum.after_group
            group = ended.group if look is None else look(step, ended.group)
            if group is None:
                self._rows.append({"what": "rejected", "task": ended.group.task, "reason": "left out by after_group"})
                continue
            chosen.append(group)
            rerolls += ended.rerolls
        if not chosen:
            raise KeepworthError(
                f"after_group left out every group of step {step + 1}: there is nothing to learn from.",
                "Let at least one through.",
            )
        return [*chosen, *rerolls]

    def metrics(self, indices: Iterable[int]) -> dict[str, float]:
        """Of an update with these groups, and of what ended since the one before."""
        measured: dict[str, float] = {}
        if self.curriculum.refill:
            measured["curriculum/sampled_groups"] = float(self._sampled)
            measured["curriculum/rejected_groups"] = float(self._rejected)
            if self._rewards:
                measured["curriculum/reward_sampled"] = sum(self._rewards) / len(self._rewards)
        if self.curriculum.stages:
            measured["curriculum/stage"] = float(max(self.stage(index)[0] for index in indices))
        self._sampled = self._rejected = 0
        self._rewards.clear()
        return measured

    # -- on disk ----------------------------------------------------------------------------------------------------

    def write(self, at: int) -> None:
        """Everything that is to be logged since the last time, under the run's step `at`."""
        rows, self._rows = self._rows, []
        for row in rows:
            self._run.append_curriculum(at, **row)

    def restore(self, first: int) -> None:
        """What the run's log says of the tasks since its step `first`, where this training began."""
        if self._difficulty is not None:
            self._difficulty.restore(row for row in self._run.curriculum() if int(row["step"]) > first)

    def _silent(self, group: Group) -> str:
        return without_signal(group) if self.curriculum.refill else ""
