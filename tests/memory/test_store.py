"""The store against brute-force models: replay, undo, snapshots, the past, erasing."""

from __future__ import annotations

from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.episodes import Operation, OperationKind
from keepworth.memory.item import EVERYWHERE, Item, content_digest
from keepworth.memory.memory import Memory
from keepworth.memory.overlay import Bank
from keepworth.memory.search.terms import terms
from keepworth.memory.store.connection import scalar
from keepworth.memory.store.undo import active_ranges, ranges_of, replay, rollbacks_in, within

from .stub_encoder import WordEncoder

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
    total, current, _ = m.store.sums(EVERYWHERE)
    assert total % (1 << 256) == sum(map(content_digest, items.values())) % (1 << 256)
    assert current == sum(item.current for item in items.values())
    with m.store.database.reading() as connection:
        found = {n for (n,) in connection.execute("SELECT rowid FROM words")}
        through = scalar(connection, "SELECT through FROM indexed")
        tail = m.store.derived.corpus(connection)
        said = connection.execute("SELECT seq, n, changed, before FROM changes").fetchall()
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
writes = st.one_of(
    st.tuples(st.just("add"), sentences, users, st.integers(0, 2)),
    st.tuples(
        st.just("act"),
        st.builds(
            Operation,
            st.sampled_from([K.UPDATE, K.SUPERSEDE, K.DELETE, K.MERGE, K.LINK]),
            st.lists(ids, min_size=1, max_size=2).map(tuple),
            sentences,
        ),
        users,
        st.integers(0, 2),
    ),
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
        m.add(first, user_id=second, episode=episodes[third].id if third < 2 else "")
    elif verb == "act":
        m.apply(first, user_id=second, episode=episodes[third].id if third < 2 else "")
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
def test_replay_is_the_view_whatever_happened(behind, sequence):
    m = memory()
    episodes = [m.episode(user_id=user) for user in ("ana", "bo", "")]
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
    episodes = [m.episode(user_id=user) for user in ("ana", "bo", "")]
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
    assert {h.id for h in fork.search(query, 30, mode="lexical")} == {
        h.id for h in twin.search(query, 30, mode="lexical")
    }
    fork.add("entirely new words")
    assert fork.search("entirely new words", 1)[0].text == "entirely new words"
    assert bank.content_hash() == fingerprint


def test_ranges():
    assert ranges_of([5, 1, 2, 3, 9, 8]) == ((1, 3), (5, 5), (8, 9))
    # 10 cancels 1-3; 11 cancels 10; 12 cancels 11: so 10 counts.
    assert active_ranges([(10, ((1, 3),)), (11, ((10, 10),))]) == ((10, 10),)
    assert within(2, active_ranges([(10, ((1, 3),)), (11, ((10, 10),)), (12, ((11, 11),))]))


def test_rollback_lists_what_no_longer_applies_and_undo_brings_it_back():
    m = memory()
    with m.episode(user_id="ana") as episode:
        first = episode.remember("Ana lives in Rome")
    second = m.supersede(first.id, "Ana lives in Oslo")
    result = m.rollback(episode.id)
    assert set(result.changed) == {first.id, second.id}
    assert [reason for _, reason in result.no_ops] == [f"unknown target '{first.id}'"]
    assert m.get_all() == []
    m.rollback(result.id)
    assert [item.text for item in m.get_all()] == ["Ana lives in Oslo"]


def test_rollback_by_source_and_of_values():
    m = memory()
    item = m.add("cats purr", source="web")
    m.add("dogs bark", source="user")
    hits = m.search("cats purr", top_k=1)
    m.reward(hits.decision, 1.0)
    with m.episode() as episode:
        episode.search("cats purr", top_k=1)
        episode.reward(0.0)
    m.reward(episode.id, 0.5, source="late")
    assert m.get(item.id).values.credited == 3
    m.rollback(episode.id)
    assert m.get(item.id).values.mean == 1.0
    m.rollback(source="web")
    assert [i.text for i in m.get_all()] == ["dogs bark"]
