"""The store against brute-force models: replay, undo, snapshots, the past, erasing."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import ALL, EVERYWHERE, Item, Status, ValueStatistics, content_digest
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Assignment, Credit, Draft
from keepworth.memory.overlay import Bank
from keepworth.memory.search.terms import terms
from keepworth.memory.store.undo import active_ranges, ranges_of, replay, rollbacks_in, within
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import WordEncoder, rows, texts

K = OperationKind
WORDS = ["ana", "rome", "oslo", "cat", "dog", "red"]


def ticking():
    ticks = count()
    return lambda: f"2026-01-01T00:{next(ticks) // 60 % 60:02d}:00"


def memory(path: object = ":memory:", **options: object) -> Memory:
    return Memory(path, encoder=WordEncoder(16), clock=ticking(), **options)


def view(m: Memory) -> dict[str, Item]:
    return {item.id: item for item in m.store.items(EVERYWHERE)}


def effective(m: Memory):
    with m.store.database.reading() as connection:
        cancelled = active_ranges(rollbacks_in(connection))
    return [entry for entry in m.store.entries() if not within(entry.seq, cancelled)]


def assert_sound(m: Memory) -> None:
    """Journal replay gives the view; sums and full-text rows are what the items say."""
    items = view(m)
    assert replay(effective(m))[0].items == items
    total, current = m.store.sums(EVERYWHERE)
    assert total % (1 << 256) == sum(map(content_digest, items.values())) % (1 << 256)
    assert current == sum(item.current for item in items.values())
    found = {n for (n,) in rows(m, "SELECT rowid FROM words")}
    ((through,),) = rows(m, "SELECT through FROM indexed")
    said = rows(m, "SELECT seq, n, changed, before FROM changes")
    with m.store.database.reading() as connection:
        tail = m.store.derived.corpus(connection)
    assert found == {n for n in map(number, items.values()) if n <= through and items[f"m{n}"].current}
    newest = [item for item in items.values() if item.current and number(item) > through]
    asked = {term for item in newest for term in terms(item.text)}
    held = {n: text for n, (_, text, words) in tail.tail.items() if words & asked}
    assert held == {number(item): item.text for item in newest}
    assert len({(seq, n) for seq, n, _, _ in said}) == len(said)


def number(item: Item) -> int:
    return int(item.id[1:])


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
ids = st.integers(1, 14).map("m{}".format)
users = st.sampled_from(["", "ana", "bo"])
CHANGES = st.sampled_from([K.UPDATE, K.SUPERSEDE, K.DELETE, K.MERGE, K.LINK])
ONE_OR_TWO = st.lists(ids, min_size=1, max_size=2).map(tuple)
writes = st.one_of(
    st.tuples(st.just("add"), sentences, users, st.integers(0, 2)),
    st.tuples(st.just("act"), st.builds(Operation, CHANGES, ONE_OR_TWO, sentences), users, st.integers(0, 2)),
)
steps = writes | st.one_of(
    st.tuples(st.just("reward"), st.floats(0, 1), st.integers(0, 2), st.lists(ids, max_size=3)),
    st.tuples(st.just("rollback"), st.integers(0, 2), st.none(), st.none()),
    st.tuples(st.just("undo"), st.integers(0, 5), st.none(), st.none()),
    st.tuples(st.just("restore"), st.integers(0, 30), st.none(), st.none()),
)


def carry_out(m: Memory, episodes: list, undone: list, step: tuple) -> None:
    verb, first, second, third = step
    if verb == "add":
        m.add(first, user_id=second or ALL, episode=episodes[third].id if third < 2 else "")
    elif verb == "act":
        m.apply(first, user_id=second or ALL, episode=episodes[third].id if third < 2 else "")
    elif verb == "reward":
        episodes[second].search(" ".join(third) or "cat", top_k=2)
        m.reward(episodes[second].id, first)
    elif verb == "rollback":
        undone.append(m.rollback(episodes[first].id).id)
    elif verb == "undo" and undone:
        undone.append(m.rollback(undone[first % len(undone)]).id)
    elif verb == "restore":
        undone.append(m.rollback(since=f"s{min(first, m.store.head())}").id)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=22))
def test_replay_equals_the_view_after_any_history(behind, sequence):
    m = memory()
    episodes = [m.episode(user_id=user or ALL) for user in ("ana", "bo", "")]
    undone: list[str] = []
    saved: dict[str, dict[str, Item]] = {}
    for step in sequence:
        saved[m.snapshot()] = view(m)
        carry_out(m, episodes, undone, step)
        assert_sound(m)
    for snapshot, items in saved.items():
        base = m.store.base(EVERYWHERE, snapshot)
        assert {item.id: item for item in base.items()} == items
        total = sum(map(content_digest, items.values())) % (1 << 256)
        assert base.sums() == (total, sum(item.current for item in items.values()))
    for snapshot, items in list(saved.items())[::5]:
        before = view(m)
        back = m.rollback(since=snapshot)
        assert view(m) == items
        m.rollback(back.id)
        assert view(m) == before
        assert_sound(m)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(writes, min_size=1, max_size=12), st.lists(steps, max_size=12), sentences)
def test_a_bank_at_a_snapshot_never_moves(behind, early, late, query):
    m = memory()
    episodes = [m.episode(user_id=user or ALL) for user in ("ana", "bo", "")]
    for step in early:
        carry_out(m, episodes, [], step)
    bank = m.bank()
    twin = Bank.empty(WordEncoder(16), clock=ticking())
    for item in bank.items(all_states=True):
        twin._overlay.put(item)
    expected = {h.id: h.dense for h in twin.search(query, 30, mode="dense")}
    fingerprint = bank.content_hash()
    assert fingerprint == twin.content_hash()
    for step in late:
        carry_out(m, episodes, [], step)
    fork = bank.fork()
    assert fork.content_hash() == fingerprint
    assert {item.id for item in fork.items()} == {item.id for item in twin.items()}
    found = {h.id: h.dense for h in fork.search(query, 30, mode="dense")}
    assert found.keys() == expected.keys()
    assert all(abs(found[id] - expected[id]) < 1e-5 for id in found)
    one, other = ({h.id for h in bank.search(query, 30, mode="lexical")} for bank in (fork, twin))
    assert one == other
    fork.add("entirely new words")
    assert fork.search("entirely new words", 1)[0].text == "entirely new words"
    assert bank.content_hash() == fingerprint


def test_ranges_are_joined_and_searched():
    assert ranges_of([5, 1, 2, 3, 9, 8]) == ((1, 3), (5, 5), (8, 9))
    # 10 cancels 1-3; 11 cancels 10; 12 cancels 11: so 10 counts.
    assert active_ranges([(10, ((1, 3),)), (11, ((10, 10),))]) == ((10, 10),)
    assert within(2, active_ranges([(10, ((1, 3),)), (11, ((10, 10),)), (12, ((11, 11),))]))


def test_rollback_lists_no_ops_and_can_be_undone():
    m = memory()
    with m.episode(user_id="ana") as episode:
        first = episode.remember("Ana lives in Rome")
    second = m.supersede(first.id, "Ana lives in Oslo")
    result = m.rollback(episode.id)
    assert set(result.changed) == {first.id, second.id}
    assert [reason for _, reason in result.no_ops] == [f"unknown target '{first.id}'"]
    assert texts(m) == []
    m.rollback(result.id)
    assert texts(m) == ["Ana lives in Oslo"]


def test_rollback_by_source_and_of_values():
    m = memory()
    item = m.add("cats purr", source="web")
    m.add("dogs bark", source="user")
    m.reward(m.search("cats purr", top_k=1).decision, 1.0)
    with m.episode() as episode:
        episode.search("cats purr", top_k=1)
        episode.reward(0.0)
    m.reward(episode.id, 0.5, source="late")
    assert m.get(item.id).values.credited == 3
    m.rollback(episode.id)
    assert m.get(item.id).values.mean == 1.0
    m.rollback(source="web")

    assert texts(m) == ["dogs bark"]


# Rollback is replay without the rolled-back entries, whatever other rollbacks there were before it.


def test_duplicate_revived_by_a_rollback_belongs_to_its_episode(m: Memory):
    with m.episode() as one:
        one.remember("a cat")
    with m.episode() as other:
        other.remember("a cat")  # a duplicate, as long as the first is there
    m.rollback(one.id)
    assert texts(m) == ["a cat"]
    m.rollback(other.id)
    assert texts(m) == []


def test_successor_is_revived_when_its_duplicate_is_rolled_back(m: Memory):
    old = m.add("lives in Oslo")
    with m.episode() as one:
        one.remember("lives in Rome")
    undone = m.rollback(one.id)
    m.supersede(old.id, "lives in Rome")
    m.rollback(undone.id)
    assert texts(m) == ["lives in Rome"]
    m.rollback(one.id)
    assert texts(m) == ["lives in Rome"]


def test_item_made_by_a_rollback_survives_the_undo_of_an_episode_that_showed_it(m: Memory):
    a, b = m.add("likes tea"), m.add("drinks tea")
    with m.episode() as one:
        said = one.remember("tea it is")
    assert m.apply(Operation(OperationKind.MERGE, (a.id, b.id), "tea it is")).item == said.id
    m.rollback(one.id)
    assert texts(m) == ["tea it is"]
    with m.episode() as other:
        assert other.search("tea")
        other.reward(1.0)
    m.rollback(other.id)
    assert texts(m) == ["tea it is"]


def test_successor_made_by_a_double_undo_is_removed_with_its_target(m: Memory):
    with m.episode() as one:
        said = one.remember("lives in Oslo")
    undone = m.rollback(one.id)
    m.apply(Operation(OperationKind.SUPERSEDE, (said.id,), "lives in Rome"))  # of what is not there
    m.rollback(undone.id)
    assert texts(m) == ["lives in Rome"]
    m.rollback(one.id)
    assert texts(m) == []


def test_text_added_meanwhile_is_a_duplicate_of_the_revived_item(m: Memory):
    with m.episode() as one:
        said = one.remember("likes tea", repeat=True)  # so that nobody asked whether it was there
    undone = m.rollback(one.id)
    m.add("likes tea")
    m.rollback(undone.id)
    assert [item.id for item in m.get_all()] == [said.id]


def test_operation_on_a_rolled_back_item_applies_when_it_is_revived(m: Memory):
    tea = m.add("tea", user_id="ana")
    with m.episode(user_id="ana") as episode:
        coffee = episode.remember("coffee")
    latte = m.supersede(coffee.id, "latte")  # by a handle that is nobody's: the item is Ana's still
    undone = m.rollback(episode.id)
    merge = Operation(OperationKind.MERGE, (latte.id, tea.id), "tea or latte")
    assert not m.apply(merge, user_id="ana").applied
    m.rollback(undone.id)
    assert texts(m) == ["tea or latte"]


@pytest.mark.parametrize("seed", range(40))
def test_journal_replays_to_the_view_after_any_undo(seed: int, m: Memory):
    draw = random.Random(seed)
    undoable: list[str] = []
    for _ in range(60):
        items = [item.id for item in m.get_all()] or ["m1"]
        one, other = draw.choice(items), draw.choice(items)
        text = f"text {draw.randrange(2 + seed % 4)}"
        with suppress(MemoryProblem):
            verb = draw.randrange(8)
            if verb < 2:
                m.add(text, source=f"s{draw.randrange(3)}", repeat=draw.random() < 0.2)
            elif verb == 2:
                m.apply(Operation(OperationKind.UPDATE, (one,), text))
            elif verb == 3:
                m.apply(Operation(OperationKind.SUPERSEDE, (one,), text))
            elif verb == 4:
                m.apply(Operation(OperationKind.MERGE, (one, other), text))
            elif verb == 5:
                m.apply(Operation(OperationKind.DELETE, (one,)))
            elif verb == 6:
                with m.episode() as episode:
                    episode.search(text)
                    episode.remember(text)
                    episode.reward(draw.random())
                undoable.append(episode.id)
            elif undoable:
                undoable.append(m.rollback(draw.choice(undoable)).id)


# A credit writes the five columns it changes; the row is then the one that a whole rewrite would leave.


def test_credits_alone_and_with_other_changes_end_in_the_same_rows(path: Path) -> None:
    once = ValueStatistics(2, 2, 2.0, 2.0, 0.75)
    with Memory(path, encoder=None, log="off") as memory:
        kept, retired = (memory.add(text).id for text in ("cats purr", "dogs bark"))
        before = memory.store.sums(EVERYWHERE)
        store, draft = memory.store, Draft(scope=EVERYWHERE)
        store.perform(EVERYWHERE, [(Credit(1.0, ((kept, 0.5), (kept, 0.25))), draft)])
        assert memory.store.sums(EVERYWHERE) == before
        retire = Assignment(retired, {"status": "archived"})
        store.perform(EVERYWHERE, [(Credit(0.5, ((retired, 1.0),)), draft), (retire, draft)])
        assert memory.get(kept).values == once
        assert memory.get(retired).values == ValueStatistics(1, 1, 0.5, 0.25, 1.0)
        assert memory.get(retired).status is Status.ARCHIVED
        (hit,) = memory.search("purr bark", mode="lexical")
        assert (hit.id, hit.utility) == (kept, 1.0)
        assert [each.after.values.credited for each in memory.history(kept) if each.after is not None] == [0, 2]
    with Memory(path, encoder=None, log="off") as memory:
        assert memory.get(kept).values == once
        assert memory.add("cats purr").id == kept  # still found by its content
