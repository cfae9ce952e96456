from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth import policy
from keepworth.memory.choose import experience
from keepworth.memory.choose.exemplars import Capacity
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished, Use
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.errors import (
    ClosedEpisode,
    InvalidPolicy,
    InvalidScope,
    StorageFull,
    UnknownEpisode,
)
from keepworth.memory.item import Status
from keepworth.memory.memory import Memory
from keepworth.memory.store import log
from keepworth.methods.policies.default import default
from tests.memory.helpers import ACTIONS, note_uses, play

ROOT = Path(__file__).parents[3]
POLICIES = ("exprag", "memrl", "mixture")


def opened(path: Path, policy: Any = "mixture", **options: Any) -> Memory:
    return Memory(path, policy=policy, encoder=HashedWords(64), **{"seed": 1, **options})


def begun(memory: Memory, goal: str) -> LiveEpisode:
    """An episode in which something was done and nothing is rewarded yet."""
    episode = memory.episode(goal)
    episode.search(actions=ACTIONS)
    episode.act("refund")
    return episode


def shirts(memory: Memory, count: int) -> None:
    for number in range(count):
        play(memory, f"a torn shirt arrived {number}", ACTIONS[number % 2], float(number % 2 == 0))


def state(memory: Memory) -> tuple[object, ...]:
    """Everything that decides what is shown next."""
    experience = memory.learning.experience
    policy, pool = experience.policy, experience.pool
    query = experience.query("a torn shirt arrived", "")
    candidates = policy.retriever(query, pool)
    values = policy.valuer.estimate(query, candidates, pool)
    items = [(i.id, i.text, i.key, i.status, dict(i.metadata)) for i in pool.items]
    return items, candidates.rows.tolist(), values.means.tolist(), values.deviations.tolist(), experience.time


KILLED = """
import os, sys
from pathlib import Path
from tests.memory.policy.test_learning import begun, opened, shirts
memory = opened(Path(sys.argv[1]))
shirts(memory, 6)
print(begun(memory, "a torn shirt arrived late").id, flush=True)
os._exit(9)
"""


def test_crash_before_the_reward_loses_no_acts(tmp_path: Path) -> None:
    path = tmp_path / "j.mem"
    died = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert died.returncode == 9, died.stderr
    whole = opened(tmp_path / "whole.mem")
    shirts(whole, 6)
    play(whole, "a torn shirt arrived late", "refund", 1.0)
    again = opened(path)
    assert again.pending() == [died.stdout.strip()]
    assert again.reward(died.stdout.strip(), 1.0).applied
    assert learned(again) == learned(whole)


def test_refused_reward_leaves_learned_state_equal_to_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(path)
    play(memory, "a torn shirt arrived", "refund", 1.0)
    episode = begun(memory, "a torn shirt arrived late")
    before = state(memory)

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no room left")

    with monkeypatch.context() as patched:
        patched.setattr(memory.store, "change", full)
        with pytest.raises(StorageFull):
            memory.reward(episode.id, 1.0)
    assert state(memory) == before
    assert memory.pending() == [episode.id]
    assert episode.reward(1.0)


def test_episode_record_lists_decisions_rewards_and_writes(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "exprag")
    play(memory, "a torn shirt arrived", "refund", 1.0)
    record = memory.episode_record(play(memory, "a torn shirt arrived again", "refund", 1.0))
    assert [term.value for term in record.rewards] == [1.0]
    assert record.decisions[0].propensity == 1.0
    (shown,) = record.decisions[0].chosen
    assert memory.get(shown).values.mean == 1.0
    memory.close()
    with Memory(tmp_path / "j.mem", policy=None, encoder=HashedWords(64)) as plain:
        assert "refund" in plain.search("torn shirt", top_k=1, mode="dense")[0].text


def test_rewards_are_idempotent_and_final(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    name = play(memory, "a torn shirt arrived", "refund", 1.0)
    before = state(memory)
    assert not memory.reward(name, 1.0).applied
    assert state(memory) == before
    with pytest.raises(ClosedEpisode, match="cannot become"):
        memory.reward(name, 0.0)
    with pytest.raises(UnknownEpisode, match="nobody"):
        memory.reward("nobody", 1.0)


def learned(memory: Memory) -> tuple[object, ...]:
    """As `state`, without the names of items."""
    items, *rest = state(memory)
    return [item[1:] for item in items], *rest  # type: ignore[attr-defined]


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    episode = memory.episode("a torn shirt arrived")
    with pytest.raises(ClosedEpisode, match="without searching"):
        episode.act("refund")
    with pytest.raises(ClosedEpisode, match="no open action"):
        episode.step_reward(1.0)
    with pytest.raises(ClosedEpisode, match="without searching"):
        begun(memory, "a torn shirt arrived").act("refund")


def test_the_reward_of_a_step_comes_before_that_of_its_episode(tmp_path: Path) -> None:
    """After it nothing would come of it, also where the policy takes later rewards of an episode."""
    with opened(tmp_path / "j.mem", "default", seed=None) as memory:
        item = memory.add("a torn shirt is refunded")
        episode = memory.episode("a torn shirt arrived")
        episode.search()
        episode.act("refund")
        episode.step_reward(1.0)
        assert memory.worth(item.id, "a torn shirt arrived").times == 0.0
        episode.reward(0.5)
        worth = memory.worth(item.id, "a torn shirt arrived")
        assert (worth.times, worth.earned) == pytest.approx((1.0, 1.0), rel=1e-3)
        with pytest.raises(ClosedEpisode, match="no open action"):
            episode.step_reward(0.0)


def test_step_rewards_credit_single_choices(tmp_path: Path) -> None:
    learned: list[Use] = []
    memory = opened(tmp_path / "j.mem", note_uses("memrl", learned))
    with memory.episode("repair the pump") as episode:
        episode.search("valve closed", actions=("open", "turn"))
        episode.act("open")
        episode.step_reward(1.0)
        episode.search("valve open", actions=("open", "turn"))
        episode.act("turn")
        episode.reward(0.0)
    assert [use.reward for use in learned] == [1.0, 0.0]
    memory.close()
    assert opened(tmp_path / "j.mem", note_uses("memrl", learned)).learning.experience.learned == 2
    assert [use.reward for use in learned] == [1.0, 0.0]


def test_rollback_of_a_source_restores_learned_state(path: Path) -> None:
    memory = opened(path, "memrl")
    play(memory, "a torn shirt arrived", "refund", 1.0)
    before = state(memory)
    bad = memory.propose(Advice("a torn shirt arrived", "advice", do=("escalate",), source="web", trust=0.3))
    play(memory, "a torn shirt arrived again", "escalate", 0.0)
    assert bad in memory.rollback(source="web").changed
    items, _, means, _, _ = state(memory)
    assert [item[2] for item in items] == ["a torn shirt arrived", "a torn shirt arrived again"]  # type: ignore[attr-defined]
    assert means[-1] == before[2][0]  # type: ignore[index]
    again = state(memory)
    memory.close()
    assert state(opened(path, "memrl")) == again


@pytest.mark.parametrize("policy", POLICIES)
def test_rolling_back_to_a_snapshot_or_an_episode_is_exact(tmp_path: Path, policy: str) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    shirts(memory, 4)
    before, snapshot = state(memory), memory.snapshot()
    last = play(memory, "a torn shirt arrived late", "escalate", 1.0)
    assert state(memory) != before
    memory.rollback(last)
    assert state(memory) == before
    play(memory, "another torn shirt", "escalate", 1.0)
    play(memory, "and another", "refund", 0.0)
    memory.rollback(since=snapshot)
    assert state(memory) == before


def test_a_late_reward_of_a_rolled_back_episode_teaches_every_process_the_same(path: Path) -> None:
    memory = opened(path, "default")
    memory.add_many([f"a red cat {number}" for number in range(8)])
    for query, value in (("red", 0.0), ("cat", 1.0)):
        memory.reward(memory.search(query, top_k=3).decision, value)
    late = memory.episode("a moon")
    late.search("cat", top_k=3)
    late.act("refund")
    memory.rollback(late.id)
    memory.worth("m1", "red")
    late.reward(0.0)
    assert memory.worth("m1", "red") == opened(path, "default").worth("m1", "red")


def test_policy_sees_items_of_its_scope_only(tmp_path: Path) -> None:
    ana, bo = (opened(tmp_path / "j.mem", "exprag", user_id=name, seed=None) for name in ("ana", "bo"))
    play(ana, "a torn shirt arrived", "refund", 1.0)
    with bo.episode("a torn shirt arrived") as episode:
        assert episode.search(actions=ACTIONS).text == ""
    with ana.episode("a torn shirt arrived") as episode:
        assert "refund" in episode.search(actions=ACTIONS).text


def active(memory: Memory) -> list[str]:
    return [item.key for item in memory.learning.experience.pool.items if item.status is Status.ACTIVE]


def test_full_memory_archives_the_oldest_cases_and_rollback_restores_them(path: Path) -> None:
    memory = opened(path, lambda: replace(policy("mixture"), maintainers=(Capacity(3),)))
    for number, word in enumerate(("torn", "late", "lost")):
        play(memory, f"a {word} thing", ACTIONS[number], 1.0)
    first, snapshot = active(memory), memory.snapshot()
    for word in ("wrong", "broken"):
        play(memory, f"a {word} thing", "refund", 1.0)
    assert active(memory) == ["a lost thing", "a wrong thing", "a broken thing"]
    memory.rollback(since=snapshot)
    assert active(memory) == first


def test_active_person_does_not_displace_cases_of_others(path: Path) -> None:
    memory = opened(path, lambda: replace(policy("mixture"), maintainers=(Capacity(4),)))
    for person, words in (("ana", ("torn", "late")), ("mallory", ("lost", "wrong", "broken", "odd", "blue"))):
        for word in words:
            play(memory, f"a {word} thing", "refund", 1.0, by=person, judge=person)
    assert active(memory) == ["a torn thing", "a late thing", "a odd thing", "a blue thing"]


def test_item_erased_by_another_handle_is_not_shown_or_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "j.mem"
    memory = opened(path, "exprag", user_id="ana", seed=None)
    for n in range(3):
        play(memory, f"zxgoal a torn shirt {n}", ACTIONS[0], 1.0)
    begun = memory.episode("zxgoal a torn shirt again")
    assert "zxgoal" in begun.search(actions=ACTIONS).text
    begun.act(ACTIONS[0])
    with Memory(path, encoder=None) as engine:
        engine.erase(user_id="ana")
    with pytest.raises(UnknownEpisode, match="no episode"):
        begun.reward(1.0)
    with memory.episode("a torn shirt") as episode:
        assert "zxgoal" not in episode.search(actions=ACTIONS).text
        episode.act(ACTIONS[0])
        episode.reward(1.0)
    before = state(memory)
    memory.close()
    assert state(opened(path, "exprag", user_id="ana", seed=None)) == before
    assert not any(b"zxgoal" in path.read_bytes() for path in tmp_path.iterdir())


def test_filters_and_scopes_hold_for_a_policy_with_its_own_retriever(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    for person in ("ana", "bo"):
        team = {"team": person, "tags": f"of {person}"}
        memory.add(f"a torn shirt of {person}", user_id=person, metadata=team, event_time="2026-01-01")
    for asked, found in (
        ({}, {"ana", "bo"}),
        ({"user_id": "ana"}, {"ana"}),
        ({"where": {"team": "bo"}}, {"bo"}),
        ({"where": {"tags": "of bo"}}, {"bo"}),  # a name that policies use of their own items
        ({"statuses": ["archived"], "mode": "dense"}, set()),
        ({"kinds": ["case"]}, set()),
        ({"until": "2020-01-01"}, set()),
    ):
        hits = memory.search("a torn shirt", **asked)  # type: ignore[arg-type]
        assert {hit.item.scope.user for hit in hits} == found
    assert memory.search("a torn shirt", statuses=["archived"]) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_inadmissible_items_take_no_candidate_places(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    for number in range(30):
        memory.add(f"a torn shirt number {number}", user_id="bo", metadata={"n": number})
    memory.add("a shirt that is torn and old", user_id="ana")
    assert [hit.item.scope.user for hit in memory.search("a torn shirt", user_id="ana")] == ["ana"]
    assert [hit.item.metadata["n"] for hit in memory.search("a torn shirt", where={"n": 17})] == [17]


@pytest.mark.parametrize("policy", POLICIES)
def test_retriever_candidates_pass_the_search_stages(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    for number in range(4):
        memory.add(f"a torn shirt number {number}", event_time=f"202{number}-01-01")
    plain = memory.search("a torn shirt number 2", top_k=4)
    assert len(plain) > 1
    least = sorted(hit.score for hit in plain)[1]
    above = {hit.id for hit in plain if hit.score >= least}
    assert {hit.id for hit in memory.search("a torn shirt number 2", top_k=4, threshold=least)} == above
    first = plain[0].id
    fitting = memory.search("a torn shirt number 2", fits=lambda hits: [hit for hit in hits if hit.id == first])
    assert [hit.id for hit in fitting] == [first]
    explained = memory.search("a torn shirt number 2", explain=True)
    assert all(hit.why.dense_rank and "shirt" in hit.why.terms for hit in explained)
    assert memory.search("a torn shirt number 2", half_life=30.0)[0].text == "a torn shirt number 3"
    reranked = memory.search("a torn shirt", reranker=lambda _, texts: [float(text.endswith("0")) for text in texts])
    assert {hit.score for hit in reranked} <= {0.0, 1.0}


@pytest.mark.parametrize("policy", ["kernel-mean", "mixture", "memrl"])
def test_reranker_scores_remove_no_hits(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    memory.add_many([f"a torn shirt number {number}" for number in range(3)])
    for least in (-12.0, 3.0):  # logits, as of a cross-encoder
        reranker = partial(lambda least, _, texts: [least + len(text) for text in texts], least)
        assert len(memory.search("a torn shirt", reranker=reranker)) == 3


def test_advice_of_one_person_gives_no_warnings_to_others() -> None:
    memory = Memory(policy="amemguard", encoder="hashing", seed=0)
    for number, action in enumerate(("give the refund", "give the refund", "phone the doctor")):
        memory.add(f"a customer asks for a refund, case {number}", user_id="ana", metadata={"do": [action]})
    assert "phone the doctor" in memory.search("a customer asks for a refund", user_id="ana").text
    asked = "a customer asks for a refund"
    for handle, bounds in (
        (memory, {"user_id": "bo"}),
        (memory, {"where": {"team": "red"}}),
        (memory.within(user_id="bo"), {}),
    ):
        hits = handle.search(asked, **bounds)
        assert (list(hits), hits.text, hits.advice) == ([], "", ())


@pytest.mark.parametrize("policy", [*POLICIES, "amem", "gitm", "rememberer"])
def test_cases_of_an_episode_are_stored_in_its_user_scope(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    ana, bo = (memory.within(user_id=name) for name in ("ana", "bo"))
    for number in range(12):
        before = (ana, bo)[number % 2].get_all()
        play((bo, ana)[number % 2], "a torn shirt arrived", "refund", 1.0)
        assert (ana, bo)[number % 2].get_all() == before
    assert {hit.item.scope.user for hit in ana.search("a torn shirt arrived")} == {"ana"}
    assert ana.get(ana.propose(Advice("a bill", "pay the bill", do=("pay",)))).scope.user == "ana"
    assert state(opened(tmp_path / "j.mem", policy)) == state(memory)


def test_policy_chooses_among_the_hits_of_the_search_mode(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "memrl")
    memory.add("zebra")
    memory.add("a torn shirt arrived")
    assert "zebra" not in [hit.text for hit in memory.search("torn shirt")]
    with memory.episode("zebra") as episode:
        hits = episode.search(mode="lexical")
        assert [hit.text for hit in hits] == ["zebra"]
        assert memory.episode_record(episode.id).decisions[0].chosen == (hits[0].id,)
        episode.act("looked")
        episode.reward(1.0)
    assert memory.get(hits[0].id).values.mean == 1.0
    before = state(memory)
    memory.close()
    assert state(opened(tmp_path / "j.mem", "memrl")) == before


@pytest.mark.parametrize("policy", ["memrl", "exprag"])
def test_item_deleted_during_a_search_is_not_shown(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    torn, worn = memory.add("a torn shirt arrived"), memory.add("a worn shirt arrived")

    def delete() -> None:
        memory.delete(torn.id)
        memory.search("a worn shirt arrived")

    def deleting(query: str, texts: Sequence[str]) -> list[float]:
        other = threading.Thread(target=delete)
        other.start()
        other.join()
        return [1.0] * len(texts)

    memory.search("a worn shirt arrived", mode="hybrid", reranker=deleting)
    assert [hit.id for hit in memory.search("a worn shirt arrived")] == [worn.id]


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_worth_of_a_shared_item_hides_rewards_of_other_scopes(policy: str, tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", policy)
    item = memory.add("the torn shirt is refunded", user_id="team")
    ana, bo = (memory.within(user_id=name, shared={"team": False}) for name in ("ana", "bo"))
    for _ in range(3):
        bo.reward(bo.search("a torn shirt").decision, 1.0)
    assert bo.worth(item.id, "a torn shirt").seen == pytest.approx(3.0)
    assert ana.worth(item.id, "a torn shirt").seen == 0.0


@pytest.mark.parametrize("policy", POLICIES)
def test_individually_rewarded_choice_is_learned_once(policy: str, tmp_path: Path) -> None:
    learned: list[Use] = []
    memory = opened(tmp_path / "j.mem", note_uses(policy, learned))
    with memory.episode("a torn shirt arrived") as episode:
        decision = episode.search(actions=ACTIONS).decision
        episode.act("refund")
        episode.step_reward(0.0)
        assert memory.reward(decision, 1.0).applied
        before = memory.snapshot()
        for _ in range(5):  # a client that tries again
            assert not memory.reward(decision, 1.0).applied
        assert (memory.snapshot(), len(memory)) == (before, 0)
        episode.reward(1.0)
    assert len(memory) == 1
    assert [use.reward for use in learned] == [1.0]
    assert memory.reward(decision, 0.25, by="ana").applied  # another judgement
    assert [use.reward for use in learned] == [1.0, 0.25]
    assert len(memory) == 1
    after = state(memory)
    memory.close()
    assert state(opened(tmp_path / "j.mem", policy)) == after


def test_ledger_call_leaves_learned_state_unchanged(tmp_path: Path) -> None:
    with opened(tmp_path / "j.mem", "kernel-mean") as memory:
        memory.add("a torn shirt is refunded")
        with memory.episode("a torn shirt arrived") as episode:
            episode.search(actions=("refund", "replace"))
            episode.act("refund")
            episode.search(
                "and now", actions=("refund", "wait")
            )  # nothing was done after it, so that it teaches nothing
            episode.reward(1.0)
    with opened(tmp_path / "j.mem", "kernel-mean") as memory:
        actions = memory.learning.experience.pool.actions
        offered = [bool(actions.listed(np.array([actions.number(name)]))[0]) for name in ("refund", "wait")]
        assert offered == [True, False]
        assert memory.ledger().rewarded == 1
        assert not actions.listed(np.array([actions.number("wait")]))[0]


def test_individually_rewarded_choices_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experience, "ALONE", 2)
    with opened(tmp_path / "j.mem", "memrl") as memory:
        memory.add("a torn shirt is refunded")
        episode = memory.episode("a torn shirt arrived")
        decisions = [episode.search().decision for _ in range(4)]
        for decision in decisions:
            memory.reward(decision, 1.0)
        assert not memory.reward(decisions[3], 1.0).applied
        assert list(memory.learning.experience.alone) == decisions[2:]
        assert memory.learning.experience.learned == 4
        episode.reward(0.0)
        assert memory.learning.experience.learned == 6, "those that are kept are not learned from again"
    with opened(tmp_path / "j.mem", "memrl") as memory:
        assert memory.learning.experience.learned == 6


def test_reward_closes_an_episode_and_rollback_reopens_it(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem", "memrl")
    episode = begun(memory, "a torn shirt arrived")
    with opened(tmp_path / "j.mem", "memrl") as other:
        other.reward(episode.id, 1.0)
    for verb in (lambda: episode.search(), lambda: episode.act("refund"), lambda: episode.step_reward(0.0)):
        with pytest.raises(ClosedEpisode):
            verb()
    memory.search("a shirt", episode=episode.id)
    assert memory.pending() == []
    memory.rollback(episode.id)
    episode.search(actions=ACTIONS)
    episode.act("refund")
    assert memory.pending() == [episode.id]


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_episode_with_an_erased_reward_is_not_pending(policy: str, path: Path) -> None:
    with opened(path, policy) as memory:
        zebra = memory.add("the zebra has stripes")
        episode = memory.episode("feed the animals")
        assert [hit.id for hit in episode.search("zebra stripes", top_k=1)] == [zebra.id]
        episode.act("feed")
        episode.reward(1.0)
        memory.forget(zebra.id, purge_history=True)
        assert memory.pending() == []
        if policy == "memrl":
            with pytest.raises(ClosedEpisode, match="erased"):
                memory.reward(episode.id, 0.0)


def notes(finished: Finished) -> list[Advice]:
    """What was done, as advice."""
    return [Advice(use.query.text, f"{use.query.text}: {use.taken}", do=(use.taken,)) for use in finished.choices]


def test_default_policy_with_a_writer_survives_reopening(tmp_path: Path) -> None:
    def writing(path: Path) -> Memory:
        return opened(path, replace(default(withhold=0.0), name="mine", writer=notes))

    def known(memory: Memory) -> tuple[object, ...]:
        experience = memory.learning.experience
        worth = [memory.worth(item.id, "a torn shirt arrived") for item in memory.get_all()]
        return (
            worth,
            experience.learned,
            experience.time,
            memory.episode(explore=False).search("a torn shirt arrived", mode="dense"),
        )

    memory = writing(tmp_path / "j.mem")
    told = memory.add("a torn shirt is refunded")
    for number in range(4):
        play(memory, "a torn shirt arrived", ACTIONS[number % 2], float(number % 2 == 0))
    written = [item for item in memory.get_all() if item.id != told.id]
    assert [item.metadata["do"] for item in written] == [["refund"], ["replace"]] * 2
    assert len(memory.store.vectors_for(written)) == 4
    assert memory.worth(told.id, "a torn shirt arrived").seen == 4.0
    before = known(memory)
    memory.close()
    assert known(writing(tmp_path / "j.mem")) == before


# For whom an episode is and on whose word its reward stands: on file, and undone by name.


MALLORY = "mallory \u0645\u0647\u200c\u0631\u06cc"
"""With a joiner of Persian letters."""


def record(memory: Memory, id: str) -> log.Record:
    with memory.store.database.reading() as connection:
        return log.record(connection, id)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_rewarders_survive_opening_again_and_can_be_undone_by_name(path: Path, policy: str) -> None:
    memory = opened(path, policy)
    shirts(memory, 4)
    before = state(memory)
    bad = play(memory, "a torn shirt arrived late", "escalate", 1.0, by="bob", judge=MALLORY)
    worse = play(memory, "a torn shirt arrived late", "escalate", 1.0, by=MALLORY)
    now = state(memory)
    memory.close()
    memory = opened(path, policy)
    assert state(memory) == now
    assert record(memory, bad).rewards == ((1.0, MALLORY),)
    assert record(memory, bad).person == "bob"
    assert {term.scorer for term in memory.episode_record(bad).rewards} == {f"own:{MALLORY}"}
    memory.rollback(rewarder=MALLORY)
    assert state(memory) == before
    assert memory.pending() == [bad, worse]
    assert memory.reward(bad, 0.0, by="").applied
    memory.close()
    assert record(opened(path, policy), bad).rewards == ((0.0, ""),)


def test_rollback_refuses_unknown_and_invalid_rewarders(tmp_path: Path) -> None:
    memory = opened(tmp_path / "j.mem")
    play(memory, "a torn shirt arrived", "refund", 1.0)
    with pytest.raises(InvalidPolicy, match="No reward here has a name"):
        memory.rollback(rewarder=MALLORY)
    for bad in (5, " ", "a\nb", None):
        with pytest.raises(InvalidScope, match=r"^by "):
            memory.episode("a torn shirt", by=bad)  # type: ignore[arg-type]
