"""The pipeline: collects groups for the trainer's loop, either while the learner waits or ahead of it.

Every group has an index, of which its task is a function; it holds the group's position, which candidate of a task it is, and
which retry (`curriculum.retry_of`, `position_of`). Rollouts are coroutines on one event loop. Their model calls go to a
sampler, which is in this process or behind HTTP. Groups are started as `Staleness` allows, and trained oldest first among those
that are ready. A group that is unfinished when a batch is complete is not discarded: it continues under the next weights (AReaL,
arXiv 2505.24298; APRIL, arXiv 2509.18521). With staleness 0 the training is synchronous: a step's groups are started when the
step asks for them, and all of them end in it.

    checkpoints/step-000012/pipeline.json     the finished groups that wait, and the indices of unfinished ones

A run that is continued trains on the finished groups of its checkpoint, and starts the unfinished ones again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keepworth.base.errors import KeepworthError, called_as
from keepworth.base.json_values import read_json
from keepworth.records.episode import Episode, Group, Task
from keepworth.records.model import Receipt
from keepworth.training.collect.asynchrony import Asynchrony
from keepworth.training.collect.curriculum import (
    CANDIDATES,
    SPAN,
    GroupOrder,
    position_of,
    retry_of,
    without_signal,
)
from keepworth.training.collect.groups import (
    Again,
    EpisodeContext,
    FinishedGroup,
    GroupRollout,
    OpenGroup,
    Regroup,
    TrainedRollout,
    group_from_json,
    group_to_json,
    has_failed,
    reason_of,
    run_member,
    run_whole_group,
)
from keepworth.training.collect.http_sampler import HttpSampler
from keepworth.training.collect.sampler import LocalSampler, Sampler
from keepworth.training.collect.sources import Source, Sources
from keepworth.training.objective.inputs import require_off_policy
from keepworth.training.run_folder import Checkpoint, RunFolder, reading, write_json
from keepworth.worlds.driver import Variation

if TYPE_CHECKING:
    from keepworth.models.http_engine import HttpModel
    from keepworth.training.collect.workers import RolloutWorkers
    from keepworth.training.learner import Learner

T = TypeVar("T")
PIPELINE_STATE = "pipeline.json"


@dataclass(frozen=True, slots=True)
class Collected:
    """The groups that one update trains on, the episodes that failed, metrics of the collection, and notes to display."""

    groups: list[Group]
    failed: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Episodes(Protocol):
    """What a recipe implements for its training."""

    def task(self, group: int) -> Task:
        """Returns the task of the group with this index, always the same."""
        ...

    def rollout(self, task: Task, context: EpisodeContext) -> Awaitable[Episode]:
        """Returns one episode with the id `context.id`. It may raise: the error is then recorded in an episode."""
        ...

    def evaluate(self, step: int) -> None:
        """Measures the learner's model after `step` updates and writes the measurements to the run."""
        ...


class EventLoop:
    """An event loop for the pipeline, in the caller's thread or in one of its own.

    Attributes:
        changed: Is set when something that may be waited for is finished, when a member starts to wait, and when a task fails.
        broken: The first failure of a task, which whatever waits has to raise.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.broken: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on_by_itself(self) -> None:
        """Starts running the loop in a thread, so that it also runs between calls of `do`."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sampler")
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the loop, and returns or raises its outcome."""
        if self._thread is None:
            return self._loop.run_until_complete(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def look(self, function: Callable[[], T]) -> T:
        """Returns the result of a function that reads what the loop's tasks change. It lets no task work on."""
        if self._thread is None:
            return function()

        async def call() -> T:
            return function()

        return self.do(call())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts `work` as a task. Call it on the loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def close(self) -> None:
        """Cancels all tasks and waits for their end. A second call does nothing."""
        if self._loop.is_closed():
            return
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:  # before the loop runs again: after an interruption the awaited task would go on
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = self.broken or task.exception()
            self.changed.set()


class Pipeline:
    """Collects the groups that updates train on.

    The trainer's thread calls `begin`, `collect`, `publish`, `save` and `close`. Everything else runs on the event loop, so no
    lock is needed.

    Args:
        engines: Engines that sample instead of this process.
        workers: Workers that run the rollouts instead of this process.
        refill: How often groups without a signal are replaced by groups of other tasks (dynamic sampling: DAPO, arXiv
            2503.14476).
        regroup: Replaces a group that has ended by another, and may sample for it.
        group_rollout: Makes all episodes of a group at once, instead of one rollout for each.
        sources: Add groups to an update, and review the sampled ones.

    Raises:
        AdmissionError: Engines cannot honour the settings, or the settings contradict each other.
        ObjectiveError: The objective has no correction for stale tokens.
    """

    def __init__(
        self,
        run: RunFolder,
        learner: Learner,
        episodes: Episodes,
        settings: Asynchrony,
        engines: Sequence[HttpModel] = (),
        workers: RolloutWorkers | None = None,
        *,
        refill: int = 0,
        regroup: Regroup | None = None,
        group_rollout: GroupRollout | None = None,
        sources: Sequence[Source] = (),
    ) -> None:
        require_off_policy(learner.objective, 1, max_staleness=settings.staleness.max_staleness)
        self.settings = settings
        self._learner, self._episodes = learner, episodes
        self.evaluate = episodes.evaluate
        self._sources = Sources(sources, learner.model)
        self._refill, self._regroup, self._group_rollout = refill, regroup, group_rollout
        self._loop = EventLoop()
        self.sampler: Sampler
        if engines:
            self.sampler = HttpSampler(learner, settings, engines, run.path)
        else:
            self.sampler = LocalSampler(learner, settings, self._may_draw, self._settle, self._loop.changed.set)
        self._open: dict[int, OpenGroup] = {}
        self._waiting: dict[int, FinishedGroup] = {}
        self._taken: list[FinishedGroup] = []
        self._group_order = GroupOrder()
        self._updates = 0
        self._ended: list[Group] = []
        self._failed_episodes: list[Episode] = []
        self._failed_in_a_row = 0
        self._counts = {"retried": 0, "failed_groups": 0, "rejected_groups": 0}
        self._collecting = False
        self._at_last_update = self._position()
        self._workers = workers

    # -- called by the trainer --------------------------------------------------------------------------------------

    def begin(self, checkpoint: Checkpoint | None) -> None:
        """Starts the pipeline, once the learner has its weights. The training continues from `checkpoint` where there is one."""
        if self.settings.mode == "overlap":
            self._loop.go_on_by_itself()
        self._loop.do(self._begin(checkpoint, self.sampler.outgoing()))

    def collect(self, step: int) -> Collected:
        """Returns what step `step` (from 0) trains on: the oldest groups that are ready, once there are enough, and those of the
        sources. Raises KeepworthError where group after group fails, and any error that stopped the sampler."""
        collected = self._loop.do(self._collect())
        groups, metrics = self._sources.mix(collected.groups, step)
        return replace(collected, groups=groups, metrics=collected.metrics | metrics)

    def publish(self) -> dict[str, float]:
        """Gives the sampler the weights of the step that the learner took, and returns metrics."""
        measured = self._sources.keep()
        receipt = self._loop.do(self._publish(self.sampler.outgoing()))
        if receipt is None:
            return measured
        return {**measured, "seconds/publish": receipt.seconds, "publish/probe_gap": receipt.probe_gap}

    def save(self, folder: Path) -> None:
        """Writes the state that collecting continues from to a checkpoint's folder. It may be called between two steps, and where
        `collect` was interrupted."""
        write_json(folder / PIPELINE_STATE, self._loop.look(self._state))

    def close(self) -> None:
        """Ends the pipeline, however the training ended."""
        self._loop.close()

    # -- the same, on the event loop --------------------------------------------------------------------------------

    async def _begin(self, checkpoint: Checkpoint | None, sent: Any) -> None:
        await self.sampler.begin(sent)
        if checkpoint is not None:
            with reading(checkpoint.path / PIPELINE_STATE, checkpoint):
                self._load(checkpoint)
        self._at_last_update = self._position()
        if self.settings.mode == "overlap":
            self._start_groups()
        self._loop.spawn(self.sampler.run())
        if self._workers is not None:
            self._loop.spawn(self._workers.listen())

    async def _collect(self) -> Collected:
        begun = time.perf_counter()
        self._start_groups()
        self._collecting = True
        self.sampler.wake()
        while True:
            if self._loop.broken is not None:
                raise self._loop.broken
            indices = self._choose()
            if indices is not None:
                break
            self._loop.changed.clear()
            await self._loop.changed.wait()
        self._collecting = False
        self._taken = taken = [self._waiting.pop(index) for index in indices]
        failed, self._failed_episodes = tuple(self._failed_episodes), []
        measured, notes = self.sampler.news()
        metrics = self._refilled() | measured
        if self.settings.staleness.max_staleness:
            metrics |= {
                "pipeline/running": float(len(self._open)),
                "pipeline/finished": float(len(self._waiting)),
                "pipeline/unfinished_tokens": float(self.sampler.unfinished()),
                **{f"pipeline/{name}": float(count) for name, count in self._counts.items()},
                "seconds/wait": time.perf_counter() - begun,
            }
        # If no group has a signal, the step uses all groups.
        telling = [finished for finished in taken if not (self._refill and without_signal(finished.groups[0]))]
        groups = [finished.groups[0] for finished in telling or taken]
        groups += [group for finished in telling for group in finished.groups[1:]]
        return Collected(groups, failed, metrics, notes)

    async def _publish(self, sent: Any) -> Receipt | None:
        receipt = await self.sampler.publish(sent)
        self._taken = []
        self._updates += 1
        self._at_last_update = self._position()
        if self.settings.mode == "overlap":  # in "turns" nothing is drawn before the next batch is asked for
            self._start_groups()
        self.sampler.wake()
        return receipt

    def _refilled(self) -> dict[str, float]:
        """Returns metrics of the groups that ended since the last update, where groups may be replaced."""
        ended, self._ended = self._ended, []
        if not self._refill:
            return {}
        rewards = [episode.reward for group in ended for episode in group.episodes]
        return {
            "curriculum/sampled_groups": float(len(ended)),
            "curriculum/rejected_groups": float(sum(map(without_signal, ended))),
            **({"curriculum/reward_sampled": sum(rewards) / len(rewards)} if rewards else {}),
        }

    def _position(self) -> dict[str, Any]:
        return {"updates": self._updates, **self._group_order.state(), "counts": dict(self._counts)}

    def _state(self) -> dict[str, Any]:
        sources = {"sources": self._sources.state()}
        if self.settings.mode == "serial":
            # A serial run repeats exactly, and the number of calls that are drawn at once changes the rounding: so the whole step
            # is drawn again.
            return {**self._at_last_update, "finished": [], "open": [], **sources}
        waiting = sorted((*self._waiting.values(), *self._taken), key=lambda finished: finished.index)
        finished = [group_to_json(group) for group in waiting]
        return {**self._position(), "finished": finished, "open": sorted(self._open), **sources}

    def _load(self, checkpoint: Checkpoint) -> None:
        state = read_json(checkpoint.path / PIPELINE_STATE, checkpoint.way_out)
        self._updates, self._counts = int(state["updates"]), dict(state["counts"])
        self._group_order.load(state)
        self._sources.load(state.get("sources", {}))
        for record in state["finished"]:
            finished = group_from_json(record)
            self._waiting[finished.index] = finished
        for index in state["open"]:
            self._begin_group(index, self._episodes.task(index))

    # -- groups -----------------------------------------------------------------------------------------------------

    def _start_groups(self) -> None:
        staleness = self.settings.staleness
        trained = self._updates * staleness.groups
        accepted = trained + len(self._waiting) + len(self._taken)
        capacity = staleness.capacity(
            version=self._updates, accepted=accepted, running=len(self._open), consumed=trained
        )
        for _ in range(capacity):
            index = self._group_order.take()
            index, task = self._replacement(index) if retry_of(index) else (index, self._episodes.task(index))
            self._begin_group(index, task)

    def _replacement(self, group: int) -> tuple[int, Task]:
        """Returns, for a group that replaces another, the first candidate whose task the step does not have, and this task."""
        task = self._episodes.task
        count = self.settings.staleness.groups
        first = position_of(group) // count * count
        taken = {task(other).key for other in range(first, first + count)}
        for index in range(group, group + CANDIDATES * SPAN, SPAN):
            if (candidate := task(index)).key not in taken:
                return index, candidate
        return group, task(group)

    def _begin_group(self, index: int, task: Task) -> None:
        size = self.settings.group_size if self._group_rollout is None else 1
        group = self._open[index] = OpenGroup(index, self.sampler.version, task, size, changed=self._loop.changed.set)
        self._loop.spawn(self._run_group(group))

    async def _run_group(self, group: OpenGroup) -> None:
        """Runs the members of a group, here or in a worker, to their ends."""
        if self._workers is not None:
            version = self._learner.model.version
            await self._workers.run_group(group, self.settings, version, self.sampler.sample, self._note_failed)
        elif self._group_rollout is not None:
            await run_whole_group(group, self._group_rollout, self.sampler.sample, self.settings, self._learner.model)
        else:
            await self._run_members(group, range(group.size), self._episodes.rollout)
        whole, left_out = group.outcome()
        groups: tuple[Group, ...] = ()
        least = min(2, self.settings.group_size) if self._group_rollout is None else 1
        if len(whole) >= least:
            groups = (Group(group.task.key, whole[0].memory_snapshot, whole),)
            if self._regroup is not None:
                groups = await self._regrouped(group, groups[0], self._regroup)
        del self._open[group.index]
        self._failed_episodes += left_out
        self._end_group(group, groups, left_out)
        self._loop.changed.set()

    async def _regrouped(self, group: OpenGroup, ended: Group, regroup: Regroup) -> tuple[Group, ...]:
        """Returns what the recipe's `regroup` makes of a group that has ended. More members are sampled like the first ones."""

        async def play(variations: Sequence[Variation | None], rollout: TrainedRollout | None = None) -> list[Episode]:
            members = group.add(variations)
            await self._run_members(group, members, rollout or self._episodes.rollout)
            episodes = [group.done[member] for member in members]
            self._failed_episodes += [episode for episode in episodes if has_failed(episode)]
            whole = [episode for episode in episodes if not has_failed(episode)]
            if rollout is not None:
                return whole
            return [replace(episode, memory_snapshot=ended.memory_snapshot) for episode in whole]

        with called_as(f"The hook regroup, of the group {group.index} of task {group.task.key!r},"):
            made = await regroup(group.task, ended, Again(group.index, play))
            groups = () if made is None else (made,) if isinstance(made, Group) else tuple(made)
        for new in groups:
            if not (isinstance(new, Group) and new.task == group.task.key and new.episodes):
                raise KeepworthError(
                    f"regroup made {new!r:.80} of the group {group.index} of task {group.task.key!r}.",
                    "Let it return groups of the same task with at least one episode, or None to sample another one.",
                )
        return groups

    async def _run_members(self, group: OpenGroup, members: Sequence[int], rollout: TrainedRollout) -> None:
        runs = (
            run_member(group, member, rollout, self.sampler.sample, self.settings, self._note_failed)
            for member in members
        )
        await asyncio.gather(*runs)

    def _note_failed(self, episode: Episode) -> None:
        self._failed_episodes.append(episode)
        self._counts["retried"] += 1

    def _end_group(self, group: OpenGroup, groups: tuple[Group, ...], left_out: list[Episode]) -> None:
        """Stores the groups that were made. One that failed or was rejected is replaced by exactly one other."""
        if groups:
            self._failed_in_a_row = 0
            self._ended.append(groups[0])
            if retry_of(group.index) >= self._refill or not without_signal(groups[0]):
                self._waiting[group.index] = FinishedGroup(group.index, group.born, groups)
                return
            self._counts["rejected_groups"] += 1
        else:
            self._counts["failed_groups"] += 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self.settings.patience:
                raise KeepworthError(
                    f"{self._failed_in_a_row} groups in a row came to nothing; the last one says: {reason_of(left_out)}.",
                    "Episodes that failed are in the run's folder with the arm failed; put right what they name.",
                )
        self._group_order.replace(group.index)
        self._start_groups()

    def _choose(self) -> list[int] | None:
        """Returns the groups of the next update; None where some are still missing."""
        finished = {index: group.born for index, group in self._waiting.items()}
        running = {index: group.born for index, group in self._open.items()}
        return self.settings.staleness.choose(self.sampler.version, finished, running)

    # -- sampling ---------------------------------------------------------------------------------------------------

    def _may_draw(self) -> bool:
        """Whether tokens may be drawn now. In "turns" they may only while a batch is being collected."""
        return self.settings.mode == "overlap" or (self._collecting and self._choose() is None)

    async def _settle(self) -> None:
        """Waits, in serial mode, until every unfinished episode waits for the model or for others of its group."""
        while self.settings.mode == "serial" and self._loop.broken is None:
            # Drafts of one episode have streams that begin alike, with position and member.
            drawn_for = {(draft.group, *draft.stream[:2]) for draft in self.sampler.waiting.values()}
            waiting = len(drawn_for) + sum(group.waiting for group in self._open.values())
            missing = [group.size - len(group.done) for group in self._open.values()]
            if 0 not in missing and waiting >= sum(missing):  # a group without missing members is about to be replaced
                return
            self._loop.changed.clear()
            await self._loop.changed.wait()
