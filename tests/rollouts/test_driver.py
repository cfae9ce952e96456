"""The driver: every way an episode can end, and that errors of environments are values while those of models are not."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from keepworth.encoders.local import encoder
from keepworth.memory.overlay import Bank
from keepworth.methods.recipes import _overwrite_reader as overwriting
from keepworth.methods.recipes._overwrite_reader import NOTHING, OverwriteReader, WholeReader, answering, reading
from keepworth.methods.recipes._people_reading import Document
from keepworth.records import Episode, RewardTerm, Sample, SamplingParams, StopReason, Task
from keepworth.records.episode import UNSOUND, Observation, episode_from_json, episode_to_json
from keepworth.worlds.agent import Completer
from keepworth.worlds.driver import Limits, Lockstep, Play, WaitingCall, play
from keepworth.worlds.environment import Blocking, Step
from keepworth.worlds.question import Question
from keepworth.worlds.tool_caller import ToolCaller
from keepworth.worlds.tool_use import ToolUse, tool
from tests.rollouts.scripted_model import ScriptedModel

ASK = Task("t/1", "test", "2+2?", ("4",), "numeric")
OTHER = Task("t/2", "test", "3+3?", ("6",), "numeric")


def completer(max_tokens: int = 8) -> Completer:
    return Completer("Q: 1+1? A: 2\n", "Q: ", " A:", max_tokens=max_tokens)


def asking(environment: Any = Question, max_tokens: int = 8) -> Play:
    return Play(lambda task: environment(), lambda task, memory: completer(max_tokens))


def calling(*tools: Any, **how: Any) -> Play:
    """How a caller of tools plays. how: settings of the environment."""
    return Play(lambda task: ToolUse(list(tools), **how), lambda task, memory: ToolCaller("HEAD\n", max_tokens=16))


def reader(agent: Any) -> Play:
    return Play(lambda task: Document(lambda task: STORY), lambda task, memory: agent)


def episode_of(answers: str | Sequence[str], how: Play, task: Task = ASK, window: int = 4096, **limits: Any) -> Episode:
    """The one episode, of a model that always says the same, or one answer after the other."""
    script = itertools.repeat(answers) if isinstance(answers, str) else iter(answers)
    model = ScriptedModel(lambda prompt, number: next(script), context_limit=window)
    ((episode,),) = (group.episodes for group in play(model, [task], how, limits=Limits(**limits)))
    return episode


def seen_by(episode: Episode, call: int) -> str:
    return "".join(map(chr, episode.segments[call].context))


def test_a_group_shares_one_prompt_and_each_member_is_scored() -> None:
    model = ScriptedModel(lambda prompt, j: f" {4 + j}\nmore")
    (group,) = play(model, [ASK], asking(), n=3, label="9/")
    assert [episode.reward for episode in group.episodes] == [1.0, 0.0, 0.0]
    assert [episode.id for episode in group.episodes] == ["9/t/1#0", "9/t/1#1", "9/t/1#2"]
    ((prompts, params),) = model.batches
    assert prompts == ["Q: 1+1? A: 2\nQ: 2+2? A:"]  # read once for the whole group
    assert params.n == 3
    first = group.episodes[0]
    assert (first.stop, first.answer, first.role, first.policy_version) == (StopReason.COMPLETED, "4", "policy", 3)
    assert first.segments[0].text == " 4\n"


def test_episodes_of_many_tasks_are_sampled_together_and_come_back_in_order() -> None:
    model = ScriptedModel(lambda prompt, j: " 4\n")
    groups = play(model, [ASK, OTHER], asking(), n=2)
    assert len(model.batches) == 1
    assert [group.task for group in groups] == ["t/1", "t/2"]
    assert [episode.reward for group in groups for episode in group.episodes] == [1.0, 1.0, 0.0, 0.0]


def test_an_answer_that_never_stops_is_cut_scored_and_says_so() -> None:
    episode = episode_of(" 4" + " and so on" * 9, asking())
    assert (episode.stop, episode.reward) == (StopReason.MAX_TOKENS, 1.0)


def test_context_overflow_ends_the_episode_with_its_reward() -> None:
    def add(one: str) -> str:
        """Adds."""
        return "x" * 40

    episode = episode_of(" add: 1\n", calling(tool(add), turns=9), window=120)
    assert (episode.stop, episode.reward) == (StopReason.CONTEXT_OVERFLOW, 0.0)
    assert "past the 120 that scripted reads" in episode.errors[0]
    assert episode.segments


class Dies:
    """Raises at its `at`-th step; counts how often it was closed."""

    closed = 0

    def __init__(self, at: int = 1, how: str = "raise") -> None:
        self.at, self.how, self.steps = at, how, 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.fails = seed % 2 == 1  # the second member of a group of two
        return Observation(task.input)

    async def step(self, action: str) -> Any:
        self.steps += 1
        if self.fails and self.steps == self.at:
            if self.how == "hang":
                await asyncio.sleep(60)
            if self.how == "own timeout":
                raise TimeoutError("a server's")
            if self.how == "raise":
                raise ConnectionError("the world went away")
            if self.how == "no step":
                return "done"
            bad = {"nan": float("nan"), "text": "good", "huge": 10**400}
            given: Any = RewardTerm("r", bad[self.how]) if self.how in bad else 1.0
            return Step(rewards=(given,), stop=StopReason.COMPLETED)
        if self.steps < 2:
            return Step(Observation("go on"))
        reward: Any = np.float32(1.0)  # as many libraries give it
        return Step(rewards=(RewardTerm("r", reward),), stop=StopReason.COMPLETED)

    async def close(self) -> None:
        type(self).closed += 1


@pytest.mark.parametrize(("how", "stop", "said"), [
    ("raise", StopReason.ENVIRONMENT_ERROR, "Dies.step failed: ConnectionError: the world went away"),
    ("own timeout", StopReason.ENVIRONMENT_ERROR, "Dies.step failed: TimeoutError: a server's"),
    ("hang", StopReason.TIMEOUT, "Dies.step took more than 0.05 s"),
    ("nan", StopReason.ENVIRONMENT_ERROR, "Dies.step gave the reward 'r', which is nan, not a finite number"),
    ("text", StopReason.ENVIRONMENT_ERROR, "Dies.step gave the reward 'r', which is 'good', not a number"),
    ("huge", StopReason.ENVIRONMENT_ERROR, "Dies.step gave the reward 'r', which is a number too large for a float"),
    ("no step", StopReason.ENVIRONMENT_ERROR, "Dies.step returned str, not a Step"),
    ("bare", StopReason.ENVIRONMENT_ERROR, "Dies.step gave a reward that is a float, not a RewardTerm"),
])  # fmt: skip
def test_an_environment_that_fails_ends_its_own_episode_only(how: str, stop: StopReason, said: str) -> None:
    Dies.closed = 0
    dying, limits = asking(lambda: Dies(2 if how in ("raise", "hang") else 1, how)), Limits(environment_seconds=0.05)
    (group,) = play(ScriptedModel(lambda prompt, j: " x\n"), [ASK], dying, n=4, limits=limits)
    assert [episode.stop for episode in group.episodes] == [StopReason.COMPLETED, stop, StopReason.COMPLETED, stop]
    assert group.episodes[1].errors == (said,)
    assert [type(term.value) for term in group.episodes[0].rewards] == [float]
    assert Dies.closed == 4
    assert stop in UNSOUND


class Takes:
    """Two actions: the first takes as long as a clock says, the second what `seconds` says."""

    def __init__(self, seconds: Any) -> None:
        self.seconds, self.steps = seconds, 0

    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        self.steps += 1
        if self.steps == 1:
            await asyncio.sleep(0.02)
            return Step(Observation("go on"))
        return Step(stop=StopReason.COMPLETED, seconds=self.seconds)

    async def close(self) -> None: ...


def test_a_segment_says_how_long_its_action_took() -> None:
    episode = episode_of(" x\n", asking(lambda: Takes(90)))
    first, second = (segment.seconds for segment in episode.segments)
    assert first is not None
    assert 0.015 < first < 10
    assert (second, type(second)) == (90.0, float)
    assert episode_from_json(episode_to_json(episode)).segments[1].seconds == 90.0


@pytest.mark.parametrize(
    ("wrong", "said"), [(-1.0, "-1.0, below 0"), ("3", "'3', not a number"), (math.nan, "nan, not a finite number")]
)
def test_seconds_that_cannot_be_are_named(wrong: Any, said: str) -> None:
    assert episode_of(" x\n", asking(lambda: Takes(wrong))).errors == (f"Takes.step gave seconds that are {said}",)


def test_blocking_environment_is_abandoned_after_a_timeout() -> None:
    given_up = threading.Event()

    class Slow:
        def reset(self, task: Task, seed: int) -> Observation:
            return Observation(task.input)

        def step(self, action: str) -> Step:
            assert given_up.wait(60)
            return Step(stop=StopReason.COMPLETED)

        def close(self) -> None: ...

    episode = episode_of(" x\n", asking(lambda: Blocking(Slow())), environment_seconds=0.05)
    given_up.set()
    assert episode.stop is StopReason.TIMEOUT  # had it been waited for, it would have completed


def test_a_model_that_fails_ends_the_run() -> None:
    def broken(prompt: str, j: int) -> str:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        play(ScriptedModel(broken), [ASK], asking(), n=3)


def test_too_many_turns_end_an_episode() -> None:
    class Endless(Dies):
        async def step(self, action: str) -> Step:
            return Step(Observation("again"))

    episode = episode_of(" x\n", asking(Endless), max_turns=3)
    assert (episode.stop, len(episode.segments)) == (StopReason.MAX_TURNS, 3)


def double(number: str) -> str:
    """Twice a number."""
    return str(2 * int(number))


def test_tools_over_several_turns_are_one_growing_sequence() -> None:
    script = [" double: 2\n", " double: two\n", " think\n", " answer: 4\n"]
    episode = episode_of(script, calling(tool(double), turns=5))
    assert (episode.stop, episode.answer, episode.reward) == (StopReason.COMPLETED, "4", 1.0)
    for before, after in zip(episode.segments, episode.segments[1:], strict=False):
        assert after.context[: len(before.context) + len(before.ids)] == before.context + before.ids
    assert seen_by(episode, -1) == (
        "HEAD\ndouble: number - Twice a number.\nQuestion: 2+2?\n> double: 2\n= 4\n> double: two\n"
        "= Error: invalid literal for int() with base 10: 'two'\n> think\n= Begin with one of double:, answer:\n>"
    )
    assert episode.errors == (
        "tool 'double' failed on 'two': ValueError: invalid literal for int() with base 10: 'two'",
    )


def test_turns_are_in_one_state_where_the_tools_have_said_the_same() -> None:
    script = iter([" double: 2\n", " double: 3\n", " think\n", " double:  2\n", " answer: 4\n", " answer: 4\n"])
    (group,) = play(ScriptedModel(lambda prompt, j: next(script)), [ASK], calling(tool(double), turns=5), n=2)
    one, other = ([segment.state for segment in episode.segments] for episode in group.episodes)
    assert one[0] == other[0]  # the question alone
    assert one[1] != other[1]  # 4, and 6
    assert one[1] == one[2]  # what was no action told it nothing
    assert "" not in (*one, *other)


@pytest.mark.parametrize(("said", "stop"), [
    (" quit: now\n", StopReason.TOOL_STOP),
    (" nonsense\n", StopReason.PARSE_ERROR),
    (" double: 1\n", StopReason.MAX_TURNS),
])  # fmt: skip
def test_how_a_dialogue_with_tools_ends(said: str, stop: StopReason) -> None:
    def quit(reason: str) -> str:
        """Give up."""
        return ""

    assert episode_of(said, calling(tool(double), tool(quit, ends=True), turns=2)).stop is stop


def test_a_tool_that_hangs_says_so_and_the_episode_goes_on() -> None:
    async def wait(what: str) -> str:
        """Waits."""
        await asyncio.sleep(60)
        return ""

    episode = episode_of([" wait: x\n", " answer: 4\n"], calling(tool(wait), seconds=0.05))
    assert (episode.reward, episode.errors) == (1.0, ("tool 'wait' took more than 0.05 s",))


def test_function_that_cannot_be_a_tool_is_refused() -> None:
    def answer(x: str) -> str:
        """Taken."""
        return x

    def silent(x: str) -> str:
        return x

    def two(x: str, y: str) -> str:
        """Two."""
        return x

    for wrong, why in ((answer, "cannot be called 'answer'"), (silent, "no docstring"), (two, "takes 2 arguments")):
        with pytest.raises(ValueError, match=why):
            tool(wrong)  # type: ignore[arg-type]


STORY = ("I have a dog.", "My cat is Pepper.", "It rains.")
WHO = Task("t/3", "test", "What is my cat called?", ("Pepper",), "token_f1")


def test_overwriting_reader_sees_question_memory_and_section_only() -> None:
    script = [" a dog\n", " cat Pepper\n", "\n", " Pepper\n"]
    episode = episode_of(script, reader(OverwriteReader(16, 16)), WHO)
    assert [seen_by(episode, call) for call in range(len(episode.segments))] == [
        reading(WHO.input, NOTHING, STORY[0]),
        reading(WHO.input, "a dog", STORY[1]),
        reading(WHO.input, "cat Pepper", STORY[2]),
        answering(WHO.input, NOTHING),  # the last rewriting was empty: everything is forgotten
    ]
    hashes = [(segment.memory_before, segment.memory_after) for segment in episode.segments]
    dog, cat = map(overwriting.memory_hash, ("a dog", "cat Pepper"))
    assert hashes == [("empty", dog), (dog, cat), (cat, "empty"), ("empty", "empty")]
    assert (episode.reward, episode.stop) == (1.0, StopReason.COMPLETED)


def test_a_memory_that_runs_into_its_limit_is_cut_and_reading_goes_on() -> None:
    episode = episode_of(" Pepper is a cat\n", reader(OverwriteReader(6, 24)), WHO)
    assert [segment.finish.value for segment in episode.segments] == ["length", "length", "length", "stop"]
    assert "Memory: Peppe\n" in seen_by(episode, 1)
    assert episode.stop is StopReason.COMPLETED


def test_whole_reader_sees_all_text_or_overflows() -> None:
    whole = episode_of(" Pepper\n", reader(WholeReader(16)), WHO)
    assert seen_by(whole, 0).endswith(answering(WHO.input, " ".join(STORY))[-60:])
    assert episode_of(" Pepper\n", reader(WholeReader(16)), WHO, window=100).stop is StopReason.CONTEXT_OVERFLOW


def test_members_of_a_group_write_into_forks_of_one_memory() -> None:
    root = Bank.empty(encoder("hashing"))
    root.add("the answer is 4")
    seen: list[tuple[str, int]] = []

    class Remembers(Completer):
        def __init__(self, bank: Bank | None) -> None:
            super().__init__("", max_tokens=8)
            assert bank is not None
            seen.append((bank.content_hash(), len(bank)))
            bank.add(f"tried {len(seen)}")

    how = Play(lambda task: Question(), lambda task, memory: Remembers(memory), memory=lambda task: root)
    (group,) = play(ScriptedModel(lambda prompt, j: " 4\n"), [ASK], how, n=3)
    assert seen == [(root.content_hash(), 1)] * 3
    assert len(root) == 1
    assert {episode.memory_snapshot for episode in group.episodes} == {root.content_hash()}


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_is_cancelled_while_the_model_draws_is_let_go(fails: bool) -> None:
    """As by a signal that ends the run: the others get samples, or the model's error, and the loop has nothing to report."""
    reported: list[dict[str, Any]] = []

    async def drawn() -> list[Any]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))

        def answer(prompt: str, number: int) -> str:
            tasks[0].cancel()
            waiting[0].cancel()
            if fails:
                raise ValueError("no answer")
            return "yes"

        lockstep = Lockstep(ScriptedModel(answer), seed=0)
        tasks = []
        for episode in range(2):
            lockstep.enter()
            call = WaitingCall(episode, 0, (65, episode), SamplingParams(max_tokens=4))
            tasks.append(asyncio.ensure_future(lockstep.sample(call)))
        await asyncio.sleep(0)
        waiting = [future for _, future in lockstep._waiting]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    left, got = asyncio.run(drawn())
    assert isinstance(left, asyncio.CancelledError)
    assert isinstance(got, ValueError if fails else Sample)
    assert reported == []
