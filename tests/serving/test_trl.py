"""A memory as TRL's trainers use it: `reset` with a row, tools by their names, rewards.

The trainer itself does it in `tests/serving/test_packages.py`, where it is installed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from keepworth import Memory
from keepworth.episodes.errors import KeepworthError
from keepworth.serving.trl import DECISION, recalling, telling, with_memory

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
