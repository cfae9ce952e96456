"""`keepworth memory outcomes` lists where rewards came from."""

from __future__ import annotations

import json

from keepworth import Memory
from keepworth.memory.evaluations import Evaluation, reward_by
from keepworth.memory.signals import load_signals
from tests.cli.conftest import CommandLine


def test_outcomes_command_lists_accepted_and_rejected_outcomes(command: CommandLine) -> None:
    with Memory("a.mem", encoder=None) as memory:
        memory.add("Deploy with: make ship")
        with memory.episode("deploy") as episode:
            decision = episode.search().decision
        episode.signal("check-failed")
        sent = [
            Evaluation("tone", value, targets=(id,)) for value, id in ((0.5, decision), (9.0, decision), (1.0, "d1"))
        ]
        reward_by(memory, sent)
    lines = command.done("memory", "outcomes", "--file", "a.mem").splitlines()
    assert [line.split() for line in lines] == [
        ["1", "mean", "0.50", "evaluation:tone", "1", "unknown,", "1", "unusable"],
        [
            "1",
            "mean",
            "0.00",
            "signal:check-failed",
            "a",
            "test,",
            "a",
            "build",
            "or",
            "a",
            "linter",
            "failed,",
            "weight",
            "0.35",
        ],
    ]
    rows = [json.loads(line) for line in command.done("memory", "outcomes", "--file", "a.mem", "--json").splitlines()]
    assert {row["source"] for row in rows if row["kind"] == "signal"} == {s.source for s in load_signals().values()}
