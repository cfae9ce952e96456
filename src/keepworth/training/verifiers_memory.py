"""Adds a memory to environments of `verifiers` (version 1): prompts show what it recalls, and it learns from the rewards.

A file `my_env.py` that adds a memory to a plain task set (`--env.id my_env`):

    import verifiers.v1 as vf
    from keepworth import Memory
    from keepworth.training.verifiers_memory import add_memory

    RememberingEnv = add_memory(vf.SingleAgentEnv, Memory("agent.mem"))
    __all__ = ["RememberingEnv"]
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from keepworth.base.needs import needs_verifiers

import verifiers.v1 as vf

from keepworth.memory.episode import LiveEpisode
from keepworth.memory.headline import TOKENS
from keepworth.memory.memory import Memory
from keepworth.training.trl import format_hits


def add_memory(environment: type[vf.Env], memory: Memory, *, top_k: int = 3, tokens: int = TOKENS) -> type[vf.Env]:
    """Return a subclass of an environment with a memory. Each episode begins with a search for its task's prompt, and ends by
    rewarding the memory with the mean reward of its traces. An episode that failed gives no reward.

    Args:
        environment: The class of the environment.
        memory: The memory that is searched and rewarded.
        top_k: The most items of a search.
        tokens: The most tokens that are added to a prompt.
    """
    opened: ContextVar[LiveEpisode | None] = ContextVar("keepworth_episode", default=None)

    class Remembering(environment):  # type: ignore[misc]
        async def run(self, task: Any, agents: Any) -> None:
            asked = task.data.prompt_text
            opened.set(None)
            if asked.strip():
                live = memory.episode(asked)
                opened.set(live)
                task = task.with_data(
                    prompt=add_to_prompt(task.data.prompt, format_hits(live.search(top_k=top_k, tokens=tokens)))
                )
            await super().run(task, agents)

        async def finalize(self, task: Any, episode: Any) -> None:
            await super().finalize(task, episode)
            live, rewarded = opened.get(), [trace for trace in episode.traces if trace.rewards]
            if live is None or not rewarded or not all(trace.ok for trace in episode.traces):
                return
            live.act(rewarded[-1].last_reply or "answered")
            live.reward(sum(trace.reward for trace in rewarded) / len(rewarded), source="verifiers")
            live.end("completed")

    Remembering.__name__ = Remembering.__qualname__ = f"Remembering{environment.__name__}"
    return Remembering


def add_to_prompt(prompt: Any, block: str) -> Any:
    """Return a prompt of verifiers, a text or messages, with `block` added to its last message."""
    if isinstance(prompt, str):
        return prompt + block
    last = prompt[-1]
    content = (
        f"{last.content}{block}" if isinstance(last.content, str) else [*last.content, {"type": "text", "text": block}]
    )
    return [*prompt[:-1], type(last).model_validate({**last.model_dump(), "content": content})] if block else prompt
