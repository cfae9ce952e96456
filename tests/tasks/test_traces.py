"""Episodes as lines, and lines as rows."""

from __future__ import annotations

import json
from pathlib import Path

from keepworth.episodes.episode import Episode, Exchange, RewardTerm, StopReason
from keepworth.tasks.own import own_tasks
from keepworth.tasks.traces import write_traces

USER, SAID = {"role": "user", "content": "3 + 3?"}, {"role": "assistant", "content": "6"}


def test_episodes_and_completions_of_trl_are_rows(tmp_path: Path) -> None:
    terms = (RewardTerm("right", 1.0), RewardTerm("length", -0.5, weight=0.5))
    stop, said = StopReason.COMPLETED, (Exchange("3 + 3?", "6"),)
    episode = Episode("e", "t", "", "3 + 3?", (), "6", ("6",), terms, stop, "", 0, exchanges=said)
    assert write_traces(tmp_path / "ours.jsonl", [episode]) == 1
    (task,) = own_tasks(tmp_path / "ours.jsonl").all
    assert (task.input, task.answers) == ("3 + 3?", ("6",))
    assert (task.row["prompt"], task.row["completion"]) == ([USER], [SAID])
    assert (task.row["reward"], task.row["rewards"]) == (0.75, {"right": 1.0, "length": -0.5})
    line = {"step": 3, "prompt": [USER], "completion": [SAID], "right": 1.0, "advantage": 0.7, "solution": "6"}
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
    (task,) = own_tasks(tmp_path / "theirs.jsonl").all
    assert (task.input, task.row["solution"], task.row["right"]) == ("3 + 3?", "6", 1.0)
