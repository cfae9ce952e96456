"""The pipeline: groups for the trainer's loop, in step with the learner or ahead of it.

Every group has an index; its task and its stage are functions of it. Rollouts are coroutines on one loop; their model calls go
to a sampler: in this process, or engines behind HTTP. Groups are started as `Staleness` allows, trained oldest first among
those that are ready, and nothing that is unfinished when a batch is complete is thrown away: it goes on under the next
weights (AReaL, arXiv 2505.24298; APRIL, arXiv 2509.18521). With staleness 0 that is synchronous training: a step's groups are
started when the step asks for them, and all of them end in it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from keepworth.episodes.episode import Episode, Group, StopReason, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import Receipt
from keepworth.learning.collect.admission import Staleness
from keepworth.learning.collect.curriculum import AdmissionError, AppliedCurriculum, Curriculum, GroupOrder
from keepworth.learning.collect.groups import (
    PIPELINE_STATE,
    CallLog,
    FinishedGroup,
    Journal,
    OpenGroup,
    RecordedContext,
    RecordedRollout,
    Terms,
    WaitingGroups,
    finished_from_json,
    finished_to_json,
    has_failed,
    open_from_json,
    open_to_json,
    read_state,
    reason_of,
    run_rollout,
    write_state,
)
from keepworth.learning.collect.sampler import Decoder, Host, LocalSampler, Sampler, Samples
from keepworth.learning.collect.workers import EpisodeTry
from keepworth.learning.objective.inputs import require_off_policy
from keepworth.learning.objective.options import Objective
from keepworth.learning.run_folder import Checkpoint, RunFolder, reading
from keepworth.learning.trainer import Collected
from keepworth.models.partial_sample import PartialSample

if TYPE_CHECKING:
    from keepworth.learning.collect.workers import RolloutWorkers
    from keepworth.models.http_engine import HttpModel

T = TypeVar("T")


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


class EventLoop:
    """changed: set by whoever finishes something that may be waited for, and by every task that fails.

    broken: the first failure of a task; whoever waits is to raise it (`require_alive`)."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.broken: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def go_on_by_itself(self) -> None:
        """From now on it runs in a thread of its own, also between calls of `do`."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sampler")
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for what it returns or raises."""
        if self._thread is None:
            return self._loop.run_until_complete(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin `work` beside whatever runs. Called on the loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def require_alive(self) -> None:
        if self.broken is not None:
            raise self.broken

    def close(self) -> None:
        """Cancel everything and wait for its end. Called twice, it does nothing."""
        if self._loop.is_closed():
            return
        if self._thread is None:  # at once: an interruption leaves behind who was waited for, about to go on
            for each in asyncio.all_tasks(self._loop):
                each.cancel()
        self.do(self._ended_all())
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _ended_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if self._thread is not None:
            for each in others:
                each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.broken = self.broken or task.exception()
            self.changed.set()


class ExpectedLengths:
    """Running means: of each task's answers, and of all of them for tasks that were not seen yet."""

    def __init__(self) -> None:
        self._by_task: dict[str, float] = {}
        self._overall = 0.0

    def of(self, task: str) -> float:
        return self._by_task.get(task, self._overall)

    def learn(self, task: str, length: float) -> None:
        self._overall += 0.05 * (length - self._overall)
        before = self._by_task.get(task, length)
        self._by_task[task] = before + 0.5 * (length - before)

    def state(self) -> dict[str, float]:
        return {"": self._overall, **self._by_task}

    def load(self, state: Mapping[str, float]) -> None:
        self._by_task = dict(state)
        self._overall = self._by_task.pop("")


class RolloutsFail(KeepworthError):
    """Group after group comes to nothing: there is nothing to train on."""


class Pipeline:
    """The `Collector` that samples. Everything but `begin`, `collect`, `publish`, `save` and `close`, which the trainer's
    thread calls, happens on the event loop, so that nothing here needs a lock.

    engines: sample in place of this process. curriculum: stages, which groups are replaced by others, which tasks are put
    aside, hooks; its `before_rollout` is called on the event loop. workers: run the rollouts in the place of this process.
    Raises AdmissionError for settings that engines cannot honour, or that contradict each other, and ObjectiveError for an
    objective that would take stale tokens for its own policy's."""

    def __init__(
        self,
        run: RunFolder,
        learner: Samples,
        episodes: Episodes,
        settings: Asynchrony,
        engines: Sequence[HttpModel] = (),
        curriculum: Curriculum | None = None,
        workers: RolloutWorkers | None = None,
    ) -> None:
        objective = getattr(learner, "objective", None)
        if isinstance(objective, Objective):
            require_off_policy(objective, 1, max_staleness=settings.staleness.max_staleness)
        self.settings = settings
        self._run, self._learner, self._episodes = run, learner, episodes
        self._curriculum = AppliedCurriculum(
            curriculum or Curriculum(settings.staleness.groups), settings.staleness, run, episodes.task
        )
        host = Host(self._order, self._learn_length, self._may_draw, self._settle, lambda: self._open)
        self.sampler = _sampler(learner, settings, host, engines, run)
        self._open: dict[int, OpenGroup] = {}
        self._taken: list[FinishedGroup] = []
        self._group_order = GroupOrder()
        self._waiting = WaitingGroups(self._group_order)
        self._journal: Journal | None = None
        self._updates = self._step = self._first = 0
        self._failed: list[Episode] = []
        self._failures = 0
        self._counts = {"retried": 0, "failed_groups": 0, "evicted": 0, "rejected_groups": 0}
        self._lengths = ExpectedLengths()
        self._collecting = False
        self._workers = workers
        self._loop = EventLoop()

    # -- called by the trainer --------------------------------------------------------------------------------------

    def begin(self, checkpoint: Checkpoint | None, first: int, done: int) -> None:
        if self.settings.mode == "overlap":
            self._loop.go_on_by_itself()
        self._loop.do(self._begin(checkpoint, first, done, self.sampler.outgoing()))

    def collect(self, step: int) -> Collected:
        """The oldest groups that are ready, once there are enough. Raises RolloutsFail, and whatever broke the sampler."""
        return self._loop.do(self._collect(step))

    def publish(self) -> dict[str, float]:
        receipt = self._loop.do(self._publish(self.sampler.outgoing()))
        if receipt is None:
            return {}
        return {"seconds/publish": receipt.seconds, "publish/probe_gap": receipt.probe_gap}

    def save(self, folder: Path, step: int) -> None:
        write_state(folder, self._loop.do(self._state(step)))

    def evaluate(self, step: int) -> None:
        self._episodes.evaluate(step)

    def close(self) -> None:
        self._loop.close()

    @property
    def batch(self) -> Decoder:
        """Of the sampler of this process."""
        assert isinstance(self.sampler, LocalSampler)
        return self.sampler.batch

    # -- the same, on the event loop --------------------------------------------------------------------------------

    async def _begin(self, checkpoint: Checkpoint | None, first: int, done: int, sent: Any) -> None:
        self._step, self._first = first + done, first
        await self.sampler.begin(sent)
        if not self._repeats:
            self._journal = self._waiting.journal = Journal(self._run.path, self._learner.role, self._step)
        state = read_state(checkpoint.path) if checkpoint else None
        if checkpoint is not None and state is not None:
            with reading(checkpoint.path / PIPELINE_STATE, checkpoint):
                self._load(state)
        else:
            self._updates = done
            self._group_order.skip(done * self.settings.staleness.groups)
            self._curriculum.skip(done)
        self._curriculum.restore(self._first)
        if self._journal is not None:
            for each in self._journal.since(self._step):
                self._waiting.restore(each, self.sampler.version)
        if checkpoint is not None and state is not None:
            with reading(checkpoint.path / PIPELINE_STATE, checkpoint):
                for record in state["open"]:
                    self._continue(record)
        for each in self._waiting.take_awaited():
            self._branch_again(each)
        if self.settings.mode == "overlap":
            self._start_groups()
        self._loop.spawn(self.sampler.run())
        if self._workers is not None:
            self._loop.spawn(self._workers.listen())

    async def _collect(self, step: int) -> Collected:
        begun = time.perf_counter()
        self._start_groups()
        self._collecting = True
        self.sampler.wake()
        while True:
            self._loop.require_alive()
            await self._settle()
            self._evict()
            indices = self._choose()
            if indices is not None:
                break
            self._loop.changed.clear()
            await self._loop.changed.wait()
        self._collecting = False
        self._taken = chosen = self._waiting.take(indices)
        failed, self._failed = tuple(self._failed), []
        version, limit = self.sampler.version, self.settings.staleness
        measured, notes = self.sampler.news()
        metrics = self._curriculum.metrics(each.index for each in chosen) | measured
        if limit.max_staleness:
            metrics |= {
                "pipeline/running": float(len(self._open)),
                "pipeline/finished": float(len(self._waiting)),
                "pipeline/unfinished_tokens": float(self.sampler.unfinished()),
                "pipeline/over_bound": float(sum(limit.lag(version, f.oldest()) > limit.max_staleness for f in chosen)),
                **{f"pipeline/{name}": float(count) for name, count in self._counts.items()},
                "seconds/wait": time.perf_counter() - begun,
            }
        groups = self._curriculum.chosen(chosen, step)
        self._curriculum.write(self._step + 1)
        return Collected(groups, failed, metrics, notes)

    async def _publish(self, sent: Any) -> Receipt | None:
        receipt = await self.sampler.publish(sent)
        self._group_order.done |= {each.index for each in self._taken}
        self._taken = []
        self._updates += 1
        self._step += 1
        if self.settings.mode == "overlap":  # in turns nobody would go on with them before the next batch is asked for
            self._start_groups()
        self._curriculum.write(self._step)
        self.sampler.wake()
        return receipt

    async def _state(self, step: int) -> dict[str, Any]:
        self._curriculum.write(step)
        if self._journal is not None:
            self._journal.rotate(step, [each.step for each in self._run.checkpoints()])
        waiting = sorted((*self._waiting.groups.values(), *self._taken), key=lambda each: each.index)
        return {
            "format": 1,
            "version": self.sampler.version,
            "updates": self._updates,
            "first": self._first,
            **self._group_order.state(),
            "finished": [finished_to_json(each) for each in waiting],
            "open": [open_to_json(self._open[index], self.sampler.version) for index in sorted(self._open)],
            "counts": self._counts,
            "curriculum": self._curriculum.state(),
            "lengths": self._lengths.state(),
        }

    # -- groups -----------------------------------------------------------------------------------------------------

    @property
    def _repeats(self) -> bool:
        """In serial mode what was finished after a checkpoint is sampled again, the same to the last bit; taking it from
        disk instead would give the next batch other company than it had."""
        return self.settings.mode == "serial"

    def _start_groups(self) -> None:
        staleness = self.settings.staleness
        trained = self._updates * staleness.groups
        accepted = trained + len(self._waiting) + len(self._taken)
        capacity = staleness.capacity(
            version=self._updates, accepted=accepted, running=len(self._open), consumed=trained
        )
        for _ in range(capacity):
            index, task = self._curriculum.admit(self._group_order.take(), self._step + 1)
            logs = [CallLog() for _ in range(self.settings.group_size)]
            self._begin_group(OpenGroup(index, self.sampler.version, task, logs))

    def _begin_group(self, group: OpenGroup) -> None:
        self._open[group.index] = group
        for member in group.missing():
            self._loop.spawn(self._member(group, member))

    async def _member(self, group: OpenGroup, member: int) -> None:
        settings, log = self.settings, group.logs[member]
        terms = Terms(
            settings.seed,
            settings.staleness.groups,
            settings.call_seconds,
            settings.failed_reward,
            self._curriculum.stage(group.index)[1],
        )
        while True:
            episode = await self._episode(group, member, terms)
            again = log.tries < settings.retries and episode.stop is not StopReason.CONTEXT_OVERFLOW
            if not (has_failed(episode) and again):
                break
            self._failed.append(episode)
            self._counts["retried"] += 1
            log.entries.clear()
            log.tries += 1
        group.end(member, episode)
        if not group.missing():
            if self._workers is not None:
                self._workers.done(group.index)
            self._end_group(group)

    async def _episode(self, group: OpenGroup, member: int, terms: Terms) -> Episode:
        """One try at it, here or in a worker."""
        log, seconds = group.logs[member], self.settings.episode_seconds
        if self._workers is None:
            context = RecordedContext(self.sampler, log, group.index, member, terms, group.companions)
            return await run_rollout(self._rollout_of(group, member), group.task, context, seconds)
        version = self._learner.model.version
        attempt = EpisodeTry(group.task, group.index, member, log.tries, terms, version, seconds)
        return await self._workers.episode(attempt, log, group.companions, self.sampler)

    def _rollout_of(self, group: OpenGroup, member: int) -> RecordedRollout:
        rerolls, branches = group.rerolls, self._curriculum.branches
        if rerolls is None or branches is None:
            return self._episodes.rollout
        return lambda task, context: branches.reroll(rerolls.anchor, rerolls.call_of(member), context)

    def _end_group(self, group: OpenGroup) -> None:
        del self._open[group.index]
        if group.rerolls is None:
            self._end_members(group)
        else:
            groups, left_out = group.rerolls.outcome(group.done, self.settings.enough)
            self._failed += left_out
            again = tuple(self._curriculum.weighed(group.index, each) for each in groups)
            self._waiting.keep(FinishedGroup(group.index, group.born, group.rerolls.trunk, again))
        self._loop.changed.set()

    def _end_members(self, group: OpenGroup) -> None:
        """Keep what is whole of it; a group that comes to nothing makes room for exactly one other."""
        whole, left_out = group.outcome()
        self._failed += left_out
        if len(whole) < self.settings.enough:
            self._counts["failed_groups"] += 1
            self._failures += 1
            if self._failures >= self.settings.patience:
                raise RolloutsFail(
                    f"{self._failures} groups in a row came to nothing; the last one says: {reason_of(left_out)}.",
                    "The episodes are in the run's folder with the arm failed; put the environment or the reward right.",
                )
            self._start_instead_of(group.index)
        else:
            self._failures = 0
            ended = self._curriculum.weighed(group.index, Group(group.task.key, whole[0].memory_snapshot, whole))
            if self._curriculum.replaces(group.index, ended, self._step + 1):
                self._counts["rejected_groups"] += 1
                self._start_instead_of(group.index)
            else:
                calls = self._curriculum.calls(group.index, ended)
                self._waiting.keep(FinishedGroup(group.index, group.born, ended, awaited=bool(calls)))
                self._branch(group, ended, calls)

    def _branch(self, group: OpenGroup, trunk: Group, calls: Sequence[int]) -> None:
        """Go on with the re-rolls of `trunk`, which waits for them."""
        if calls and self._curriculum.branches is not None:
            self._begin_group(group.branched(trunk, calls, self._curriculum.branches.size))

    def _start_instead_of(self, index: int) -> None:
        self._group_order.replace(index)
        self._start_groups()

    def _choose(self) -> list[int] | None:
        """The groups of the next update; None where some are still missing."""
        return self.settings.staleness.choose(
            self.sampler.version,
            {index: each.born for index, each in self._waiting.groups.items()},
            {index: each.born for index, each in self._open.items()},
        )

    def _evict(self) -> None:
        """Drop what is too old to be trained, and start one other for each."""
        staleness = self.settings.staleness
        if staleness.on_stale != "evict":
            return
        groups = self._waiting.groups.values()
        stale = [
            each for each in groups if staleness.lag(self.sampler.version, each.oldest()) > staleness.max_staleness
        ]
        for each in self._waiting.take(each.index for each in stale):
            self._group_order.replace(each.index)
            self._counts["evicted"] += 1
            self._failed += each.group.episodes
        self._start_groups()
        self.sampler.wake()  # the batch may no longer be complete

    # -- sampling ---------------------------------------------------------------------------------------------------

    def _may_draw(self) -> bool:
        """In turns, nothing is drawn but while a batch is being collected: what a checkpoint holds is then what is read
        again under the next weights, whether the run was killed in between or not."""
        return self.settings.mode == "overlap" or (self._collecting and self._choose() is None)

    async def _settle(self) -> None:
        """In serial mode, let everything go on until every unfinished episode waits for the model."""
        if not self._repeats:
            return
        rounds = 0
        while self._loop.broken is None and self._waiting_members() < self._members():
            await asyncio.sleep(0 if rounds < 20 else 0.001)
            rounds += 1

    def _waiting_members(self) -> int:
        """Members that wait for the model, or for others of their group."""
        return self.sampler.waited_for() + sum(each.companions.waiting for each in self._open.values())

    def _members(self) -> int:
        return sum(len(each.missing()) for each in self._open.values())

    def _order(self, draft: PartialSample) -> tuple[Any, ...]:
        if self.settings.order == "arrival":
            return draft.group, draft.stream
        return (len(draft.ids) - self._lengths.of(self._open[draft.group].task.key), draft.group, draft.stream)

    def _learn_length(self, draft: PartialSample) -> None:
        self._lengths.learn(self._open[draft.group].task.key, float(len(draft.ids)))

    # -- continued --------------------------------------------------------------------------------------------------

    def _load(self, state: Mapping[str, Any]) -> None:
        self._updates, self._first = int(state["updates"]), int(state.get("first", self._first))
        self._group_order.load(state)
        self._counts |= {name: int(state["counts"][name]) for name in self._counts}
        self._curriculum.load(state["curriculum"])
        self._lengths.load(state["lengths"])
        for record in state["finished"]:
            self._waiting.restore(finished_from_json(record), self.sampler.version)

    def _continue(self, record: Mapping[str, Any]) -> None:
        """Go on with a group that was under way, unless its members were done, or it was replaced, before the run ended."""
        index = int(record["group"])
        if not self._waiting.fills(index):
            self._begin_group(open_from_json(record, self._episodes.task(index)))

    def _branch_again(self, finished: FinishedGroup) -> None:
        """Begin the re-rolls of a group whose own members were done before the run ended; where it is to have none now, it is
        ready."""
        index = finished.index
        calls = self._curriculum.calls(index, finished.group)
        if not calls:
            self._waiting.keep(replace(finished, awaited=False))
            return
        logs = [CallLog() for _ in range(self.settings.group_size)]
        group = OpenGroup(index, finished.born, self._episodes.task(index), logs)
        self._branch(group, finished.group, calls)


def _sampler(
    learner: Samples, settings: Asynchrony, host: Host, engines: Sequence[HttpModel], run: RunFolder
) -> Sampler:
    """Of `engines`, or of this process where there are none."""
    if not engines:
        return LocalSampler(learner, settings, host)
    from keepworth.learning.collect.sampler import HttpSampler

    return HttpSampler(learner, settings, host, engines, run.path)
