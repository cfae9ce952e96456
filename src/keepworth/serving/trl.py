"""A memory in the trainers of TRL. Nothing here imports TRL.

Where the model's chat template knows tools, a memory is an environment; else what is recalled is written into the prompts:

    GRPOTrainer(..., environment_factory=with_memory(memory), reward_funcs=telling(score, memory))
    GRPOTrainer(..., train_dataset=rows.with_transform(recalling(memory)), reward_funcs=telling(score, memory))

Either way the memory is told what an episode earned, and learns which of its items are worth showing.
"""

from __future__ import annotations

import functools
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


def with_memory(
    memory: Memory, *, top_k: int = 3, keep: Callable[[float], bool] | None = None
) -> Callable[[], MemoryEnvironment]:
    """An `environment_factory` whose episodes begin with what the memory recalls for the prompt.

    Args:
        memory: What is searched and told.
        top_k: Items that a search shows.
        keep: Of the reward: whether what a model remembered is written once its episode has its reward; None for always. So no
            episode of a group sees what another wrote.
    """
    return lambda: MemoryEnvironment(memory, top_k, keep)


class MemoryEnvironment:
    """An environment of TRL: `reset` shows what is recalled, and the other public methods are tools."""

    def __init__(self, memory: Memory, top_k: int, keep: Callable[[float], bool] | None) -> None:
        self._memory, self._top_k, self._keep = memory, top_k, keep
        self._noted: list[str] = []
        self._open: LiveEpisode | None = None

    def reset(self, **row: Any) -> str:
        about = last_said(row)
        self._noted, self._open = [], self._memory.episode(about)
        return shown(self._search(about)) if about else ""

    def recall(self, query: str) -> str:
        """
        Look something up in memory.

        Args:
            query: What to look for, in a few words.
        """
        return _lines(self._search(query)) or "Nothing."

    def remember(self, text: str) -> str:
        """
        Keep something in memory for later conversations.

        Args:
            text: One sentence that can be understood by itself.
        """
        if not text.strip():
            raise ValueError("there is nothing to remember")
        self._noted.append(text.strip())
        return "Noted."

    def _search(self, query: str) -> Hits:
        if self._open is None:
            raise ValueError("this episode is over")
        return self._open.search(query, top_k=self._top_k)

    def _tell(self, reward: float | None, completion: Any) -> None:
        """Tell the memory, once, what the episode earned; without a reward the episode stays open there."""
        if reward is None or self._open is None:
            return
        live, self._open = self._open, None
        live.act((last_said({"prompt": completion}) or "").strip() or "answered")
        if self._keep is None or self._keep(float(reward)):
            for text in self._noted:
                live.remember(text)
        live.reward(float(reward))
        live.end("completed")


def recalling(memory: Memory, *, top_k: int = 3) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
    """For `Dataset.with_transform`: prompts show what the memory recalls for them, at the moment when they are read, so that each
    rollout has a choice of its own; the column `memory_decision` says which. With `Dataset.map(..., batched=True)` it is recalled
    once for all."""

    def transform(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        columns = {key: list(values) for key, values in rows.items()}
        if "prompt" in columns:  # a row may be asked for one of its other columns
            prompts = columns["prompt"]
            recalled = [memory.search(last_said({"prompt": prompt}), top_k=top_k) for prompt in prompts]
            columns["prompt"] = [_with(prompt, shown(hits)) for prompt, hits in zip(prompts, recalled, strict=True)]
            columns[DECISION] = [hits.decision for hits in recalled]
        return columns

    return transform


def telling(score: Callable[..., Any], memory: Memory) -> Callable[..., Any]:
    """`score`, a reward function of TRL, which also tells the memory what an episode earned. Of several reward functions, one is
    what the memory learns from. A reward of None is not told."""

    @functools.wraps(score)
    def tell(**options: Any) -> Any:
        values = score(**options)
        environments: Sequence[Any] = options.get("environments") or ()
        decisions: Sequence[str | None] = options.get(DECISION) or ()
        if not environments and not decisions:
            raise KeepworthError(
                "Nothing says what the memory showed.",
                "Give environment_factory=with_memory(memory), or train on rows.with_transform(recalling(memory)).",
            )
        for number, value in enumerate(values):
            if decisions:
                if value is not None and (decision := decisions[number]) is not None:
                    memory.reward(decision, float(value), source="trl")
            elif isinstance(environments[number], MemoryEnvironment):
                environments[number]._tell(value, options["completions"][number])
        return values

    return tell


def shown(hits: Hits) -> str:
    """What is recalled, as it stands behind a prompt."""
    lines = _lines(hits)
    return f"\n\nMemory:\n{lines}" if lines else ""


def _lines(hits: Hits) -> str:
    return "\n".join(f"- {as_line(hit.item.text)}" for hit in hits)


def _with(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return prompt + text
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}{text}"}]
