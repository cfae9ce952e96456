"""Episodes as lines of JSON for other programs, and for `train(tasks=...)`: a prompt is a task, what was said is beside it.

{"id": "...", "prompt": [messages], "completion": [messages], "reward": 1.0, "rewards": {"name": 1.0}, "answers": ["..."]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Episode


def write_traces(path: Path | str, episodes: Iterable[Episode]) -> int:
    """Write episodes as lines of JSON; returns how many. What the environment said after its question is in the record as tokens
    alone, so of several turns only what the model said is written."""
    lines = [json.dumps(row_of(episode), ensure_ascii=False) for episode in episodes]
    Path(path).expanduser().write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def row_of(episode: Episode) -> dict[str, Any]:
    """One episode, as a line says it."""
    texts = [segment.text for segment in episode.segments] or [exchange.done for exchange in episode.exchanges]
    return {
        "id": episode.id,
        "task": episode.task,
        "prompt": [{"role": "user", "content": episode.question}],
        "completion": [{"role": "assistant", "content": text} for text in texts],
        "reward": episode.reward,
        "rewards": {term.name: term.value for term in episode.rewards},
        "said": episode.answer,
        "answers": list(episode.expected),
        "stop": episode.stop.value,
    }
