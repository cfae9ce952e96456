"""Environment: what a task looks like from outside an agent. Gives observations and rewards, never sees a token.

Methods are asynchronous, so that one program waits for many at once. They may raise and they may hang: whoever runs
them (`keepworth.rollouts.driver`) turns both into values. A method that blocks belongs in `Blocking`
(`keepworth.environments.environment`), because nothing can interrupt it otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from keepworth.episodes.episode import Observation, RewardTerm, StopReason, Task


@dataclass(frozen=True, slots=True)
class Step:
    """What an action led to.

    observation: what the agent sees next; nobody reads it once `stop` is set. rewards: of this action, added to those
    before. stop: why the episode ends, or None where it goes on. answer: what was taken as the answer, for the record.
    errors: what went wrong without ending the episode, such as a tool that failed. seconds: that the action took, where the
    environment knows better than a clock around `step` (a simulated time, a job's own); None where that clock is right."""

    observation: Observation = Observation("")  # noqa: RUF009  (frozen)
    rewards: tuple[RewardTerm, ...] = ()
    stop: StopReason | None = None
    answer: str = ""
    errors: tuple[str, ...] = ()
    seconds: float | None = None


class Environment(Protocol):
    """One episode at a time; `reset` may be called again after `close`."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin `task`. seed: of whatever is drawn; the same for the same attempt, whatever ran before."""
        ...

    async def step(self, action: str) -> Step: ...

    async def close(self) -> None:
        """Give back what the episode held. Called once after every episode, also after one that failed."""
        ...


@runtime_checkable
class ScoresTheEnd(Protocol):
    """An environment that says only at the end what an episode was worth."""

    async def outcome(self) -> tuple[RewardTerm, ...]:
        """What an episode has earned that is ended from outside: its turns, its tokens or its window are used up."""
        ...


# Blocking: an environment of plain methods, run in a thread, so that it can hang without holding anything up.


P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `function`, computed in a thread of its own.

    A daemon thread: one that never returns is left behind and does not keep the program from ending, as a pool's would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():  # whoever waited has given up
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def work() -> None:
        result: Any = None
        failed: BaseException | None = None
        try:
            result = function(*arguments, **named)
        except StopIteration as error:  # a future refuses it, and whoever waits would wait for ever
            failed = RuntimeError(f"StopIteration: {error}")
        except Exception as error:
            failed = error
        except BaseException as error:  # a SystemExit of people's code is not the program's
            failed = RuntimeError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=work, daemon=True, name=f"in_thread {getattr(function, '__name__', '')}").start()
    return await future


async def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of other people comes to: an asynchronous one, or an object whose call is, is awaited; another runs in a
    thread of its own, and what it returns is awaited where that has to be."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    result = await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


async def in_lasting_loop(work: Awaitable[T]) -> T:
    """What `work` of other people's code comes to, in the one event loop that lasts as long as the program: the clients that it
    keeps, as for HTTP, belong to a loop, and each measurement has its own. Cancelled here, it is cancelled there."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settled(work), _lasting_loop()))


async def _settled(work: Awaitable[T]) -> T:
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:  # a SystemExit would end the loop, and everybody in it would wait for ever
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


_lasting: list[asyncio.AbstractEventLoop] = []
_beginning = threading.Lock()


def _lasting_loop() -> asyncio.AbstractEventLoop:
    with _beginning:
        if not _lasting:
            _lasting.append(asyncio.new_event_loop())
            threading.Thread(target=_lasting[0].run_forever, daemon=True, name="lasting loop").start()
        return _lasting[0]


class PlainEnvironment(Protocol):
    """An environment whose methods are plain functions."""

    def reset(self, task: Task, seed: int) -> Observation: ...

    def step(self, action: str) -> Step: ...

    def close(self) -> None: ...


class Blocking:
    """`plain`, as an `Environment`."""

    def __init__(self, plain: PlainEnvironment) -> None:
        self._plain = plain

    async def reset(self, task: Task, seed: int) -> Observation:
        return await in_thread(self._plain.reset, task, seed)

    async def step(self, action: str) -> Step:
        return await in_thread(self._plain.step, action)

    async def close(self) -> None:
        await in_thread(self._plain.close)
