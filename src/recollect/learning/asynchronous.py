"""Asynchronous collecting: rollouts run while the learner learns, wait while others decode, and survive both.

Every group has a ticket, 0, 1, 2 ...; its task is a function of the ticket. Rollouts are coroutines on one event loop;
their model calls go to a sampler: a continuous batch on a copy of the weights, or an engine behind HTTP. Groups are
started as `Staleness` allows, trained oldest first among those that are ready, and nothing that is unfinished when
a batch is complete is thrown away: it goes on under the next weights (AReaL, arXiv 2505.24298; APRIL, arXiv 2509.18521).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.episodes.episode import Episode, Group, StopReason
from recollect.episodes.errors import RecollectError
from recollect.episodes.model import Receipt
from recollect.learning.asynchrony import Asynchrony, Episodes
from recollect.learning.attempt import Attempt, Tape, has_failed, run_attempt
from recollect.learning.checkpoint import Checkpoint
from recollect.learning.collector import Collected, Collector
from recollect.learning.open_group import OpenGroup, open_from_json, open_to_json, said
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
from recollect.learning.sampler import Host, LocalSampler, Samples, sampler_for
from recollect.models.continuous import ContinuousBatch, Draft

if TYPE_CHECKING:
    from recollect.models.http_engine import HttpModel

T = TypeVar("T")


class RolloutsFail(RecollectError):
    """Group after group comes to nothing: there is nothing to train on."""


class Pipeline(Collector):
    """The asynchronous collector. Everything but `begin`, `collect`, `publish`, `save` and `close`, which the trainer's
    thread calls, happens on the event loop, so that nothing here needs a lock.

    engine: samples in place of this process. reject: why a finished group is not to be trained on, or "", such as
    `recollect.learning.steering.without_signal`: another is started for it, and curriculum.jsonl says why. After `patience`
    rejections in a row a group is trained on all the same. Raises AdmissionError for settings that the engine cannot honour."""

    def __init__(
        self,
        run: RunFolder,
        learner: Samples,
        episodes: Episodes,
        settings: Asynchrony,
        engine: HttpModel | None = None,
        reject: Callable[[Group], str] | None = None,
    ) -> None:
        self.settings = settings
        self._run, self._learner, self._episodes = run, learner, episodes
        self._why_not = reject
        host = Host(self._order, self._learn_length, self._may_draw, self._settle)
        self.sampler = sampler_for(learner, settings, host, engine, run.path)
        self._journal: Journal | None = None
        self._open: dict[int, OpenGroup] = {}
        self._finished: dict[int, Finished] = {}
        self._taken: list[Finished] = []
        self._done: set[int] = set()
        self._next = 0
        self._updates = 0
        self._failed: list[Episode] = []
        self._failures = self._rejections = self._step = 0
        self._counts = {"retried": 0, "failed_groups": 0, "evicted": 0, "rejected_groups": 0}
        self._lengths: dict[str, float] = {}
        self._length = 0.0
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
        self._do(self._begin(checkpoint, step, self.sampler.outgoing()))

    def collect(self, step: int) -> Collected:
        """The oldest groups that are ready, once there are enough. Raises RolloutsFail, and whatever broke the sampler."""
        return self._do(self._collect())

    def publish(self) -> dict[str, float]:
        receipt = self._do(self._publish(self.sampler.outgoing()))
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

    @property
    def batch(self) -> ContinuousBatch:
        """Of the sampler of this process."""
        assert isinstance(self.sampler, LocalSampler)
        return self.sampler.batch

    # -- the same, on the event loop --------------------------------------------------------------------------------

    async def _begin(self, checkpoint: Checkpoint | None, step: int, sent: Any) -> None:
        self._changed = asyncio.Event()
        self._step = step
        await self.sampler.begin(sent)
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
        self._spawn(self.sampler.run())

    async def _collect(self) -> Collected:
        begun = time.perf_counter()
        self._collecting = True
        self.sampler.wake()
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
            "pipeline/unfinished_tokens": float(self.sampler.unfinished()),
            "pipeline/over_bound": float(sum(limit.lag(version, f.oldest()) > limit.max_staleness for f in chosen)),
            **{f"pipeline/{name}": float(count) for name, count in self._counts.items()},
            "seconds/wait": time.perf_counter() - begun,
        }
        return Collected([each.group for each in chosen], failed, metrics)

    async def _publish(self, sent: Any) -> Receipt:
        receipt = await self.sampler.publish(sent)
        self._done |= {each.ticket for each in self._taken}
        self._taken = []
        self._updates += 1
        self._step += 1
        self._start_groups()
        self.sampler.wake()
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
            "open": [open_to_json(self._open[ticket], self._version) for ticket in sorted(self._open)],
            "counts": {**self._counts, "rejections": self._rejections},
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
        return self.sampler.version

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
            self._begin_group(OpenGroup(ticket, self._version, self._episodes.task(ticket), tapes))

    def _begin_group(self, group: OpenGroup) -> None:
        self._open[group.ticket] = group
        for member in group.missing():
            self._spawn(self._member(group, member))

    async def _member(self, group: OpenGroup, member: int) -> None:
        settings, tape = self.settings, group.tapes[member]
        while True:
            attempt = Attempt(
                self.sampler, tape, group.ticket, member, settings.seed, settings.call_seconds, settings.failed_reward
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
        if not group.missing():
            self._end_group(group)

    def _end_group(self, group: OpenGroup) -> None:
        """Keep what is whole of it; a group without enough of that makes room for exactly one other."""
        del self._open[group.ticket]
        whole, left_out = group.outcome()
        self._failed += left_out
        if len(whole) >= self.settings.enough and self._rejected(
            Group(group.task.key, whole[0].memory_snapshot, whole)
        ):
            self._failures = 0
            self._done.add(group.ticket)
            self._start_groups()
        elif len(whole) >= self.settings.enough:
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
                    f"{self._failures} groups in a row came to nothing; the last one says: {said(left_out)}.",
                    "The episodes are in the run's folder with the arm failed; mend the environment or the reward.",
                )
            self._start_groups()
        self._changed.set()

    def _rejected(self, group: Group) -> bool:
        reason = "" if self._why_not is None else self._why_not(group)
        if not reason or self._rejections >= self.settings.patience:
            self._rejections = 0
            return False
        self._rejections += 1
        self._counts["rejected_groups"] += 1
        self._run.append_curriculum(self._step + 1, what="rejected", task=group.task, reason=reason)
        return True

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
        while self._broken is None and self.sampler.waited_for() < self._members():
            await asyncio.sleep(0 if rounds < 20 else 0.001)
            rounds += 1

    def _members(self) -> int:
        return sum(len(each.missing()) for each in self._open.values())

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
        counts = {name: int(count) for name, count in state["counts"].items()}
        self._rejections = counts.pop("rejections", 0)
        self._counts |= counts
        self._lengths = dict(state["lengths"])
        self._length = self._lengths.pop("")
        for record in state["finished"]:
            self._keep_found(finished_from_json(record))

    def _continue(self, record: Mapping[str, Any]) -> None:
        ticket = int(record["ticket"])
        if ticket in self._finished:
            return
        self._begin_group(open_from_json(record, self._episodes.task(ticket)))

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
