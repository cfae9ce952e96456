"""Rollouts in other processes: `RolloutWorkers` is the controller's side, `Rollouts` the worker's.

A worker runs whole groups as this process would, with their environments, tools and rewards; only tokens are drawn by the
controller. The groups of a worker that dies start again in another one. Draws depend only on whose call they are for, so they are
the same again."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Episode, StopReason, Task, episode_from_json, episode_to_json, make_failed_episode
from keepworth.records.model import Sample
from keepworth.training.collect.groups import (
    CallFailed,
    Draw,
    OpenGroup,
    TrainedRollout,
    run_member,
)
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.placement import Cluster, Worker, WorkerDied, WorkerPart

if TYPE_CHECKING:
    from keepworth.models.text_side import TextSide
    from keepworth.training.collect.asynchrony import Asynchrony

DEATHS = 5
"""The most workers that may die while they run one group; its unfinished episodes then fail."""

# Each group is a call, `run`, that returns once its members are done. Meanwhile messages are sent: tuples whose first part is one
# of these words, and whose second is the number of the group's run.
#
#     controller to worker                      worker to controller
#     ANSWER  n, question, Sample or error      DRAW    n, question, PartialSample
#     DROP    n                                 WAITS   n, how many members are done, or wait for the others

ANSWER, DROP, DRAW, WAITS = "answer", "drop", "draw", "waits"
Message = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GroupRun:
    """What a worker needs to run a group. `version` is that of the current weights."""

    index: int
    task: Task
    size: int
    settings: Asynchrony
    version: int


# -- the worker's side --------------------------------------------------------------------------------------------------


class Rollouts:
    """The object in a worker's process: runs groups, and requests samples from the controller. It sets the version of `text`."""

    def __init__(self, rollout: TrainedRollout, text: TextSide | None = None) -> None:
        self._rollout, self._text = rollout, text
        self._messages: list[Message] = []
        self._something = asyncio.Event()
        self._running: dict[int, asyncio.Future[list[None]]] = {}
        self._questions: dict[int, asyncio.Future[Sample]] = {}
        self._numbers = itertools.count()

    async def heard(self) -> list[Message]:
        """Waits until there are messages for the controller, and returns them."""
        await self._something.wait()
        self._something.clear()
        messages, self._messages = self._messages, []
        return messages

    def tell(self, messages: Sequence[Message]) -> None:
        """Handles the controller's messages."""
        for word, number, *rest in messages:
            if word == ANSWER:
                self._answer(*rest)
            elif number in self._running:
                self._running[number].cancel()

    def _say(self, *message: Any) -> None:
        self._messages.append(message)
        self._something.set()

    async def run(self, number: int, run: GroupRun) -> tuple[list[str], list[str]]:
        """Runs the members of a group to their ends. Returns their episodes, and the tries that failed, as JSON."""
        if self._text is not None:
            self._text.version = run.version
        group = OpenGroup(run.index, run.version, run.task, run.size)
        group.changed = lambda: self._say(WAITS, number, len(group.done) + group.waiting)
        draw = partial(self._ask, number)
        failed: list[Episode] = []
        members = (
            run_member(group, member, self._rollout, draw, run.settings, failed.append) for member in range(run.size)
        )
        self._running[number] = asyncio.gather(*members)
        try:
            await self._running[number]
        finally:
            del self._running[number]
        ended = [group.done[member] for member in range(run.size)]
        return [*map(_written, ended)], [*map(_written, failed)]

    async def _ask(self, number: int, draft: PartialSample) -> Sample:
        question = next(self._numbers)
        answer = self._questions[question] = asyncio.get_running_loop().create_future()
        self._say(DRAW, number, question, draft)
        try:
            sample: Sample = await answer
            return sample
        finally:
            self._questions.pop(question, None)

    def _answer(self, question: int, value: Sample | Exception) -> None:
        answer = self._questions.get(question)
        if answer is None or answer.done():  # the caller has been cancelled
            return
        if isinstance(value, Exception):
            answer.set_exception(value)
        else:
            answer.set_result(value)


def _written(episode: Episode) -> str:
    return json.dumps(episode_to_json(episode))


# -- the controller's side ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Run:
    """A group that runs in a worker. `drawing` holds the tasks of samples that were requested and not answered yet."""

    group: OpenGroup
    draw: Draw
    drawing: set[asyncio.Task[None]] = field(default_factory=set)


class _LiveWorker:
    """A worker, from its start to its death."""

    def __init__(self, worker: Worker, note: Callable[[str], None]) -> None:
        self.worker = worker
        self.runs: dict[int, _Run] = {}
        self._note = note
        self.died: WorkerDied | None = None
        self._numbers = itertools.count()
        self._outgoing: list[Message] = []
        self._sending: asyncio.Task[None] | None = None

    async def run(self, group: OpenGroup, run: GroupRun, draw: Draw) -> list[Episode]:
        """Runs a group in the worker until every member is done, and returns the tries that failed. Raises WorkerDied where the
        worker dies first."""
        number = next(self._numbers)
        running = self.runs[number] = _Run(group, draw)
        try:
            episodes, failed = await asyncio.wrap_future(self.worker.call("run", number, run))
        except asyncio.CancelledError:
            self.tell(DROP, number)
            raise
        except WorkerDied as died:
            self._die(died)
            raise
        finally:
            del self.runs[number]
            for task in running.drawing:
                task.cancel()
        group.waiting_elsewhere = 0
        for member, episode in enumerate(episodes):
            group.end(member, episode_from_json(json.loads(episode)))
        return [episode_from_json(json.loads(record)) for record in failed]

    def tell(self, *message: Any) -> None:
        """Sends a message together with others that wait. There is one call at a time, so that messages arrive in order."""
        self._outgoing.append(message)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._outgoing and self.died is None:
                messages, self._outgoing = self._outgoing, []
                with suppress(WorkerDied):  # `listen` notices it
                    await asyncio.wrap_future(self.worker.call("tell", messages))
        finally:
            self._sending = None

    def _die(self, died: WorkerDied) -> None:
        """Reports the worker's death once, whichever call notices it first."""
        if self.died is None:
            self.died = died
            self._note(f"{died.message} Its groups begin again.")

    async def listen(self) -> None:
        """Serves the worker's requests until it dies."""
        while True:
            try:
                messages = await asyncio.wrap_future(self.worker.call("heard"))
            except WorkerDied as died:
                self._die(died)
                return
            for word, number, *rest in messages:
                run = self.runs.get(number)
                if run is None:
                    continue
                if word == WAITS:
                    (run.group.waiting_elsewhere,) = rest
                    run.group.changed()
                    continue
                task = asyncio.get_running_loop().create_task(self._draw(number, run, *rest))
                run.drawing.add(task)
                task.add_done_callback(run.drawing.discard)

    async def _draw(self, number: int, run: _Run, question: int, draft: PartialSample) -> None:
        try:
            self.tell(ANSWER, number, question, await run.draw(draft))
        except Exception as error:
            self.tell(ANSWER, number, question, _sendable(error))


class RolloutWorkers:
    """A number of workers of a cluster that run groups. It is made before the loop runs; all methods are called on the loop.

    `part` says how a worker is made; `note` is called with a line about every worker that dies. Raises what `Cluster.spawn`
    raises."""

    def __init__(
        self,
        cluster: Cluster,
        part: WorkerPart,
        count: int,
        note: Callable[[str], None],
        label: str = "",
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._note = note
        names = [f"rollout worker {number}" for number in range(1, count + 1)]
        with ThreadPoolExecutor(count) as pool:
            workers = list(pool.map(lambda name: cluster.spawn(part, name, label), names))
        self._workers = [_LiveWorker(worker, note) for worker in workers]
        self._back = asyncio.Condition()

    async def listen(self) -> None:
        """Serves the workers until cancelled, including those that were restarted after their death."""
        await asyncio.gather(*(self._keep(number) for number in range(len(self._workers))))

    async def run_group(
        self,
        group: OpenGroup,
        settings: Asynchrony,
        version: int,
        draw: Draw,
        note_failed: Callable[[Episode], None],
    ) -> None:
        """Runs the members of a group to their ends, even if workers die. The group runs in the worker with the fewest groups,
        and if that dies from its start in another one.

        Args:
            group: The group, which gets the episodes.
            settings: The limits of time and the number of retries.
            version: The version of the weights in service.
            draw: What draws samples for the workers, in this process.
            note_failed: It receives the episode of each failed try that is followed by another.
        """
        run = GroupRun(group.index, group.task, group.size, settings, version)
        for _ in range(DEATHS):
            async with self._back:
                await self._back.wait_for(lambda: any(worker.died is None for worker in self._workers))
            worker = min((w for w in self._workers if w.died is None), key=lambda worker: len(worker.runs))
            try:
                for failed in await worker.run(group, run, draw):
                    note_failed(failed)
                return
            except WorkerDied as error:
                died = error
                group.waiting_elsewhere = 0
        why = f"{DEATHS} workers died at group {group.index}; the last: {died}"
        for member in set(range(group.size)) - set(group.done):
            stop = StopReason.ENVIRONMENT_ERROR
            group.end(member, make_failed_episode(group.task, f"{group.index}/{member}", stop, why))

    async def _keep(self, number: int) -> None:
        while True:
            live = self._workers[number]
            await live.listen()
            try:
                await asyncio.wrap_future(live.worker.restarted())
            except KeepworthError as error:
                if all(worker.died is not None for worker in self._workers):
                    raise
                self._note(f"{live.worker.name} is gone, and the run goes on with fewer workers: {error}")
                return
            self._workers[number] = _LiveWorker(live.worker, self._note)
            async with self._back:
                self._back.notify_all()


def _sendable(error: Exception) -> Exception:
    with suppress(Exception):
        pickle.loads(pickle.dumps(error))
        return error
    return CallFailed(f"{type(error).__name__}: {error}")
