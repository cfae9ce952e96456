"""Where the rewards of a memory came from: `Memory.outcomes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.cli.main import main
from keepworth.memory.evaluations import Evaluation, reward_by
from keepworth.memory.outcomes import OutcomeSource
from keepworth.memory.signals import load_signals


def rewarded(memory: Memory) -> str:
    """Rewards of several sources, and the decision that they are about."""
    memory.add("Deploy with: make ship", user_id="ana")
    with memory.episode("deploy", user_id="ana") as episode:
        decision = episode.search().decision
    memory.reward(decision, 1.0, by="ana")
    episode.signal("check-failed")
    memory.reward(decision, 0.5, by="", source="import:wiki")
    told = [Evaluation("helpful", value, time=str(time), targets=(decision,)) for time, value in enumerate((0.2, 0.6))]
    for name in ("ana", "bo"):
        reward_by(memory, [*told, told[0]], name)
    reward_by(
        memory, [Evaluation("tone", 1.0, targets=("d" + "1" * 16,)), Evaluation("tone", 5.0, targets=(decision,))]
    )
    return decision


def by_name(listed: list[OutcomeSource]) -> dict[str, OutcomeSource]:
    return {row.source: row for row in listed}


def test_each_source_is_listed_with_its_rewards() -> None:
    with Memory(":memory:", encoder=None, signals=["check-failed"]) as memory:
        rewarded(memory)
        listed = memory.outcomes()
        rows = by_name(listed)
        assert [row.source for row in listed][:3] == ["", "evaluation:helpful", "evaluation:tone"]
        assert (rows[""].kind, rows[""].rewards, rows[""].mean) == ("people", 1, 1.0)
        helpful, tone = rows["evaluation:helpful"], rows["evaluation:tone"]
        assert (helpful.rewards, helpful.mean, helpful.repeated) == (2, pytest.approx(0.6), 2)
        assert (tone.rewards, tone.mean, tone.unknown, tone.unusable) == (0, None, 1, 1)
        signals = [row for row in listed if row.kind == "signal"]
        assert [row.source for row in signals] == [signal.source for signal in load_signals().values()]
        assert [row.source for row in signals if row.counts] == ["signal:check-failed"]
        assert rows["signal:check-failed"].rewards == 1
        assert rows["import:wiki"].kind == "other"
        assert rows["import:wiki"].last


def test_what_is_taken_back_is_not_counted_and_others_see_only_their_own() -> None:
    with Memory(":memory:", encoder=None) as memory:
        rewarded(memory)
        memory.rollback(source="evaluation:helpful")
        assert by_name(memory.outcomes())["evaluation:helpful"].rewards == 0
        ana, bo = memory.within(user_id="ana"), memory.within(user_id="bo")
        assert by_name(ana.outcomes())[""].rewards == 1
        assert [row for row in bo.outcomes() if row.rewards or row.unknown] == []
        assert [row for row in memory.outcomes(nobody=True) if row.rewards] == []


def test_the_command_prints_what_came(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Memory(path, encoder=None) as memory:
        rewarded(memory)
    assert main(["memory", "outcomes", "--file", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "evaluation:tone" in printed
    assert "1 unknown, 1 unusable" in printed
    assert "signal:commit" not in printed
    assert main(["memory", "outcomes", "--file", str(path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"signal:commit", "import:wiki"} <= {row["source"] for row in rows}
