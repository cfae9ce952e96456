"""A memory in the trainers of TRL. Nothing here imports TRL.

    GRPOTrainer(..., train_dataset=rows.with_transform(recall_for(memory)), reward_funcs=reward_memory(score, memory))

What is recalled is written into the prompts, and the memory learns from what an episode earned which of its items are worth
showing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.tasks.own import last_said

DECISION = "memory_decision"
"""The column that says which search of the memory a row's prompt shows."""


def recall_for(memory: Memory, *, top_k: int = 3) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
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


def reward_memory(score: Callable[..., Any], memory: Memory) -> Callable[..., Any]:
    """`score`, a reward function of TRL, which also rewards the memory with what an episode earned. Of several reward functions,
    one is what the memory learns from. A reward of None teaches nothing."""

    @functools.wraps(score)
    def rewarded(**options: Any) -> Any:
        values = score(**options)
        decisions: Sequence[str | None] = options.get(DECISION) or ()
        if not decisions:
            raise KeepworthError(
                "Nothing says what the memory showed.", "Train on rows.with_transform(recall_for(memory))."
            )
        for value, decision in zip(values, decisions, strict=True):
            if value is not None and decision is not None:
                memory.reward(decision, float(value), source="trl")
        return values

    return rewarded


def shown(hits: Hits) -> str:
    """What is recalled, as it stands behind a prompt."""
    return "\n".join(("\n\nMemory:", *(f"- {as_line(hit.item.text)}" for hit in hits))) if hits else ""


def _with(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return prompt + text
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}{text}"}]
