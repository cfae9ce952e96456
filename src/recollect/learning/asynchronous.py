"""Asynchronous collecting: rollouts run while the learner learns, wait while others decode, and survive both.

Every group has a ticket, 0, 1, 2 ...; its task is a function of the ticket. Rollouts are coroutines on one event loop;
their model calls share the slots of one continuous batch, which runs on the sampler's copy of the weights. Groups are
started as `Staleness` allows, trained oldest first among those that are ready, and nothing that is unfinished when
a batch is complete is thrown away: it goes on under the next weights (AReaL, arXiv 2505.24298; APRIL, arXiv 2509.18521).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recollect.episodes.codec import episode_from_json, episode_to_json
from recollect.episodes.episode import Episode, Group, StopReason
from recollect.episodes.errors import RecollectError
from recollect.episodes.model import Receipt, Sample
from recollect.episodes.task import Task
from recollect.learning.asynchrony import Asynchrony, Episodes
from recollect.learning.attempt import Attempt, Tape, has_failed, run_attempt, tape_from_json, tape_to_json
from recollect.learning.checkpoint import Checkpoint
from recollect.learning.collector import Collected, Collector
from recollect.learning.masters import Masters
from recollect.learning.pipeline_store import (
    Finished,
    Journal,
    finished_from_json,
    finished_to_json,
    from_ranges,
    read_state,
    to_ranges,
    write_state,
)
from recollect.learning.run_folder import RunFolder
from recollect.models.adapter import Named
from recollect.models.continuous import ContinuousBatch, Draft
from recollect.models.inprocess import InProcessModel
from recollect.models.replica import Outgoing, Replica

T = TypeVar("T")


class RolloutsFail(RecollectError):
    """Group after group comes to nothing: there is nothing to train on."""


class Samples(Protocol):
    """What a pipeline needs of the learner's side."""

    @property
    def model(self) -> InProcessModel: ...

    @property
    def masters(self) -> Masters: ...

    @property
    def role(self) -> str: ...


@dataclass(slots=True)
class _Open:
    """A group being sampled: the members' tapes, and the episodes of those that are done."""

    ticket: int
    born: int
    task: Task
    tapes: list[Tape]
    done: dict[int, Episode] = field(default_factory=dict)


class Pipeline(Collector):
    """The asynchronous collector. Everything but `begin`, `collect`, `publish`, `save` and `close`, which the trainer's
    thread calls, happens on the event loop, so that nothing here needs a lock."""

    def __init__(self, run: RunFolder, learner: Samples, episodes: Episodes, settings: Asynchrony) -> None:
        self.settings = settings
        self._run, self._learner, self._episodes = run, learner, episodes
        self._named: Named = learner.masters.named
        self._replica = Replica(learner.model, self._named)
        self.batch = ContinuousBatch(self._replica.model, settings.slots, refill=settings.refill, order=self._order)
        self._journal: Journal | None = None
        self._open: dict[int, _Open] = {}
        self._finished: dict[int, Finished] = {}
        self._taken: list[Finished] = []
        self._done: set[int] = set()
        self._next = 0
        self._updates = 0
        self._failed: list[Episode] = []
        self._failures = 0
        self._counts = {"retried": 0, "failed_groups": 0, "evicted": 0}
        self._lengths: dict[str, float] = {}
        self._length = 0.0
        self._waits: dict[int, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._collecting = False
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    # -- called by the trainer --------------------------------------------------------------------------------------

    def begin(self, checkpoint: Checkpoint | None, step: int) -> None:
        if self.settings.mode == "overlap":
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="sampler")
            self._thread.start()
        self._do(self._begin(checkpoint, step, self._outgoing()))

    def collect(self, step: int) -> Collected:
        """The oldest groups that are ready, once there are enough. Raises RolloutsFail, and whatever broke the sampler."""
        return self._do(self._collect())

    def publish(self) -> dict[str, float]:
        receipt = self._do(self._publish(self._outgoing()))
        return {"seconds/publish": receipt.seconds, "publish/probe_gap": receipt.probe_gap}

    def save(self, folder: Path, step: int) -> None:
        write_state(folder, self._do(self._state(step)))

    def evaluate(self, step: int) -> None:
        self._episodes.evaluate(step)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._do(self._cancel())
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            return self._loop.run_until_complete(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _outgoing(self) -> Outgoing:
        return self._replica.outgoing(self._learner.model, self._named)

    # -- the same, on the event loop --------------------------------------------------------------------------------

    async def _begin(self, checkpoint: Checkpoint | None, step: int, sent: Outgoing) -> None:
        self._changed, self._wake = asyncio.Event(), asyncio.Event()
        self._replica.publish(sent)
        self._journal = Journal(self._run.path, self._learner.role, step)
        state = read_state(checkpoint.path) if checkpoint else None
        if state is not None:
            self._load(state)
        if not self._repeats:
            for each in self._journal.since(step):
                self._keep_found(each)
        for record in state["open"] if state else ():
            self._continue(record)
        self._start_groups()
        self._spawn(self._pump())

    async def _collect(self) -> Collected:
        begun = time.perf_counter()
        self._collecting = True
        self._wake.set()
        while True:
            self._require_alive()
            await self._settle()
            self._evict()
            chosen = self._choose()
            if chosen is not None:
                break
            self._changed.clear()
            await self._changed.wait()
        self._collecting = False
        for each in chosen:
            del self._finished[each.ticket]
        self._taken = chosen
        failed, self._failed = tuple(self._failed), []
        version, limit = self._version, self.settings.staleness
        metrics = {
            "pipeline/running": float(len(self._open)),
            "pipeline/finished": float(len(self._finished)),
            "pipeline/unfinished_tokens": float(sum(len(d.ids) for d in (*self.batch.live, *self.batch.waiting))),
            "pipeline/over_bound": float(sum(limit.lag(version, f.oldest()) > limit.max_staleness for f in chosen)),
            **{f"pipeline/{name}": float(count) for name, count in self._counts.items()},
            "seconds/wait": time.perf_counter() - begun,
        }
        return Collected([each.group for each in chosen], failed, metrics)

    async def _publish(self, sent: Outgoing) -> Receipt:
        self.batch.interrupt(keep=self.settings.caches == "keep")
        receipt = self._replica.publish(sent)
        self._done |= {each.ticket for each in self._taken}
        self._taken = []
        self._updates += 1
        self._start_groups()
        self._wake.set()
        return receipt

    async def _state(self, step: int) -> dict[str, Any]:
        assert self._journal is not None
        self._journal.rotate(step, [each.step for each in self._run.checkpoints()])
        waiting = sorted((*self._finished.values(), *self._taken), key=lambda each: each.ticket)
        return {
            "format": 1,
            "version": self._version,
            "updates": self._updates,
            "next": self._next,
            "done": to_ranges(self._done),
            "finished": [finished_to_json(each) for each in waiting],
            "open": [
                {
                    "ticket": each.ticket,
                    "born": each.born,
                    "task": each.task.key,
                    "tapes": [tape_to_json(tape, self._version) for tape in each.tapes],
                    "episodes": {str(member): episode_to_json(e) for member, e in sorted(each.done.items())},
                }
                for each in sorted(self._open.values(), key=lambda each: each.ticket)
            ],
            "counts": self._counts,
            "lengths": {"": self._length, **self._lengths},
        }

    async def _cancel(self) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- groups -----------------------------------------------------------------------------------------------------

    @property
    def _repeats(self) -> bool:
        """In serial mode what was finished after a checkpoint is sampled again, the same to the last bit; taking it from
        disk instead would give the next batch other company than it had."""
        return self.settings.mode == "serial"

    @property
    def _version(self) -> int:
        return self._replica.model.version

    def _start_groups(self) -> None:
        staleness = self.settings.staleness
        trained = self._updates * staleness.groups
        accepted = trained + len(self._finished) + len(self._taken)
        capacity = staleness.capacity(
            version=self._updates, accepted=accepted, running=len(self._open), consumed=trained
        )
        for _ in range(capacity):
            while self._next in self._done or self._next in self._finished:
                self._next += 1
            ticket, self._next = self._next, self._next + 1
            tapes = [Tape() for _ in range(self.settings.group_size)]
            self._begin_group(_Open(ticket, self._version, self._episodes.task(ticket), tapes))

    def _begin_group(self, group: _Open) -> None:
        self._open[group.ticket] = group
        for member in range(self.settings.group_size):
            if member not in group.done:
                self._spawn(self._member(group, member))

    async def _member(self, group: _Open, member: int) -> None:
        settings, tape = self.settings, group.tapes[member]
        while True:
            attempt = Attempt(
                self, tape, group.ticket, member, settings.seed, settings.call_seconds, settings.failed_reward
            )
            episode = await run_attempt(self._episodes.rollout, group.task, attempt, settings.episode_seconds)
            again = tape.tries < settings.retries and episode.stop is not StopReason.CONTEXT_OVERFLOW
            if not (has_failed(episode) and again):
                break
            self._failed.append(episode)
            self._counts["retried"] += 1
            tape.entries.clear()
            tape.tries += 1
        group.done[member] = episode
        if len(group.done) == settings.group_size:
            self._end_group(group)

    def _end_group(self, group: _Open) -> None:
        """Keep what is whole of it; a group without enough of that makes room for exactly one other."""
        del self._open[group.ticket]
        episodes = [group.done[member] for member in range(self.settings.group_size)]
        whole = _of_one_snapshot([each for each in episodes if not has_failed(each)])
        self._failed += [each for each in episodes if each not in whole]
        if len(whole) >= self.settings.enough:
            self._failures = 0
            assert self._journal is not None
            finished = Finished(group.ticket, group.born, Group(group.task.key, whole[0].memory_snapshot, whole))
            if not self._repeats:
                self._journal.append(finished)
            self._finished[group.ticket] = finished
        else:
            self._failures += 1
            self._counts["failed_groups"] += 1
            self._done.add(group.ticket)
            if self._failures >= self.settings.patience:
                raise RolloutsFail(
                    f"{self._failures} groups in a row came to nothing; the last one says: {_said(episodes)}.",
                    "The episodes are in the run's folder with the arm failed; mend the environment or the reward.",
                )
            self._start_groups()
        self._changed.set()

    def _keep_found(self, finished: Finished) -> None:
        """A group found on disk, where it may stand twice. Of weights that are lost, it counts as born under those that
        the run continues from."""
        if finished.ticket not in self._done and finished.ticket not in self._finished:
            self._finished[finished.ticket] = replace(finished, born=min(finished.born, self._version))

    def _choose(self) -> list[Finished] | None:
        """The groups of the next update; None where some are still missing."""
        chosen = self.settings.staleness.choose(
            self._version,
            {ticket: each.born for ticket, each in self._finished.items()},
            {ticket: each.born for ticket, each in self._open.items()},
        )
        return None if chosen is None else [self._finished[ticket] for ticket in chosen]

    def _evict(self) -> None:
        """Drop what is too old to be trained, and start one other for each."""
        staleness = self.settings.staleness
        if staleness.on_stale != "evict":
            return
        for each in list(self._finished.values()):
            if staleness.lag(self._version, each.oldest()) > staleness.max_staleness:
                del self._finished[each.ticket]
                self._done.add(each.ticket)
                self._counts["evicted"] += 1
                self._failed += each.group.episodes
        self._start_groups()
        self._wake.set()  # the batch may no longer be complete

    # -- sampling ---------------------------------------------------------------------------------------------------

    async def sample(self, draft: Draft) -> Sample:
        """What attempts call: wait until the batch has finished this draft."""
        if draft.finish is None:
            self.batch.add(draft)
            waiting: asyncio.Future[None] = self._loop.create_future()
            self._waits[id(draft)] = waiting
            self._wake.set()
            try:
                await waiting
            finally:
                if self._waits.pop(id(draft), None) is not None and draft.finish is None:
                    self.batch.remove(draft)
        return draft.sample(self._version)

    async def _pump(self) -> None:
        """Decode, one token for all at a time; between two tokens everybody else has a turn."""
        in_turns = self.settings.mode != "overlap"
        while True:
            await self._settle()
            # In turns, nothing is drawn but while a batch is being collected: what a checkpoint holds is then what is read
            # again under the next weights, whether the run was killed in between or not.
            if not self.batch.busy or (in_turns and not (self._collecting and self._choose() is None)):
                self._wake.clear()
                await self._wake.wait()
                continue
            for draft in self.batch.step():
                self._learn_length(draft)
                self._waits[id(draft)].set_result(None)
            await asyncio.sleep(0)

    async def _settle(self) -> None:
        """In serial mode, let everything go on until every unfinished episode waits for the model."""
        if not self._repeats:
            return
        rounds = 0
        while self._broken is None and sum(not each.done() for each in self._waits.values()) < self._members():
            await asyncio.sleep(0 if rounds < 20 else 0.001)
            rounds += 1

    def _members(self) -> int:
        return sum(self.settings.group_size - len(each.done) for each in self._open.values())

    def _order(self, draft: Draft) -> tuple[Any, ...]:
        if self.settings.order == "arrival":
            return draft.stream
        expected = self._lengths.get(self._task_of(draft), self._length)
        return (len(draft.ids) - expected, draft.stream)

    def _task_of(self, draft: Draft) -> str:
        return self._open[draft.stream[0]].task.key

    def _learn_length(self, draft: Draft) -> None:
        key, length = self._task_of(draft), float(len(draft.ids))
        self._length += 0.05 * (length - self._length)
        before = self._lengths.get(key, length)
        self._lengths[key] = before + 0.5 * (length - before)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _load(self, state: Mapping[str, Any]) -> None:
        self._updates, self._next = int(state["updates"]), int(state["next"])
        self._done = from_ranges(state["done"])
        self._counts = {name: int(count) for name, count in state["counts"].items()}
        self._lengths = dict(state["lengths"])
        self._length = self._lengths.pop("")
        for record in state["finished"]:
            self._keep_found(finished_from_json(record))

    def _continue(self, record: Mapping[str, Any]) -> None:
        ticket = int(record["ticket"])
        if ticket in self._finished:
            return
        task = self._episodes.task(ticket)
        if task.key != record["task"]:
            raise RecollectError(
                f"Group {ticket} was of task {record['task']!r} when the checkpoint was written and is of {task.key!r} now.",
                "Continue with the tasks that the run began with, or start over with --fresh.",
            )
        done = {int(member): episode_from_json(each) for member, each in record["episodes"].items()}
        self._begin_group(
            _Open(ticket, int(record["born"]), task, [tape_from_json(each) for each in record["tapes"]], done)
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = self._broken or task.exception()
            self._changed.set()

    def _require_alive(self) -> None:
        if self._broken is not None:
            raise self._broken


def _said(episodes: Sequence[Episode]) -> str:
    return next((each.errors[-1] for each in episodes if each.errors), "its episodes start from different memories")


def _of_one_snapshot(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    """Those that start from the memory that most of them start from: a baseline compares like with like."""
    counts = Counter(each.memory_snapshot for each in episodes)
    return tuple(each for each in episodes if each.memory_snapshot == counts.most_common(1)[0][0])
