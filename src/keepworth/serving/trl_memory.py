"""A memory in the trainers of TRL.

Where the model's chat template knows tools, a memory is an environment, or goes around yours:

    memory = Memory("agent.mem")
    GRPOTrainer(..., environment_factory=with_memory(memory), reward_funcs=telling(score, memory))

Where it does not, what is recalled is written into the prompts as they are read:

    GRPOTrainer(..., train_dataset=rows.with_transform(recalling(memory)), reward_funcs=telling(score, memory))

Either way the memory is told what each episode earned, and learns which of its items are worth showing. Nothing here imports TRL.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.tasks.own import last_said

DECISION = "memory_decision"
"""The column that says which search of the memory a row's prompt shows."""
TOOLS = ("recall", "remember")


def with_memory(
    memory: Memory,
    environment: Callable[[], Any] | None = None,
    *,
    top_k: int = 3,
    keep: Callable[[float], bool] | None = None,
) -> Callable[[], Any]:
    """An `environment_factory` whose episodes begin with what the memory recalls for the prompt, and have the tools `recall` and
    `remember`. environment: a factory of your own, whose tools, first text and reward stay as they are.

    What a model remembers is written once its episode has its reward, where `keep` (of the reward; None for always) says so: no
    episode of a group sees what another wrote. Raises KeepworthError where your tools have the names of these."""

    def make() -> Any:
        inner = None if environment is None else environment()
        kind: Any = type(inner)
        return _class_around(kind)(memory, inner, top_k, keep)

    return make


class MemoryEnvironment:
    """An environment of TRL: `reset` shows what is recalled, the public methods are tools. See `with_memory`."""

    def __init__(self, memory: Memory, inner: Any, top_k: int, keep: Callable[[float], bool] | None) -> None:
        self._memory, self._inner, self._top_k, self._keep = memory, inner, top_k, keep
        self._noted: list[str] = []
        self._open: LiveEpisode | None = None
        self._searched = False

    def reset(self, **row: Any) -> str:
        said = None if self._inner is None else self._inner.reset(**row)
        about = " ".join(filter(None, (last_said(row), (said or "").strip())))
        self._noted, self._open, self._searched = [], self._memory.episode(about), False
        return f"{said or ''}{_shown(self._search(about)) if about else ''}"

    def recall(self, query: str) -> str:
        """
        Look something up in memory.

        Args:
            query: What to look for, in a few words.

        Returns:
            What is remembered about it, a line each.
        """
        return _lines(self._search(query)) or "Nothing."

    def remember(self, text: str) -> str:
        """
        Keep something in memory for later conversations.

        Args:
            text: One sentence that can be understood by itself.

        Returns:
            That it was noted.
        """
        if not text.strip():
            raise ValueError("there is nothing to remember")
        self._noted.append(text.strip())
        return "Noted."

    def _search(self, query: str) -> Hits:
        if self._open is None:
            raise ValueError("this episode is over")
        self._searched = True
        return self._open.search(query, top_k=self._top_k)

    def _tell(self, reward: float, done: str = "") -> None:
        """What the episode earned. It is said once; without it the episode stays open in the memory."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if self._searched:
            opened.act(done.strip() or "answered")
        if self._keep is None or self._keep(reward):
            for text in self._noted:
                opened.remember(text)
        opened.reward(reward)
        opened.end("completed")


@functools.cache
def _class_around(inner: type) -> type[MemoryEnvironment]:
    """A class that has the tools of `inner`, too: TRL finds them, and the reward, among the functions of the class."""
    if inner is type(None):
        return MemoryEnvironment
    found = {name: each for name, each in inspect.getmembers(inner, inspect.isfunction) if name[0] != "_"}
    if taken := sorted(set(TOOLS) & set(found)):
        raise KeepworthError(
            f"{inner.__name__} has tools with the names of the memory's: {', '.join(taken)}.", "Rename yours."
        )
    body: dict[str, Any] = {
        name: _passed_on(each) for name, each in found.items() if name not in ("reset", "get_reward")
    }
    if "get_reward" in found:
        body["get_reward"] = _rewarding_later if inspect.iscoroutinefunction(found["get_reward"]) else _rewarding
    return type(inner.__name__, (MemoryEnvironment,), body)


def _passed_on(method: Callable[..., Any]) -> Callable[..., Any]:
    name = method.__name__
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def later(self: Any, *given: Any, **named: Any) -> Any:
            return await getattr(self._inner, name)(*given, **named)

        return later

    @functools.wraps(method)
    def now(self: Any, *given: Any, **named: Any) -> Any:
        return getattr(self._inner, name)(*given, **named)

    return now


def _rewarding(self: Any) -> float | None:
    value: float | None = self._inner.get_reward()
    if value is not None:
        self._tell(float(value))
    return value


async def _rewarding_later(self: Any) -> float | None:
    value: float | None = await self._inner.get_reward()
    if value is not None:
        self._tell(float(value))
    return value


def recalling(memory: Memory, *, top_k: int = 3) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
    """For `Dataset.with_transform`: prompts show what the memory recalls for them, at the moment when they are read, so that each
    rollout has a choice of its own; the column `memory_decision` says which. With `Dataset.map(..., batched=True)` it is recalled
    once for all."""

    def transform(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        columns = {key: list(values) for key, values in rows.items()}
        if "prompt" not in columns:
            return columns  # a row is asked for one of its other columns
        found = memory.search_many([last_said({"prompt": each}) for each in columns["prompt"]], top_k=top_k)
        columns["prompt"] = [_with(prompt, _shown(hits)) for prompt, hits in zip(columns["prompt"], found, strict=True)]
        columns[DECISION] = [hits.decision for hits in found]
        return columns

    return transform


def telling(score: Callable[..., Any], memory: Memory) -> Callable[..., Any]:
    """`score`, a reward function of TRL, which also tells the memory what each episode earned. Of several reward functions, one
    is what the memory learns from. A reward of None is not told."""

    def tell(given: Mapping[str, Any], values: Sequence[float | None]) -> None:
        environments: Sequence[Any] = given.get("environments") or ()
        decisions: Sequence[str | None] = given.get(DECISION) or ()
        if not environments and not decisions:
            raise KeepworthError(
                "Nothing says what the memory showed.",
                "Give environment_factory=with_memory(memory), or train on rows.with_transform(recalling(memory)).",
            )
        for number, value in enumerate(values):
            if value is None:
                continue
            if decisions:
                if (decision := decisions[number]) is not None:
                    memory.reward(decision, float(value), source="trl")
            elif isinstance(environments[number], MemoryEnvironment):
                if hasattr(environments[number], "get_reward"):
                    raise KeepworthError(
                        f"{type(environments[number]).__name__} has get_reward, of which the memory is told.",
                        "Hand over the reward function as it is, without telling(...).",
                    )
                environments[number]._tell(float(value), _said(given["completions"][number]))

    if inspect.iscoroutinefunction(score):

        @functools.wraps(score)
        async def score_later(**given: Any) -> Any:
            values = await score(**given)
            tell(given, values)
            return values

        return score_later

    @functools.wraps(score)
    def score_now(**given: Any) -> Any:
        values = score(**given)
        tell(given, values)
        return values

    return score_now


def _shown(hits: Hits) -> str:
    lines = _lines(hits)
    return f"\n\nMemory:\n{lines}" if lines else ""


def _lines(hits: Hits) -> str:
    return "\n".join(f"- {as_line(hit.item.text)}" for hit in hits)


def _with(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return prompt + text
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}{text}"}]


def _said(completion: Any) -> str:
    """The last words of a completion: a text, or messages."""
    if isinstance(completion, str):
        return completion
    return next((str(each["content"]) for each in reversed(completion) if each.get("content")), "")
