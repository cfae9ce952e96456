"""What a rollout is given: everything in it that takes time goes through its context.

A rollout is a coroutine that makes one episode of a task. The same one is measured (`keepworth.rollouts.context.together`) and
trained on (`keepworth.learning.collect.pipeline.Pipeline`): each hands in a context of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from keepworth.episodes.episode import Episode, Group, Task
from keepworth.episodes.model import Model, Sample, SamplingParams, Tokens


class RolloutContext(Protocol):
    """id: the episode's. group: index of its group. seed: for whatever else draws, such as an environment."""

    @property
    def id(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def seed(self) -> int: ...

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        """One sample; `params.seed` is not looked at: draws are seeded by whose call it is."""
        ...

    async def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> Any:
        """What a judge, a tool or another slow function says; it may be asynchronous. seconds: how long it may take."""
        ...

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """The result for `item` of a function that takes the items of several members of the group at once."""
        ...

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function that is called once for all members of the group; it may be asynchronous."""
        ...

    def horizon(self, otherwise: int) -> int:
        """How far the episode may go, where the stage of the training says so; else `otherwise`."""
        ...


Rollout = Callable[[Task, RolloutContext], Awaitable[Episode]]
"""Makes one episode of a task, called `context.id`."""


# Batching: many episodes, one model. Calls that wait at the same time are sampled in one batch.
#
# A batch is drawn when every episode is waiting or has ended, so that what is sampled with what, and with which seed, does
# not depend on how long anything took: the same arguments give the same episodes. Calls of a group's members with the same
# prompt (the first turn of a group) are one prompt with several samples, which an engine reads once.


def together(
    model: Model,
    tasks: Sequence[Task],
    rollout: Rollout,
    *,
    n: int = 1,
    seed: int = 0,
    label: str = "",
    concurrent: int = 0,
    indices: Sequence[int] | None = None,
) -> list[Group]:
    """`together_async`, where no loop runs yet."""
    return asyncio.run(
        together_async(model, tasks, rollout, n=n, seed=seed, label=label, concurrent=concurrent, indices=indices)
    )


async def together_async(
    model: Model,
    tasks: Sequence[Task],
    rollout: Rollout,
    *,
    n: int = 1,
    seed: int = 0,
    label: str = "",
    concurrent: int = 0,
    indices: Sequence[int] | None = None,
) -> list[Group]:
    """`n` episodes of every task, as one group each, in the order of `tasks`, to measure what a model does.

    label: keeps ids apart. concurrent: episodes at once; 0 is all of them. indices: of the groups, for a rollout that goes by
    them; 0, 1, 2 ... where None. Whatever a rollout raises is raised."""
    if n < 1:
        raise ValueError(f"n = {n}: a group has at least one episode")
    lockstep = Lockstep(model, seed)
    shared: list[dict[str, asyncio.Future[Any]]] = [{} for _ in tasks]
    waiting = [(index, member) for index in range(len(tasks)) for member in range(n)]
    workers = min(len(waiting), concurrent or len(waiting))
    episodes: dict[int, Episode] = {}

    async def worker() -> None:
        try:
            while waiting:
                index, member = waiting.pop(0)
                number = index * n + member
                name = f"{label}{tasks[index].key}#{member}"
                group = index if indices is None else indices[index]
                context = Measuring(lockstep, name, group, number, seed * 1_000_003 + number, shared[index])
                episodes[number] = await rollout(tasks[index], context)
        finally:
            lockstep.leave()

    for _ in range(workers):
        lockstep.enter()
    async with _all_or_none() as running:
        running.extend(asyncio.create_task(worker()) for _ in range(workers))
    groups = []
    for index, task in enumerate(tasks):
        own = tuple(episodes[index * n + member] for member in range(n))
        groups.append(Group(task.key, own[0].memory_snapshot, own))
    return groups


@dataclass(frozen=True, slots=True)
class Measuring:
    """The `RolloutContext` of an episode that is measured. number: of the episode, which orders a batch."""

    lockstep: Lockstep
    id: str
    group: int
    number: int
    seed: int
    _shared: dict[str, asyncio.Future[Any]]

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        return await self.lockstep.sample(WaitingCall(self.number, self.group, prompt, params))

    async def shared(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if name not in self._shared:
            self._shared[name] = asyncio.ensure_future(made(function, *arguments))
        return await self._shared[name]

    async def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, name: str = ""
    ) -> Any:
        return await made(function, *arguments)  # whoever measures waits for it, however long it takes

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        (result,) = function([item])
        return result

    def horizon(self, otherwise: int) -> int:
        return otherwise


async def made(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or what that comes to where it has to be awaited."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for its sample."""

    episode: int
    group: int
    prompt: Tokens
    params: SamplingParams


class Lockstep:
    """Samples when everybody who entered waits. enter and leave: whoever may call announces itself and says when it is done."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model, self._seed = model, seed
        self._inside = 0
        self._waiting: list[tuple[WaitingCall, asyncio.Future[Sample]]] = []
        self._round = 0

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._sample_if_all_wait()

    async def sample(self, call: WaitingCall) -> Sample:
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        self._sample_if_all_wait()
        return await future

    def _sample_if_all_wait(self) -> None:
        self._waiting = [each for each in self._waiting if not each[1].done()]  # done before: cancelled
        if not self._waiting or len({call.episode for call, _ in self._waiting}) < self._inside:
            return
        asked, self._waiting = sorted(self._waiting, key=lambda each: each[0].episode), []
        try:
            samples = _sampled(self._model, [call for call, _ in asked], f"{self._seed}/{self._round}")
        except Exception as error:  # a model that fails ends the run: it is nobody's episode
            for _, future in asked:
                future.set_exception(error)
            return
        self._round += 1
        for (_, future), sample in zip(asked, samples, strict=True):
            future.set_result(sample)


def _sampled(model: Model, calls: Sequence[WaitingCall], seed: str) -> list[Sample]:
    """One sample per call, in the order of `calls`, in as few calls of the model as their limits allow.

    Calls differ in what ends them and in how many share their prompt: each combination is one call of the model."""
    by_prompt: dict[tuple[SamplingParams, int, Tokens], list[int]] = {}
    for index, call in enumerate(calls):
        by_prompt.setdefault((replace(call.params, seed=0), call.group, call.prompt), []).append(index)
    batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[int]]]] = {}
    for (params, _, prompt), members in by_prompt.items():
        batches.setdefault((params, len(members)), []).append((prompt, members))
    found: dict[int, Sample] = {}
    for number, ((params, copies), entries) in enumerate(batches.items()):
        drawn = int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:6], "big")
        sampled = model.sample([prompt for prompt, _ in entries], replace(params, n=copies, seed=drawn))
        for (_, members), samples in zip(entries, sampled, strict=True):
            found.update(zip(members, samples, strict=True))
    return [found[index] for index in range(len(calls))]


class _all_or_none:
    """Tasks that end together: the first failure cancels the rest, and is raised (TaskGroup before Python 3.11)."""

    async def __aenter__(self) -> list[asyncio.Task[None]]:
        self._tasks: list[asyncio.Task[None]] = []
        return self._tasks

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


# Deadlines: a limit of time for what other people's code does, told apart from the timeouts that it raises itself.
#
# A limit acts where the code awaits. Code that computes or sleeps without awaiting holds up the whole event loop, its own
# deadline included: nothing can end it, so a warning from another thread names it.


T = TypeVar("T")
GRACE = 1.0
"""Seconds for what is given up to give back what it holds."""
BLOCKED_AFTER = 10.0
"""Seconds without an await after which code is said to hold up the loop."""

_LOG = logging.getLogger("keepworth.rollouts")


class OutOfTime(Exception):
    """The deadline has passed. What was waited for has been told to stop."""


async def within(work: Awaitable[T], seconds: float, name: str = "A rollout") -> T:
    """The result of `work`, or whatever it raises, a TimeoutError of its own included. Raises OutOfTime after `seconds`.

    `asyncio.wait_for` raises the same error for both, and waits for ever for work that does not let itself be cancelled.
    name: what a warning calls it where it holds up the loop."""
    task = asyncio.ensure_future(_Watched(work, name))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        try:
            await _stop(task)
        finally:
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # else Python says that nobody awaited it
        raise
    if not done:
        await _stop(task)
        raise OutOfTime
    if task.cancelled():  # from inside: to whoever waits here that is a failure, not the end of the program
        raise RuntimeError("it cancelled itself")
    return task.result()


async def _stop(task: asyncio.Future[T]) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GRACE)
    if done and not task.cancelled():
        task.exception()  # looked at, so that nobody is told that it was not


class Watch:
    """Who is running on which event loop without awaiting, and since when. One loop runs in one thread at a time."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, name: str) -> None:
        self.running[threading.get_ident()] = name, time.monotonic()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, daemon=True, name="blocked loops")
                    self._thread.start()

    def end(self) -> None:
        self.running.pop(threading.get_ident(), None)

    def blocked(self, now: float, seconds: float) -> list[tuple[str, float]]:
        """(name, since) of those that have run for longer than `seconds` at a stretch."""
        return [(name, since) for name, since in list(self.running.values()) if now - since > seconds]

    def _look(self) -> None:
        known: set[tuple[str, float]] = set()
        while True:
            time.sleep(min(1.0, BLOCKED_AFTER / 4))
            found = set(self.blocked(time.monotonic(), BLOCKED_AFTER))
            for name, _ in found - known:
                _LOG.warning(
                    "%s has not awaited anything for %g s: no other episode goes on meanwhile, and no time limit can "
                    "end it. Put code that blocks into a thread: context.call(function, ...), or Blocking(environment).",
                    name,
                    BLOCKED_AFTER,
                )
            known = found


WATCH = Watch()


class _Watched(Generic[T]):
    """`work`, every stretch of which between two awaits is noted."""

    def __init__(self, work: Awaitable[T], name: str) -> None:
        self._work, self._name = work, name

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step, sent = steps.send, None
        while True:
            WATCH.begin(self._name)
            try:
                awaited = step(sent)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                WATCH.end()
            try:
                sent = yield awaited
                step = steps.send
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                step, sent = steps.throw, error
