"""Connects a memory with the trainers of TRL, without importing TRL.

    GRPOTrainer(..., train_dataset=rows.with_transform(recall_for(memory)), reward_funcs=reward_memory(score, memory))

Prompts show what the memory recalls, and from the rewards it learns which of its items are worth showing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keepworth.base.errors import KeepworthError
from keepworth.memory.headline import TOKENS
from keepworth.memory.memory import Memory
from keepworth.memory.search.search import Hits
from keepworth.worlds.own import last_said

DECISION = "memory_decision"
"""The column with the decision of the search whose hits a row's prompt shows."""


def recall_for(
    memory: Memory, *, top_k: int = 3, tokens: int = TOKENS
) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
    """Return a function for `Dataset.with_transform` that adds what the memory recalls to each prompt when the prompt is read,
    so that each rollout has a search of its own, named in the column `memory_decision`. With `Dataset.map(..., batched=True)`
    all rollouts of a prompt share one search.

    Args:
        memory: The memory that is searched, with the last message of the prompt.
        top_k: The most items of a search.
        tokens: The most tokens that are added to a prompt.
    """

    def transform(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        columns = {key: list(values) for key, values in rows.items()}
        if "prompt" in columns:  # a row may be asked for one of its other columns
            prompts = columns["prompt"]
            recalled = [memory.search(last_said({"prompt": prompt}), top_k=top_k, tokens=tokens) for prompt in prompts]
            columns["prompt"] = [
                _with(prompt, format_hits(hits)) for prompt, hits in zip(prompts, recalled, strict=True)
            ]
            columns[DECISION] = [hits.decision for hits in recalled]
        return columns

    return transform


def reward_memory(score: Callable[..., Any], memory: Memory) -> Callable[..., Any]:
    """Wrap `score`, a reward function of TRL, so that its rewards also go to the memory, except for None. If there are several
    reward functions, wrap only one."""

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


def format_hits(hits: Hits) -> str:
    """Return hits as the text that is added to the end of a prompt, within the budget of the search; "" for none."""
    return f"\n\nMemory:\n{hits.text}" if hits.text else ""


def _with(prompt: Any, text: str) -> Any:
    if isinstance(prompt, str):
        return prompt + text
    return [*prompt[:-1], {**prompt[-1], "content": f"{prompt[-1]['content']}{text}"}]
