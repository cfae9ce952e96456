"""Deadlines act where code awaits; code that does not is named."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from keepworth.environments.environment import Step
from keepworth.episodes.episode import Observation, Task
from keepworth.rollouts import driver as context
from keepworth.rollouts.driver import WATCH, OutOfTime, Play, play, within
from tests.rollouts.scripted_model import ScriptedModel
from tests.rollouts.test_driver import ASK, completer


class Sleeps:
    """Blocks the loop, as an environment does whose asynchronous method calls something that is not."""

    async def reset(self, task: Task, seed: int) -> Observation:
        for _ in range(500):  # until the warning is there, five seconds at most
            if warned.wait(0.01):
                break
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        raise ConnectionError("that is enough")

    async def close(self) -> None: ...


warned = threading.Event()


def test_whoever_holds_up_the_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            warned.set()

    monkeypatch.setattr(context, "BLOCKED_AFTER", 0.02)
    log, notes = logging.getLogger("keepworth.rollouts"), Notes()
    log.addHandler(notes)
    try:
        play(
            ScriptedModel(lambda prompt, j: " x\n"),
            [ASK],
            Play(lambda task: Sleeps(), lambda task, memory: completer()),
        )
    finally:
        log.removeHandler(notes)
    assert "Sleeps.reset has not awaited anything for 0.02 s" in messages[0]
    assert "Blocking(environment)" in messages[0]


def test_whoever_awaits_is_not_held_to_run() -> None:
    async def waits() -> None:
        assert [name for name, _ in WATCH.blocked(time.monotonic() + 100, 50)] == ["it"]
        await asyncio.Event().wait()

    async def looks() -> list[tuple[str, float]]:
        waiting = asyncio.ensure_future(within(waits(), 30, "it"))
        await asyncio.sleep(0.01)
        found = WATCH.blocked(time.monotonic() + 100, 50)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return found

    assert asyncio.run(looks()) == []


def test_results_errors_and_cancellations_pass_through() -> None:
    async def value() -> int:
        await asyncio.sleep(0)
        return 7

    async def raises() -> int:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def cleans_up(done: list[str]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            done.append("cleaned")

    async def survives() -> int:
        try:
            await asyncio.wait_for(asyncio.sleep(60), 0.01)
        except TimeoutError:
            return 8
        return 0

    done: list[str] = []
    assert asyncio.run(within(value(), 5)) == 7
    assert asyncio.run(within(survives(), 5)) == 8
    with pytest.raises(KeyError):
        asyncio.run(within(raises(), 5))
    with pytest.raises(OutOfTime):
        asyncio.run(within(cleans_up(done), 0.01))
    assert done == ["cleaned"]
