from __future__ import annotations

import math
from pathlib import Path

import pytest

from recollect.agents.learning_memory import LearningMemory, answered
from recollect.episodes.errors import UnknownName
from recollect.memory.policy.errors import (
    CannotEvaluate,
    ClosedDecision,
    DamagedJournal,
    InvalidReward,
    UnknownDecision,
)
from recollect.memory.policy.hashed_words import HashedWords
from recollect.memory.policy.pool import Draft
from recollect.recipes.exprag import exprag
from recollect.recipes.memrl import memrl
from recollect.recipes.ours import ours

POLICIES = {"ours": ours, "exprag": exprag, "memrl": memrl}
ACTIONS = ("refund", "replace", "escalate")


def opened(path: Path, policy: str = "ours") -> LearningMemory:
    return LearningMemory.open(path, POLICIES, HashedWords(64), policy=policy, seed=1)


def play(memory: LearningMemory, goal: str, action: str, reward: float) -> str:
    with memory.episode(goal) as episode:
        episode.recall(actions=ACTIONS)
        episode.act(action)
        episode.reward(reward)
    return episode.id


def state(memory: LearningMemory) -> tuple[object, ...]:
    """Everything that decides what is shown next."""
    query = memory.experience.query("a torn shirt arrived", "")
    method = memory.experience.method
    candidates = method.retriever(query, memory.experience.pool)
    values = method.valuer.estimate(query, candidates, memory.experience.pool)
    items = [(i.id, i.text, i.key, i.status, dict(i.metadata)) for i in memory.experience.pool.items]
    return items, candidates.rows.tolist(), values.means.tolist(), values.deviations.tolist(), memory.experience.time


def test_what_worked_is_shown_again(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl", "exprag")
    play(memory, "a torn shirt arrived", "refund", 1.0)
    with memory.episode("a torn shirt arrived today") as episode:
        assert "refund" in episode.recall(actions=ACTIONS).text


def test_a_crash_between_acting_and_rewarding_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    memory = opened(path)
    for number in range(6):
        play(memory, f"a torn shirt arrived {number}", ACTIONS[number % 2], float(number % 2 == 0))
    episode = memory.episode("a torn shirt arrived late")
    episode.recall(actions=ACTIONS)
    episode.act("refund")
    # No close, no exit: the process is gone. Another one reads the journal.
    again = opened(path)
    assert again.pending() == [episode.id]
    assert state(again) == state(memory)
    assert again.reward(episode.id, 1.0)
    memory.reward(episode.id, 1.0)
    assert state(again) == state(memory)


def test_a_torn_last_line_is_dropped_and_damage_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    memory = opened(path)
    play(memory, "a torn shirt arrived", "refund", 1.0)
    before = state(memory)
    memory.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"episode","id":"e1","go')
    again = opened(path)
    assert state(again) == before
    again.close()
    assert path.read_bytes() == whole
    path.write_bytes(whole[:20] + b"\x00\x00" + whole[22:])
    with pytest.raises(DamagedJournal, match="byte"):
        opened(path)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.5, -0.1, "1", None])
def test_a_bad_reward_is_a_typed_error_and_changes_nothing(tmp_path: Path, bad: object) -> None:
    memory = opened(tmp_path / "j.jsonl")
    episode = memory.episode("a torn shirt arrived")
    episode.recall(actions=ACTIONS)
    episode.act("refund")
    size = (tmp_path / "j.jsonl").stat().st_size
    with pytest.raises(InvalidReward, match="finite number"):
        memory.reward(episode.id, bad)  # type: ignore[arg-type]
    assert memory.pending() == [episode.id]
    assert (tmp_path / "j.jsonl").stat().st_size == size


def test_rewards_are_idempotent_and_final(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl")
    name = play(memory, "a torn shirt arrived", "refund", 1.0)
    before = state(memory)
    assert memory.reward(name, 1.0) is False
    assert state(memory) == before
    with pytest.raises(ClosedDecision, match="cannot become"):
        memory.reward(name, 0.0)
    with pytest.raises(UnknownDecision, match="nobody"):
        memory.reward("nobody", 1.0)


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl")
    episode = memory.episode("a torn shirt arrived")
    with pytest.raises(ClosedDecision, match="without recalling"):
        episode.act("refund")
    episode.recall(actions=ACTIONS)
    with pytest.raises(ClosedDecision, match="twice"):
        episode.recall(actions=ACTIONS)


def test_step_rewards_and_next_states_credit_single_choices(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl", "memrl")
    with memory.episode("repair the pump") as episode:
        episode.recall("valve closed", ("open", "turn"))
        episode.act("open")
        episode.next_state("the valve is open now", lambda action, text: 1.0 if "now" in text else -1.0)
        episode.recall("valve open", ("open", "turn"))
        episode.act("turn")
        episode.reward(0.0)
    assert [reward for _, reward in memory.experience.uses] == [1.0, 0.0]
    again = opened(tmp_path / "j.jsonl", "memrl")
    assert [reward for _, reward in again.experience.uses] == [1.0, 0.0]


def test_garbage_from_a_writer_admits_nothing(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl")
    for draft in (Draft("", "text", do=("a",)), Draft("key", "te\x00xt", do=("a",)), Draft("key", "text")):
        assert memory.add(draft) is None
    assert len(memory.experience.pool) == 0


def test_a_source_can_be_rolled_back_with_what_was_learned_from_it(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    clean, mixed = opened(tmp_path / "clean.jsonl", "memrl"), opened(path, "memrl")
    for memory in (clean, mixed):
        play(memory, "a torn shirt arrived", "refund", 1.0)
    bad = mixed.add(Draft("a torn shirt arrived", "advice", do=("escalate",), source="web", trust=0.3))
    play(mixed, "a torn shirt arrived again", "escalate", 0.0)
    assert mixed.roll_back("web") == [bad]
    assert all(item.provenance.source != "web" or not item.current for item in mixed.experience.pool.items)
    assert state(opened(path, "memrl")) == state(mixed)


def test_policies_are_evaluated_promoted_and_demoted(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    memory = opened(path)
    for number in range(60):
        play(memory, f"a torn shirt arrived {number % 7}", ACTIONS[number % 3], float(number % 3 == 0))
    same = memory.evaluate("ours")
    assert same.n == 60
    assert 0.0 <= same.value <= 1.0
    with pytest.raises(CannotEvaluate) as refusal:
        memory.evaluate("exprag")
    assert refusal.value.reason in ("no support", "low effective sample size")
    with pytest.raises(UnknownName, match="memrl"):
        memory.evaluate("memrll")
    memory.promote("memrl")
    assert opened(path).policy == "memrl"
    assert memory.demote() == "ours"
    assert opened(path).policy == "ours"
    with pytest.raises(UnknownDecision, match="first policy"):
        memory.demote()


def test_any_function_of_a_prompt_is_an_agent(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.jsonl", "exprag")
    prompts: list[str] = []

    def agent(prompt: str) -> str:
        prompts.append(prompt)
        return "refund"

    for _ in range(2):
        answered(memory, "a torn shirt arrived", agent, lambda answer: float(answer == "refund"))
    assert "refund" not in prompts[0]
    assert "refund" in prompts[1]
