"""Environment: the world that an agent acts in. It gives observations and rewards, and never sees a token.

Methods are asynchronous, so that one program waits for many at once. They may raise and they may hang: the driver
(`keepworth.worlds.driver`) turns both into values. A method that blocks belongs in `Blocking`
(`keepworth.worlds.environment`), because nothing can interrupt it otherwise."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from keepworth.records.episode import Episode, Observation, RewardTerm, StopReason, Task


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an action.

    Attributes:
        observation: What the agent sees next; ignored once `stop` is set.
        rewards: The rewards of this action, which are added to earlier ones.
        stop: Why the episode ends, or None where it goes on.
        answer: The text that was taken as the answer, for the record.
        errors: Failures that did not end the episode, such as a tool's.
        seconds: The duration of the action where the environment knows it better than a clock around `step` (a simulated time, a
            job's own); else None.
    """

    observation: Observation = Observation("")  # noqa: RUF009  (frozen)
    rewards: tuple[RewardTerm, ...] = ()
    stop: StopReason | None = None
    answer: str = ""
    errors: tuple[str, ...] = ()
    seconds: float | None = None


class Environment(Protocol):
    """Plays one episode at a time; `reset` may be called again after `close`."""

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begins `task`. `seed` is that of all random draws: it is the same for the same attempt, whatever ran before."""
        ...

    async def step(self, action: str) -> Step: ...

    async def close(self) -> None:
        """Releases the episode's resources. Called once after every episode, also after one that failed."""
        ...


@runtime_checkable
class ScoresTheEnd(Protocol):
    """An environment that gives rewards only at the end of an episode."""

    async def outcome(self) -> tuple[RewardTerm, ...]:
        """Returns the rewards of an episode that is ended from outside: its turns, its tokens or its window are used up."""
        ...


@runtime_checkable
class JudgesTheEpisode(Protocol):
    """An environment that judges an action by the episode that led to it."""

    async def judge(self, returned: Any, episode: Episode) -> Step:
        """Is called in place of `step`.

        Args:
            returned: The action: a text, or whatever a program that is the agent returned.
            episode: The episode so far, with all calls of the model, and the action's text as the answer.
        """
        ...


# Blocking: an environment of plain methods, run in a thread, so that it can hang without holding anything up.


P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Returns the result of `function`, computed in a thread of its own. The thread is a daemon: one that never returns is
    abandoned and does not keep the program from ending, as a pool's would.

    Args:
        function: The function, which may block.
        arguments: Its arguments by position.
        named: Its arguments by name.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        outcome.set_running_or_notify_cancel()  # from here on a cancelled caller does not cancel it
        try:
            outcome.set_result(function(*arguments, **named))
        except BaseException as error:
            # asyncio refuses StopIteration, and a SystemExit in user code must not end the program.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            outcome.set_exception(error if plain else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=work, daemon=True, name=f"in_thread {getattr(function, '__name__', '')}").start()
    return await asyncio.wrap_future(outcome)


async def call_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a user's function. An asynchronous one, or an object with an asynchronous `__call__`, is awaited; another runs in a
    thread, and its result is awaited where it is awaitable."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    result = await in_thread(function, *arguments)
    return await result if inspect.isawaitable(result) else result


async def in_lasting_loop(work: Awaitable[T]) -> T:
    """Awaits `work` of user code in one event loop that lasts as long as the program. Clients that the code keeps, such as for
    HTTP, belong to a loop, and each measurement has its own. Cancelling the call cancels the work."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_settled(work), _lasting_loop()))


async def _settled(work: Awaitable[T]) -> T:
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:  # a SystemExit would end the loop, and all its callers would wait for ever
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
    """Wraps `plain` as an `Environment`, with its methods in threads."""

    def __init__(self, plain: PlainEnvironment) -> None:
        self._plain = plain

    async def reset(self, task: Task, seed: int) -> Observation:
        return await in_thread(self._plain.reset, task, seed)

    async def step(self, action: str) -> Step:
        return await in_thread(self._plain.step, action)

    async def close(self) -> None:
        await in_thread(self._plain.close)
