"""What a rollout is given: draws that are its own, and failures that become values."""

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

from keepworth.records import Episode, FinishReason, RewardTerm, Sample, SamplingParams, StopReason, Task, VersionSpan
from keepworth.records.episode import make_failed_episode
from keepworth.training.collect import groups
from keepworth.training.collect.groups import CallFailed, CallTimedOut, EpisodeContext, OpenGroup
from keepworth.training.collect.partial_sample import PartialSample
from tests.episode_of import call_of, episode_of
from tests.learning.letters import settings

TASK = Task("source/1", "source", "go:", (), "none")
PARAMS = SamplingParams(4, seed=1)


class Counting:
    """Finishes drafts with the letters of "abcd" and says how many tokens it drew."""

    def __init__(self) -> None:
        self.drawn = 0

    async def sample(self, draft: PartialSample) -> Sample:
        if draft.finish is None:
            ids = tuple(b"abcd"[len(draft.ids) :])
            draft.append(Sample(ids, (-1.0,) * len(ids), FinishReason.LENGTH, (VersionSpan(0, 0, len(ids)),)))
            self.drawn += len(ids)
        return draft.sample()


def open_group() -> OpenGroup:
    return OpenGroup(3, 0, TASK, 3)


def context_of(member: int = 1, tries: int = 0, among: OpenGroup | None = None, **terms: Any) -> EpisodeContext:
    asynchrony = settings(**{"call_seconds": 5.0, **terms})
    return EpisodeContext(Counting().sample, among or open_group(), member, asynchrony, tries)


def run(rollout: Any, context: EpisodeContext | None = None, seconds: float = 5) -> Episode:
    return asyncio.run(groups.run_rollout(rollout, TASK, context or context_of(), seconds))


def two_members() -> list[EpisodeContext]:
    among = OpenGroup(3, 0, TASK, 2)
    return [context_of(member=member, among=among) for member in (0, 1)]


async def two_calls(task: Task, given: EpisodeContext) -> Episode:
    first = await given.sample(tuple(b"go:"), PARAMS)
    second = await given.sample((*b"go:", *first.ids), PARAMS)
    segments = [call_of("r", (1,), sample) for sample in (first, second)]
    reward = await given.reward("weather", lambda: 41)
    return episode_of(given.id, segments, [reward], task=task.key, role="r")


def test_seeds_depend_on_the_calling_rollout_only() -> None:
    drafts: list[tuple[Any, ...]] = []

    class Noted(Counting):
        async def sample(self, draft: PartialSample) -> Sample:
            drafts.append((draft.params.seed, draft.stream, draft.group))
            return await super().sample(draft)

    for tries in (0, 1):
        for member in (1, 2):
            context = EpisodeContext(Noted().sample, open_group(), member, settings(seed=7, groups=2), tries)
            episode = run(two_calls, context)
            assert (episode.id, episode.reward) == (f"3/{member}", 41.0)
    assert {(seed, group) for seed, _, group in drafts} == {(7 * 1_000_003 + 1, 3)}
    assert [stream for _, stream, _ in drafts][:4] == [(1, 1), (1, 1, 0, 1), (1, 2), (1, 2, 0, 1)]
    assert len({stream for _, stream, _ in drafts}) == 8


@pytest.mark.parametrize(("function", "kind", "says"), [
    (lambda: time.sleep(30), CallTimedOut, "did not answer in 0.05 s"),
    (lambda: next(iter(())), CallFailed, "raised RuntimeError"),
    (lambda: (_ for _ in ()).throw(SystemExit(3)), CallFailed, "SystemExit: 3"),
    (lambda: 1 / 0, CallFailed, "ZeroDivisionError"),
])  # fmt: skip
def test_calls_that_misbehave_are_named(function: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        asyncio.run(context_of(call_seconds=0.05 if kind is CallTimedOut else 5.0).call(function))


def test_an_asynchronous_environment_that_hangs_is_a_timeout() -> None:
    async def hangs(task: Task, given: EpisodeContext) -> Episode:
        await asyncio.Event().wait()
        raise AssertionError

    episode = run(hangs, seconds=0.05)
    assert (episode.stop, groups.has_failed(episode)) == (StopReason.TIMEOUT, True)
    assert "longer than 0.05 s" in episode.errors[0]


@pytest.mark.parametrize(("changes", "says"), [
    ({}, "returned str, not an Episode"),
    ({"id": "x"}, "called 'x'"),
    ({"segments": ()}, "without a model call"),
    ({"rewards": (RewardTerm("weather", float("inf")),)}, "inf, not a finite number"),
])  # fmt: skip
def test_a_rollout_that_returns_something_else_is_named(changes: dict[str, Any], says: str) -> None:
    async def odd(task: Task, given: EpisodeContext) -> Any:
        return replace(await two_calls(task, given), **changes) if changes else "done"

    episode = run(odd)
    assert groups.has_failed(episode)
    assert says in episode.errors[0]


@pytest.mark.parametrize("value", [np.float32(0.5), torch.tensor(0.5)])
def test_a_rollout_s_own_terms_become_plain_numbers(value: Any) -> None:
    async def own(task: Task, given: EpisodeContext) -> Episode:
        return replace(await two_calls(task, given), rewards=(RewardTerm("own", value),))

    episode = run(own)
    assert not groups.has_failed(episode)
    assert (episode.reward, type(episode.rewards[0].value)) == (0.5, float)  # nothing else can be written to disk


def test_a_call_that_never_ends_does_not_keep_the_next_from_running() -> None:
    never = threading.Event()

    async def both() -> int:
        given = context_of(call_seconds=0.05)
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


def test_asynchronous_functions_are_awaited() -> None:
    async def scored(answer: str) -> float:
        return float(len(answer))

    async def all_of_them() -> list[float]:
        given = context_of()
        kinds = (len, scored, functools.partial(scored), Judge(), lambda answer: scored(answer))
        return [(await given.reward("r", kind, "four")).value for kind in kinds]

    assert asyncio.run(all_of_them()) == [4.0] * 5


def test_a_timeout_of_the_functions_own_is_its_failure_and_not_ours() -> None:
    def asks() -> None:
        raise TimeoutError("the judge's server did not answer")

    async def asks_too() -> None:
        asks()

    async def gives_up() -> None:
        raise asyncio.CancelledError

    for each in (asks, asks_too):
        with pytest.raises(CallFailed, match="raised TimeoutError: the judge's server") as caught:
            asyncio.run(context_of().call(each))
        assert caught.value.stop is StopReason.ENVIRONMENT_ERROR
        assert not isinstance(caught.value, CallTimedOut)
    with pytest.raises(CallFailed, match="cancelled itself"):
        asyncio.run(context_of().call(gives_up))


def test_uncancellable_task_does_not_block() -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def stubborn() -> None:
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()

        with pytest.raises(CallTimedOut):  # had it been waited for, this would never come
            await context_of().call(stubborn, seconds=0.01)
        over.set()

    asyncio.run(main())


def test_shared_value_is_made_once_and_retried_on_failure() -> None:
    made: list[int] = []

    async def made_slowly(number: int) -> int:
        made.append(number)
        await asyncio.sleep(0.01)
        if len(made) == 1:
            raise ValueError("not yet")
        return number

    async def both() -> tuple[list[Any], int]:
        members = two_members()
        asked = (member.shared("x", made_slowly, 7) for member in members)
        first = await asyncio.gather(*asked, return_exceptions=True)
        return list(map(str, first)), await members[1].shared("x", made_slowly, 8)

    assert asyncio.run(both()) == (["not yet", "not yet"], 8)
    assert made == [7, 8]


def test_group_judging_waits_for_running_members_only() -> None:
    asked: list[list[str]] = []

    def judge(texts: Any) -> list[int]:
        asked.append(list(texts))
        return [len(text) for text in texts]

    async def group() -> list[int]:
        among = open_group()
        members = [context_of(member=member, among=among) for member in (0, 1, 2)]
        late = [asyncio.ensure_future(members[i].with_group("judge", judge, "x" * i)) for i in (2, 1)]
        await asyncio.sleep(0.01)
        assert among.waiting == 2
        among.end(0, make_failed_episode(TASK, "3/0", StopReason.TIMEOUT, "it hung"))
        return [await each for each in late]

    assert asyncio.run(group()) == [2, 1]
    assert asked == [["x", "xx"]]


def test_a_judge_that_fails_fails_every_member_that_asked() -> None:
    def judge(texts: Any) -> list[int]:
        raise ConnectionError("no judge")

    async def group() -> list[Any]:
        asked = (member.with_group("judge", judge, "x") for member in two_members())
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(group())
    assert [type(each) for each in found] == [CallFailed] * 2
    assert "no judge" in str(found[0])
