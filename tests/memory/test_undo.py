"""Rollback is replay without the rolled-back entries, whatever other rollbacks there were before it."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check


def texts(m: Memory) -> list[str]:
    return [item.text for item in m.get_all()]


def test_what_became_an_item_by_a_rollback_goes_with_its_own_episode():
    m = Memory(encoder=None)
    with m.episode() as one:
        one.remember("a cat")
    with m.episode() as other:
        other.remember("a cat")  # a duplicate, as long as the first is there
    m.rollback(one.id)
    assert texts(m) == ["a cat"]
    m.rollback(other.id)
    assert texts(m) == []
    assert check(m.store) == []


def test_a_successor_comes_back_when_the_item_that_said_it_already_goes():
    m = Memory(encoder=None)
    old = m.add("lives in Oslo")
    with m.episode() as one:
        one.remember("lives in Rome")
    undone = m.rollback(one.id)
    m.supersede(old.id, "lives in Rome")
    m.rollback(undone.id)
    assert texts(m) == ["lives in Rome"]
    m.rollback(one.id)
    assert texts(m) == ["lives in Rome"]
    assert check(m.store) == []


def test_an_item_that_a_rollback_made_is_not_taken_with_an_episode_that_only_showed_it():
    m = Memory(encoder=None)
    a, b = m.add("likes tea"), m.add("drinks tea")
    with m.episode() as one:
        said = one.remember("tea it is")
    merged = m.apply(Operation(OperationKind.MERGE, (a.id, b.id), "tea it is"))
    assert merged.item == said.id
    m.rollback(one.id)
    assert texts(m) == ["tea it is"]
    with m.episode() as other:
        assert other.search("tea")
        other.reward(1.0)
    m.rollback(other.id)
    assert texts(m) == ["tea it is"]
    assert check(m.store) == []


def test_a_successor_that_an_undo_of_an_undo_made_goes_with_what_it_replaces():
    m = Memory(encoder=None)
    with m.episode() as one:
        said = one.remember("lives in Oslo")
    undone = m.rollback(one.id)
    m.apply(Operation(OperationKind.SUPERSEDE, (said.id,), "lives in Rome"))  # of what is not there
    m.rollback(undone.id)
    assert texts(m) == ["lives in Rome"]
    m.rollback(one.id)
    assert texts(m) == []
    assert check(m.store) == []


def test_what_was_said_again_meanwhile_is_a_duplicate_of_what_comes_back():
    m = Memory(encoder=None)
    with m.episode() as one:
        said = one.remember("likes tea", repeat=True)  # so that nobody asked whether it was there
    undone = m.rollback(one.id)
    m.add("likes tea")
    m.rollback(undone.id)
    assert [item.id for item in m.get_all()] == [said.id]
    assert check(m.store) == []


def test_what_was_asked_of_a_persons_item_while_it_was_away_is_done_when_it_comes_back():
    with Memory(encoder=None) as m:
        tea = m.add("tea", user_id="ana")
        with m.episode(user_id="ana") as episode:
            coffee = episode.remember("coffee")
        latte = m.supersede(coffee.id, "latte")  # by a handle that is nobody's: the item is Ana's still
        undone = m.rollback(episode.id)
        merge = Operation(OperationKind.MERGE, (latte.id, tea.id), "tea or latte")
        assert not m.apply(merge, user_id="ana").applied
        m.rollback(undone.id)
        assert texts(m) == ["tea or latte"]
        assert check(m.store) == []


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_done_and_undone_the_journal_leads_to_the_view(seed: int):
    draw = random.Random(seed)
    m = Memory(encoder=None)
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
    assert check(m.store) == []
