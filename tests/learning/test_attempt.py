"""Attempts: what is on the tape is not asked for again, what fails becomes a value."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from keepworth.episodes import (
    Episode,
    FinishReason,
    RewardTerm,
    Sample,
    SamplingParams,
    Segment,
    StopReason,
    Task,
    VersionSpan,
)
from keepworth.learning.collect.attempt import (
    Attempt,
    CallFailed,
    CallTimedOut,
    Tape,
    has_failed,
    run_attempt,
    tape_from_json,
    tape_to_json,
)
from keepworth.models.continuous import Draft

TASK = Task("source/1", "source", "go:", (), "none")
PARAMS = SamplingParams(4, seed=1)


class Counting:
    """Finishes drafts with the letters of "abcd" and says how many tokens it drew."""

    def __init__(self) -> None:
        self.drawn = 0

    async def sample(self, draft: Draft) -> Sample:
        if draft.finish is None:
            for token in b"abcd"[len(draft.ids) :]:
                draft.ids.append(token)
                draft.logprobs.append(-1.0)
                self.drawn += 1
            draft.finish = FinishReason.LENGTH
            draft.close_span(0)
        return draft.sample(0)


def attempt(tape: Tape, sampler: Counting | None = None, **changes: Any) -> Attempt:
    return Attempt(sampler or Counting(), tape, 3, 1, **{"seed": 0, "seconds": 5.0, "failed": None, **changes})


async def two_calls(task: Task, given: Attempt) -> Episode:
    first = await given.sample(tuple(b"go:"), PARAMS)
    weather = await given.remember("weather", asked.weather)
    second = await given.sample((*b"go:", *first.ids, weather), PARAMS)
    segments = tuple(
        Segment("r", "p", context, s.ids, s.logprobs, 1.0, s.finish, s.spans, "")
        for context, s in (((1,), first), ((2,), second))
    )
    return Episode(
        given.id, task.key, "r", "", segments, "", (), (await given.reward("w", lambda: weather),),
        StopReason.COMPLETED, "", 0,
    )  # fmt: skip


class Asked:
    count = 0

    def weather(self) -> int:
        self.count += 1
        return 40 + self.count


asked = Asked()


def test_a_tape_answers_what_was_asked_before_and_survives_json() -> None:
    asked.count = 0
    tape, sampler = Tape(), Counting()
    whole = asyncio.run(run_attempt(two_calls, TASK, attempt(tape, sampler), 5))
    assert (sampler.drawn, asked.count, whole.reward) == (8, 1, 41.0)
    stored = tape_from_json(tape_to_json(tape, 0))
    assert stored == replace(tape, entries=stored.entries)
    again = Counting()
    assert asyncio.run(run_attempt(two_calls, TASK, attempt(stored, again), 5)) == whole
    assert (again.drawn, asked.count) == (0, 1)


def test_an_interrupted_call_goes_on_where_it_stopped() -> None:
    tape, sampler = Tape(), Counting()
    whole = asyncio.run(run_attempt(two_calls, TASK, attempt(tape, sampler), 5))
    record = tape_to_json(tape, 0)
    last = record["entries"][2]
    last |= {"ids": last["ids"][:3], "logprobs": last["logprobs"][:3], "spans": [[0, 0, 3]], "finish": None}
    again = Counting()
    resumed = asyncio.run(run_attempt(two_calls, TASK, attempt(tape_from_json(record), again), 5))
    assert again.drawn == 1
    assert resumed.segments[1].ids == whole.segments[1].ids
    assert resumed.segments[1].spans == (VersionSpan(0, 0, 3), VersionSpan(0, 3, 4))


def test_a_rollout_that_goes_another_way_leaves_its_tape_there() -> None:
    tape, sampler = Tape(), Counting()
    asyncio.run(run_attempt(two_calls, TASK, attempt(tape, sampler), 5))

    async def other(task: Task, given: Attempt) -> Episode:
        await given.sample(tuple(b"go:"), PARAMS)
        await given.sample(tuple(b"elsewhere"), PARAMS)
        return await two_calls(task, given)

    again = Counting()
    asyncio.run(run_attempt(other, TASK, attempt(tape, again), 5))
    assert tape.diverged == 1
    assert again.drawn == 12, "the first call is on the tape, the three after it are not"


def test_seeds_and_streams_differ_between_tries_and_members() -> None:
    one, retried = attempt(Tape()), attempt(Tape(tries=1))
    other = Attempt(Counting(), Tape(), 3, 2, 0, 5.0, None)
    assert len({one.seed, retried.seed, other.seed}) == 3


@pytest.mark.parametrize(("function", "kind", "says"), [
    (lambda: time.sleep(30), CallTimedOut, "did not answer in 0.05 s"),
    (lambda: next(iter(())), CallFailed, "raised RuntimeError"),
    (lambda: (_ for _ in ()).throw(SystemExit(3)), CallFailed, "SystemExit: 3"),
    (lambda: 1 / 0, CallFailed, "ZeroDivisionError"),
])  # fmt: skip
def test_calls_that_misbehave_are_named(function: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        asyncio.run(attempt(Tape(), seconds=0.05 if kind is CallTimedOut else 5.0).call(function))


def test_an_asynchronous_environment_that_hangs_is_a_timeout() -> None:
    async def hangs(task: Task, given: Attempt) -> Episode:
        await asyncio.Event().wait()
        raise AssertionError

    episode = asyncio.run(run_attempt(hangs, TASK, attempt(Tape()), 0.05))
    assert (episode.stop, has_failed(episode)) == (StopReason.TIMEOUT, True)
    assert "longer than 0.05 s" in episode.errors[0]


@pytest.mark.parametrize(("returned", "says"), [
    ("done", "returned str, not an Episode"),
    ("renamed", "called 'x'"),
    ("empty", "without a model call"),
    ("infinite", "inf, not a finite number"),
])  # fmt: skip
def test_a_rollout_that_returns_something_else_is_named(returned: str, says: str) -> None:
    async def odd(task: Task, given: Attempt) -> Any:
        episode = await two_calls(task, given)
        changes = {"renamed": {"id": "x"}, "empty": {"segments": ()}}
        if returned == "infinite":
            term = replace(episode.rewards[0], value=float("inf"))
            return replace(episode, rewards=(term,))
        return replace(episode, **changes[returned]) if returned in changes else returned

    episode = asyncio.run(run_attempt(odd, TASK, attempt(Tape()), 5))
    assert has_failed(episode)
    assert says in episode.errors[0]


@pytest.mark.parametrize("value", [np.float32(0.5), torch.tensor(0.5)])
def test_a_rollout_s_own_terms_become_plain_numbers(value: Any) -> None:
    async def own(task: Task, given: Attempt) -> Episode:
        return replace(await two_calls(task, given), rewards=(RewardTerm("own", value),))

    episode = asyncio.run(run_attempt(own, TASK, attempt(Tape()), 5))
    assert not has_failed(episode)
    assert (episode.reward, type(episode.rewards[0].value)) == (
        0.5,
        float,
    )  # what is no float cannot be written to disk


def test_a_reward_too_large_for_a_number_is_an_episode_s_failure() -> None:
    async def huge(task: Task, given: Attempt) -> Episode:
        episode = await two_calls(task, given)
        return replace(episode, rewards=(await given.reward("huge", lambda: 10**400),))

    episode = asyncio.run(run_attempt(huge, TASK, attempt(Tape()), 5))
    assert has_failed(episode)
    assert "Reward huge of episode 3/1 is a number too large" in episode.errors[0]


def test_a_call_that_never_ends_does_not_keep_the_next_from_running() -> None:
    never = threading.Event()

    async def both() -> int:
        given = attempt(Tape(), seconds=0.05)
        for _ in range(20):
            with pytest.raises(CallTimedOut):
                await given.call(never.wait)
        return await given.call(lambda: 7, seconds=5.0)

    assert asyncio.run(both()) == 7
    never.set()


class Judge:
    """An object that is called like a function, asynchronously."""

    async def __call__(self, answer: str) -> float:
        await asyncio.sleep(0)
        return float(len(answer))


def test_whatever_is_asynchronous_is_awaited() -> None:
    async def scored(answer: str) -> float:
        return float(len(answer))

    async def all_of_them() -> list[float]:
        given = attempt(Tape())
        kinds = (len, scored, functools.partial(scored), Judge(), lambda answer: scored(answer))
        return [(await given.reward("r", each, "four")).value for each in kinds]

    assert asyncio.run(all_of_them()) == [4.0] * 5


def test_a_timeout_of_the_functions_own_is_its_failure_and_not_ours() -> None:
    def asks() -> None:
        raise TimeoutError("the judge's server did not answer")

    async def asks_too() -> None:
        raise TimeoutError("the judge's server did not answer")

    async def gives_up() -> None:
        raise asyncio.CancelledError

    for each in (asks, asks_too):
        with pytest.raises(CallFailed, match="raised TimeoutError: the judge's server") as caught:
            asyncio.run(attempt(Tape()).call(each))
        assert caught.value.stop is StopReason.ENVIRONMENT_ERROR
        assert not isinstance(caught.value, CallTimedOut)
    with pytest.raises(CallFailed, match="cancelled itself"):
        asyncio.run(attempt(Tape()).call(gives_up))


def test_a_rollouts_own_timeout_says_what_it_says() -> None:
    async def rollout(task: Task, given: Attempt) -> Episode:
        raise TimeoutError("no answer from the simulator")

    episode = asyncio.run(run_attempt(rollout, TASK, attempt(Tape()), 5.0))
    assert episode.stop is StopReason.ENVIRONMENT_ERROR
    assert "no answer from the simulator" in episode.errors[-1]


def test_what_is_given_up_gives_back_what_it_holds_before_anybody_goes_on() -> None:
    held = ["slot"]

    async def rollout(task: Task, given: Attempt) -> Episode:
        try:
            await asyncio.sleep(60)
        finally:
            held.clear()
        raise AssertionError

    assert asyncio.run(run_attempt(rollout, TASK, attempt(Tape()), 0.01)).stop is StopReason.TIMEOUT
    assert not held


def test_what_cannot_be_cancelled_holds_nobody_up() -> None:
    async def stubborn() -> None:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    async def timed() -> float:
        begun = time.monotonic()
        with pytest.raises(CallTimedOut):
            await attempt(Tape()).call(stubborn, seconds=0.01)
        return time.monotonic() - begun

    async def main() -> float:
        taken = await timed()
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        return taken

    assert asyncio.run(main()) < 3.5
