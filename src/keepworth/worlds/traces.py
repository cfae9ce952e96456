"""Episodes as lines of JSON for other programs, and for `train(tasks=...)`: the prompt is a task, with the model's texts next to
it.

{"id": "...", "prompt": [messages], "completion": [messages], "reward": 1.0, "rewards": {"name": 1.0}, "answers": ["..."]}"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from keepworth.records.episode import Episode


def write_traces(path: Path | str, episodes: Iterable[Episode]) -> int:
    """Writes episodes as lines of JSON, and returns how many. Later observations are recorded as tokens only, so of several turns
    only the model's texts are written."""
    lines = [json.dumps(row_of(episode), ensure_ascii=False) for episode in episodes]
    Path(path).expanduser().write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def row_of(episode: Episode) -> dict[str, Any]:
    """Converts one episode to the record of a line."""
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
