"""Episodes of other programs as rows, and ours as lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepworth.episodes.episode import Episode, Exchange, RewardTerm, StopReason
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.own import own_tasks
from keepworth.tasks.traces import read_traces, write_traces

USER, SAID = {"role": "user", "content": "3 + 3?"}, {"role": "assistant", "content": "6"}


def read(tmp_path: Path, *lines: Any) -> list[dict[str, Any]]:
    (tmp_path / "file.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return read_traces(tmp_path / "file.jsonl")


def test_completions_of_trl(tmp_path: Path) -> None:
    line = {
        "step": 3,
        "prompt": [USER],
        "completion": [SAID],
        "right": 1.0,
        "short": 0.5,
        "advantage": 0.7,
        "solution": "6",
    }
    (row,) = read(tmp_path, line)
    assert row["reward"] == 1.5
    assert row["rewards"] == {"right": 1.0, "short": 0.5}
    assert (row["prompt"], row["completion"], row["solution"], row["id"]) == ([USER], [SAID], "6", "1")
    assert own_tasks([row]).all[0].input == "3 + 3?"


def test_traces_of_verifiers_are_their_last_branch(tmp_path: Path) -> None:
    nodes = [
        {"message": {"role": "system", "content": "Be short."}, "parent": None},
        {"message": USER, "parent": 0},
        {"message": {**SAID, "content": "5"}, "parent": 1, "sampled": True},
        {
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "name": "add", "arguments": '{"a": 3}'}],
            },
            "parent": 1,
            "sampled": True,
        },
        {"message": {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "6"}]}, "parent": 3},
        {"message": SAID, "parent": 4, "sampled": True},
    ]
    rewards = {"right": {"score": 1.0, "weight": 2.0}, "judge": None}
    trace = {"task": {"key": "k", "data": {}}, "nodes": nodes, "rewards": rewards}
    (row,) = read(tmp_path, trace)
    assert [each["content"] for each in row["prompt"]] == ["Be short.", "3 + 3?"]
    assert [each["content"] for each in row["completion"]] == [
        '<tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call>',
        "6",
        "6",
    ]
    assert (row["reward"], row["rewards"], row["task"]) == (2.0, {"right": 1.0}, "k")
    assert len(read(tmp_path, {"traces": [trace, trace]}, trace)) == 3


def test_conversations_and_ours(tmp_path: Path) -> None:
    (row,) = read(tmp_path, {"messages": [USER, SAID], "reward": 0.25, "user": "ana"})
    assert (row["prompt"], row["completion"], row["reward"], row["user"]) == ([USER], [SAID], 0.25, "ana")
    terms = (RewardTerm("right", 1.0), RewardTerm("length", -0.5, weight=0.5))
    episode = Episode(
        "e",
        "t",
        "",
        "3 + 3?",
        (),
        "6",
        ("6",),
        terms,
        StopReason.COMPLETED,
        "",
        0,
        exchanges=(Exchange("3 + 3?", "6"),),
    )
    assert write_traces(tmp_path / "ours.jsonl", [episode, episode]) == 2
    back = read_traces(tmp_path / "ours.jsonl")
    assert (back[0]["prompt"], back[0]["completion"]) == ([USER], [SAID])
    assert (back[0]["reward"], back[0]["rewards"]) == (0.75, {"right": 1.0, "length": -0.5})
    assert own_tasks(back[:1]).all[0].answers == ("6",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"text": "x"}, "line 1: this is no episode: there are 'text'"),
        ({"messages": [USER], "reward": 1.0}, "do not end with what the assistant said"),
        ({"messages": [USER, SAID]}, "has no reward"),
        ({"prompt": "", "completion": "x", "reward": 1.0}, "has no prompt"),
        ({"prompt": "x", "completion": "x", "reward": float("nan")}, "has no reward"),
    ],
)
def test_what_is_no_episode_is_named(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(WrongFormat, match=said) as caught:
        read(tmp_path, line)
    assert caught.value.fix
