"""A memory, and environments of ours, as TRL's trainers use them: `reset` with a row, tools by their names, rewards.

The trainer itself does it in `tests/serving/test_packages.py`, where it is installed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from transformers.utils import get_json_schema

from keepworth import Memory
from keepworth.environments.bridges import playable
from keepworth.environments.question import Question
from keepworth.environments.tool_use import ToolUse, tool
from keepworth.episodes.episode import Task
from keepworth.episodes.errors import KeepworthError
from keepworth.serving.trl import DECISION, OVER, in_trl, recalling, telling, with_memory
from tests.environments.test_bridges import Guessing

ASKED = [{"role": "user", "content": "Where does Ana live?"}]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(encoder=None, log="background") as opened:
        opened.add("Ana lives in Oslo.")
        opened.add("Bo plays chess.")
        yield opened


def tools_of(environment: Any) -> dict[str, Any]:
    """As `GRPOTrainer` finds them."""
    named = [name for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)]
    return {
        each: getattr(environment, each) for each in named if each not in ("reset", "get_reward") and each[0] != "_"
    }


def score(completions: list[Any], **columns: Any) -> list[float | None]:
    return [float("Oslo" in completion[-1]["content"]) if completion else None for completion in completions]


def test_an_episode_begins_with_what_is_recalled_and_the_memory_is_told_what_it_earned(memory: Memory) -> None:
    make = with_memory(memory)
    environments = [make(), make(), make()]
    shown = [environment.reset(prompt=ASKED, id=3) for environment in environments]
    assert shown[0].startswith("\n\nMemory:\n- Ana lives in Oslo.")
    one = environments[0]
    assert set(tools_of(one)) == {"recall", "remember"}
    assert "chess" in one.recall("chess")
    assert one.remember("Ana has a cat.") == "Noted."
    with pytest.raises(ValueError, match="nothing to remember"):
        one.remember(" ")
    assert len(memory) == 2, "nothing is written before the reward"
    said = [[{"role": "assistant", "content": text}] for text in ("Oslo.", "Rome.")]
    assert telling(score, memory)(completions=[*said, []], environments=environments) == [1.0, 0.0, None]
    assert {each.text for each in memory.get_all()} >= {"Ana has a cat."}
    records = [memory.episode_record(episode) for episode in memory.episodes()]
    assert sorted(record.reward for record in records if record.rewards) == [0.0, 1.0]
    assert sum(not record.rewards for record in records) == 1, "a reward of None is not told"
    assert telling(score, memory)(completions=said, environments=environments[:2]) == [1.0, 0.0]
    assert len([episode for episode in memory.episodes() if memory.episode_record(episode).rewards]) == 2, "once"
    one.reset(prompt="Where does Ana live?")
    with pytest.raises(ValueError, match="over"):
        environments[1].recall("Ana")


def test_what_earned_too_little_is_not_kept(memory: Memory) -> None:
    environment = with_memory(memory, keep=lambda reward: reward > 0.5)()
    environment.reset(prompt=ASKED)
    environment.remember("Ana lives in Rome.")
    telling(score, memory)(completions=[[{"role": "assistant", "content": "Rome."}]], environments=[environment])
    assert len(memory) == 2


def test_an_environment_of_ones_own_keeps_its_tools_its_first_text_and_its_reward(memory: Memory) -> None:
    environment = with_memory(memory, Guessing)()
    assert type(environment).__name__ == "Guessing"
    assert type(environment) is type(with_memory(memory, Guessing)()), "TRL tells rewards apart by class"
    prompt = [{"role": "user", "content": "Where does Ana live?"}]
    assert environment.reset(prompt=prompt, number=3).startswith(" It is below 10.\n\nMemory:\n- Ana")
    tools = tools_of(environment)
    assert set(tools) == {"guess", "hint", "recall", "remember"}
    assert get_json_schema(tools["guess"]) == get_json_schema(Guessing().guess)
    assert inspect.iscoroutinefunction(tools["hint"])
    assert asyncio.run(tools["hint"](about="parity")) == "odd"
    assert tools["guess"](number=3) == "Right."
    assert environment.get_reward() == 1.0
    (record,) = [memory.episode_record(episode) for episode in memory.episodes()]
    assert record.reward == 1.0
    with pytest.raises(KeepworthError, match="Guessing has get_reward"):
        telling(lambda **_: [1.0], memory)(completions=[[]], environments=[environment])


def test_names_that_are_taken_are_named(memory: Memory) -> None:
    class Own:
        def reset(self, **row: Any) -> None: ...

        def recall(self) -> str: ...

    with pytest.raises(KeepworthError, match="Own has tools with the names of the memory's: recall"):
        with_memory(memory, Own)()


def test_prompts_show_what_is_recalled_and_the_choice_is_rewarded(memory: Memory) -> None:
    transform = recalling(memory, top_k=1)
    rows = {"prompt": [ASKED, "Who plays chess?"], "answer": ["Oslo", "Bo"]}
    shown = transform(rows)
    assert shown["prompt"][0][-1]["content"] == "Where does Ana live?\n\nMemory:\n- Ana lives in Oslo."
    assert shown["prompt"][1] == "Who plays chess?\n\nMemory:\n- Bo plays chess."
    assert rows["prompt"][0] == ASKED, "the rows stay as they were"
    assert transform({"answer": ["Oslo"]}) == {"answer": ["Oslo"]}
    told = telling(lambda completions, **_: [1.0, None], memory)
    told(prompts=shown["prompt"], completions=["Oslo", "x"], **{DECISION: shown[DECISION]})
    (oslo,) = memory.search("Oslo", top_k=1)
    assert memory.history(oslo.item.id)
    assert len(set(shown[DECISION])) == 2


def test_telling_without_a_memory_in_play_is_refused(memory: Memory) -> None:
    with pytest.raises(KeepworthError, match="Nothing says what the memory showed") as caught:
        telling(score, memory)(completions=[[]])
    assert "with_memory" in caught.value.fix
    assert telling(score, memory).__name__ == "score", "under its name in the logs"


# Environments of ours.


def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise ValueError("no such place")
    return f"in {place}: a cat"


def play(place: Task) -> ToolUse:
    return ToolUse([tool(look)], turns=3)


TASK = Task("t", "s", "What is in the box?", ("cat",), "token_f1")


def test_tools_of_ours_are_tools_in_trl() -> None:
    factory, rows = in_trl(play, [TASK])
    assert rows == [{"prompt": [{"role": "user", "content": ""}], "key": "t"}]
    environment = factory()
    assert environment.reset(**rows[0]) == "What is in the box?"
    tools = tools_of(environment)
    assert set(tools) == {"look", "answer"}
    about = get_json_schema(tools["look"])["function"]
    assert (about["description"], about["parameters"]["required"]) == ("Look somewhere.", ["place"])
    assert tools["look"](place="the box") == "in the box: a cat"
    assert tools["look"](place="nowhere") == "Error: no such place"
    assert environment.get_reward() == 0.0, "it has not answered"
    environment.reset(**rows[0])
    assert tools["answer"](answer="cat") == OVER
    assert tools["look"](place="the box") == OVER
    assert environment.get_reward() == 1.0


def test_an_environment_without_tools_is_acted_in_and_one_of_trl_comes_back_as_it_was() -> None:
    factory, rows = in_trl(lambda task: Question(lambda task, answer: float(answer == "cat")), [TASK])
    environment = factory()
    environment.reset(**rows[0])
    assert (tools_of(environment)["act"](action="cat"), environment.get_reward()) == (OVER, 1.0)
    row = {"prompt": [{"role": "user", "content": "Find it."}], "number": 3}
    one = Task("n", "s", "Find it.", (), "", row=row)
    factory, rows = in_trl(lambda task: playable(Guessing()), [one])
    environment = factory()
    assert environment.reset(**rows[0]) == " It is below 10."
    assert rows[0]["prompt"] == row["prompt"]
    assert tools_of(environment)["guess"](number=5) == "Too high."
    assert get_json_schema(environment.guess)["function"]["parameters"]["required"] == ["number"]
    assert environment.get_reward() == pytest.approx(0.8), "what it is worth where it ends before its answer"


def test_an_episode_whose_environment_fails_is_left_out() -> None:
    class Broken(Question):
        async def step(self, action: str) -> Any:
            raise OSError("gone")

    factory, rows = in_trl(lambda task: Broken(), [TASK])
    environment = factory()
    environment.reset(**rows[0])
    with pytest.raises(OSError, match="gone"):
        environment.act(action="x")
    assert environment.get_reward() is None
    assert asyncio.run(asyncio.to_thread(environment.reset, **rows[0])) == TASK.input
