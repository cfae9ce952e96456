"""A memory in environments of verifiers. What stands in for the package calls `run`, then `finalize`, in one context, and has the
names of verifiers 0.4.0."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from keepworth import Memory

ASKED = "Where does Ana live?"


class Task(SimpleNamespace):
    def with_data(self, **update: Any) -> Task:
        return Task(data=SimpleNamespace(**{**vars(self.data), **update}))


class Message(SimpleNamespace):
    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def model_validate(cls, values: dict[str, Any]) -> Message:
        return cls(**values)


class Played:
    """An environment that keeps the prompts that it played."""

    def __init__(self) -> None:
        self.prompts: list[Any] = []

    async def run(self, task: Any, agents: Any) -> None:
        self.prompts.append(task.data.prompt)

    async def finalize(self, task: Any, episode: Any) -> None:
        pass


@pytest.fixture
def add_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    package, version = ModuleType("verifiers"), ModuleType("verifiers.v1")
    for module in (package, version):
        module.__spec__ = ModuleSpec(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(package, "v1", version, raising=False)
    monkeypatch.setattr(version, "Env", Played, raising=False)
    from keepworth.training.verifiers_memory import add_memory

    yield add_memory
    del sys.modules["keepworth.training.verifiers_memory"]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(encoder=None) as opened:
        opened.add("Ana lives in Oslo.")
        yield opened


def trace(reward: float, *, ok: bool = True) -> SimpleNamespace:
    return SimpleNamespace(rewards={"right": reward}, reward=reward, ok=ok, last_reply="Oslo")


def play(environment: Any, prompt: Any, *traces: SimpleNamespace, text: str = ASKED) -> None:
    async def episode() -> None:
        task = Task(data=SimpleNamespace(prompt=prompt, prompt_text=text))
        await environment.run(task, None)
        await environment.finalize(task, SimpleNamespace(traces=list(traces)))

    asyncio.run(episode())


def test_verifiers_prompt_has_recalled_items_and_the_mean_reward_is_given(
    memory: Memory, add_memory: Callable[..., Any]
) -> None:
    kind = add_memory(Played, memory, top_k=1)
    assert kind.__name__ == "RememberingPlayed"
    environment = kind()
    play(environment, ASKED, trace(1.0), trace(0.5))
    play(environment, [Message(role="user", content=ASKED)], trace(0.0))
    play(environment, [Message(role="user", content=[{"type": "image"}])], trace(0.0))
    recalled = "\n\nMemory:\n- Ana lives in Oslo."
    text, (said,), (parts,) = environment.prompts
    assert text == said.content == ASKED + recalled
    assert parts.content == [{"type": "image"}, {"type": "text", "text": recalled}]
    first, *_ = (memory.episode_record(id) for id in memory.episodes())
    assert (first.task, first.reward) == (ASKED, 0.75)


def test_failed_or_empty_verifiers_episode_gives_no_reward(memory: Memory, add_memory: Callable[..., Any]) -> None:
    environment = add_memory(Played, memory)()
    play(environment, ASKED, trace(0.0, ok=False))
    play(environment, ASKED)
    play(environment, "", trace(1.0), text=" ")
    assert not any(memory.episode_record(id).rewards for id in memory.episodes())
    assert environment.prompts[-1] == ""
