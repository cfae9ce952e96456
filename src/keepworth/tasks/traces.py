"""Episodes of other programs, and ours for them: lines of JSON with prompt, completion and reward.

    {"id": "...", "prompt": [messages], "completion": [messages], "reward": 1.0, "rewards": {"name": 1.0}, "answer": "..."}

| read | what it is |
| --- | --- |
| `traces.jsonl` of verifiers | one trace, or one episode with its traces, a line |
| `completions_*.parquet` of TRL, or the same as JSON lines | prompt, completion, a column for each reward, advantage |
| JSON lines with `messages` and `reward` | conversations; what the assistant said last is the completion |

What is read are rows for `train(tasks=...)`: the prompt is a task, and what was said and earned stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Episode
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.json_lines import lines_of

NOT_REWARDS = frozenset({"step", "prompt", "completion", "advantage", "id", "reward", "rewards", "answer"})
"""Columns of TRL's completions that are no rewards."""


def read_traces(path: Path | str) -> list[dict[str, Any]]:
    """The episodes of a file, as rows. Raises WrongFormat naming the line that is none."""
    path = Path(path).expanduser()
    lines: Iterable[tuple[int, Mapping[str, Any]]]
    lines = enumerate(_parquet(path), start=1) if path.suffix == ".parquet" else lines_of(path)
    rows = [row for number, line in lines for row in _rows(line, f"{path}, line {number}")]
    return [{"id": str(number), **row} for number, row in enumerate(rows, start=1)]


def write_traces(path: Path | str, episodes: Iterable[Episode]) -> int:
    """Write episodes as lines of JSON; returns how many. What the environment said after its question is in the record as tokens
    alone, so of several turns only what the model said is written."""
    lines = [json.dumps(row_of(each), ensure_ascii=False) for each in episodes]
    Path(path).expanduser().write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def row_of(episode: Episode) -> dict[str, Any]:
    """One episode, as a line says it."""
    said = [segment.text for segment in episode.segments] or [each.done for each in episode.exchanges]
    return {
        "id": episode.id,
        "task": episode.task,
        "prompt": [{"role": "user", "content": episode.question}],
        "completion": [{"role": "assistant", "content": text} for text in said],
        "reward": episode.reward,
        "rewards": {term.name: term.value for term in episode.rewards},
        "said": episode.answer,
        "answers": list(episode.expected),
        "stop": episode.stop.value,
    }


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise KeepworthError(
            f"{path} needs pyarrow, which is not installed.", "pip install pyarrow, or write the table as JSON lines."
        ) from error
    yield from parquet.read_table(path).to_pylist()


def _rows(line: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    if "traces" in line:
        for trace in line["traces"]:
            yield _of_verifiers(trace, place)
    elif "nodes" in line:
        yield _of_verifiers(line, place)
    elif "messages" in line:
        yield _of_messages(line["messages"], line, place)
    elif "prompt" in line and "completion" in line:
        rewards = line.get("rewards")
        if not isinstance(rewards, Mapping):
            rewards = {key: value for key, value in line.items() if key not in NOT_REWARDS and _is_number(value)}
        more = {key: value for key, value in line.items() if key not in (*rewards, "rewards", "advantage", "step")}
        yield _row(line["prompt"], line["completion"], dict(rewards), line.get("reward"), more, place)
    else:
        raise WrongFormat(
            f"{place}: this is no episode: there are {', '.join(map(repr, line))}.",
            "Give prompt and completion, messages, or a trace of verifiers.",
        )


def _of_verifiers(trace: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The last branch of a trace: from the last node to its first."""
    nodes = trace.get("nodes") or []
    path: list[Mapping[str, Any]] = []
    at = len(nodes) - 1
    while nodes and at is not None:
        path.insert(0, nodes[at])
        at = nodes[at].get("parent")
    first = next((i for i, node in enumerate(path) if node.get("sampled")), len(path))
    messages = [_message(node["message"]) for node in path]
    scored = {name: each for name, each in (trace.get("rewards") or {}).items() if each is not None}
    rewards = {name: float(each["score"]) for name, each in scored.items()}
    reward = sum(each["score"] * each.get("weight", 1.0) for each in scored.values()) if scored else None
    key = str((trace.get("task") or {}).get("key") or "")
    return _row(messages[:first], messages[first:], rewards, reward, {"task": key} if key else {}, place)


def _of_messages(messages: Any, line: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(messages, list) or not messages or messages[-1].get("role") != "assistant":
        raise WrongFormat(f"{place}: the messages do not end with what the assistant said.", "Add its answer.")
    more = {key: value for key, value in line.items() if key not in ("messages", "reward", "rewards")}
    plain = [_message(each) for each in messages]
    return _row(plain[:-1], plain[-1:], dict(line.get("rewards") or {}), line.get("reward"), more, place)


def _row(
    prompt: Any, completion: Any, rewards: dict[str, Any], reward: Any, more: Mapping[str, Any], place: str
) -> dict[str, Any]:
    total = sum(each for each in rewards.values() if _is_number(each)) if reward is None and rewards else reward
    if not prompt or not _is_number(total):
        what = "a prompt" if not prompt else "a reward"
        raise WrongFormat(f"{place}: the episode has no {what.removeprefix('a ')}.", f"Give it {what}.")
    return {**more, "prompt": prompt, "completion": completion, "reward": float(total), "rewards": rewards}


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A role and a text; of calls their names and arguments, because rows are texts."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    written = [
        f'<tool_call>{{"name": "{call["name"]}", "arguments": {call["arguments"]}}}</tool_call>' for call in calls
    ]
    return {"role": message["role"], "content": "\n".join(filter(None, (text, *written)))}
