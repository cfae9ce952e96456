"""Where the rewards of a memory came from: `Memory.outcomes`."""

from __future__ import annotations

import pytest

from keepworth import Memory
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


def test_outcomes_omit_rolled_back_rewards_and_other_users() -> None:
    with Memory(":memory:", encoder=None) as memory:
        rewarded(memory)
        memory.rollback(source="evaluation:helpful")
        assert by_name(memory.outcomes())["evaluation:helpful"].rewards == 0
        ana, bo = memory.within(user_id="ana"), memory.within(user_id="bo")
        assert by_name(ana.outcomes())[""].rewards == 1
        assert [row for row in bo.outcomes() if row.rewards or row.unknown] == []
        assert [row for row in memory.outcomes(nobody=True) if row.rewards] == []


@pytest.mark.parametrize(("said", "earned"), [((), 0.25), ((1.0,), 1.0)])
def test_rewards_by_people_outweigh_evaluators(said: tuple[float, ...], earned: float) -> None:
    with Memory(":memory:", encoder=None, seed=0) as memory:
        note = memory.add("Deploy with: make ship", user_id="team")
        with memory.episode("deploy", user_id="team") as episode:
            decision = episode.search().decision
        for value in said:
            memory.reward(decision, value, by="bo")
        evaluations = [Evaluation(f"judge {number}", number / 2, targets=(decision,)) for number in (0, 1)]
        reward_by(memory, evaluations, "ana")
        assert memory.worth(note.id, "deploy").earned == pytest.approx(earned, abs=0.01)
        record = memory.episode_record(episode.id)
        assert record.reward == pytest.approx(earned)
