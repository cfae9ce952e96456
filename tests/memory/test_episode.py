"""What is done in the name of an episode that there is none of is refused, by every verb, and nothing is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from keepworth.memory.episode import unwritten_episode, write_episode
from keepworth.memory.errors import UnknownEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.store.decision_log import Logged
from keepworth.memory.store.maintenance import statistics
from keepworth.records.episode import Decision, DecisionKind, Operation, OperationKind

VERBS: list[Callable[[Memory, str], object]] = [
    lambda m, id: m.add("a dog", episode=id),
    lambda m, id: m.add_many(["a dog"], episode=id),
    lambda m, id: m.apply(Operation(OperationKind.ADD, text="a dog"), episode=id),
    lambda m, id: m.update("m1", "a grey cat", episode=id),
    lambda m, id: m.supersede("m1", "a dog", episode=id),
    lambda m, id: m.delete("m1", episode=id),
    lambda m, id: m.search("cat", episode=id),
    lambda m, id: m.commit(m.bank(), episode=id),
]
WRONG = ["typo", "e", "m1", "' OR 1=1 --", "e" * 10_000, "\x00", "\ud800", 7, b"e1", ("e1",)]


@pytest.mark.parametrize("verb", range(len(VERBS)))
@pytest.mark.parametrize("id", WRONG, ids=lambda id: repr(id)[:12])
def test_an_episode_that_does_not_exist_is_refused(verb: int, id: str, m: Memory):
    m.add("a cat")
    before = m.snapshot(), len(m)
    with pytest.raises(UnknownEpisode, match="no episode"):
        VERBS[verb](m, id)
    assert (m.snapshot(), len(m)) == before
    assert statistics(m.store).decisions == 0


def test_ended_episode_accepts_late_writes_from_another_process(path: Path):
    with Memory(path, encoder=None) as m, m.episode() as ep:
        ep.remember("a cat")
    with Memory(path, encoder=None) as m:
        m.add("a dog", episode=ep.id)
        m.search("dog", episode=ep.id)
        assert len(m.episode_record(ep.id).operations) == 2
        assert sorted(m.rollback(ep.id).changed) == ["m1", "m2"]
        assert len(m) == 0


def test_reward_finds_a_search_while_it_is_being_logged(m: Memory, monkeypatch) -> None:
    """The thread that logs searches had taken it off the list and not committed it yet."""
    m.add("a cat")
    log, begun, go_on = m._decisions, threading.Event(), threading.Event()
    write = log.write

    def slow(*arguments: Any) -> None:
        begun.set()
        go_on.wait(60)
        write(*arguments)

    hits = m.search("cat")
    monkeypatch.setattr(log, "write", slow)
    beside = threading.Thread(target=log.flush)
    beside.start()
    assert begun.wait(60)
    threading.Timer(0.2, go_on.set).start()
    assert m.reward(hits.decision, 1.0).applied
    beside.join()


def test_unstorable_choice_does_not_block_other_rewards(m: Memory) -> None:
    m.add("a cat")
    sound = [m.search("cat").decision for _ in range(3)]
    decision = Decision("d0", DecisionKind.SEARCH, "cat", (), (), 1.0, "none", step=10**30)
    m._decisions.later(lambda: Logged("", m.scope, "", decision))
    m._decisions.later(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    sound.append(m.search("cat").decision)
    m._decisions.flush()
    assert all(m.reward(id, 1.0).applied for id in sound)
    with pytest.raises(UnknownEpisode, match="logged"):
        m.reward("d0", 1.0)


def search_with_rewards(path: Path, *, at_once: bool) -> tuple[list[tuple[list[str], float, str]], list[int]]:
    """What ten searches of a seeded memory show, with which probability, each in an episode that is rewarded afterwards."""
    shown, numbers = [], []
    with Memory(path, encoder="hashing", seed=3) as m:
        m.add_many([f"The {animal} sleeps in the barn." for animal in ("cat", "dog", "cow", "goat", "hen", "pig")])
        for turn in range(10):
            live = (m.episode if at_once else partial(unwritten_episode, m))("Who sleeps in the barn?")
            hits = live.search(top_k=2)
            second = live.search("Where does the dog sleep?", top_k=2) if turn % 3 == 0 else hits
            live.reward(float(turn % 2))
            shown.append(([*(hit.id for hit in hits), *(hit.id for hit in second)], hits.propensity, hits.text))
            numbers.append(live.number)
    return shown, numbers


def test_episode_written_with_its_search_is_as_one_written_before(tmp_path: Path) -> None:
    before, after = (search_with_rewards(tmp_path / f"{name}.mem", at_once=name) for name in (True, False))
    assert before == after
    assert after[1] == list(range(10))


def test_episode_and_its_search_are_on_file_together(path: Path) -> None:
    with Memory(path, encoder="hashing") as m, Memory(path, encoder="hashing") as other:
        m.add("a cat")
        live = unwritten_episode(m, "cat")
        hits = live.search()
        assert other.episodes() == []
        write_episode(live)
        assert other.episodes() == [live.id]
        assert [decision.id for decision in other.episode_record(live.id).decisions] == [hits.decision]
        write_episode(live)
        assert other.episodes() == [live.id]


WAYS: list[Callable[[Any], object]] = [
    lambda live: live.act("said so"),
    lambda live: live.remember("a dog"),
    lambda live: live.apply(Operation(OperationKind.ADD, text="a dog")),
    lambda live: live.reward(1.0),
    lambda live: live.signal("check-passed"),
    lambda live: live.end("completed"),
    lambda live: live.record(),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_use_after_a_search_puts_its_episode_on_file(way: int, path: Path) -> None:
    with Memory(path, encoder="hashing") as m, Memory(path, encoder="hashing") as other:
        m.add("a cat")
        live = unwritten_episode(m, "cat")
        live.search()
        WAYS[way](live)
        assert len(other.episode_record(live.id).decisions) == 1


def test_episode_is_not_written_where_something_was_erased_since_its_search(path: Path) -> None:
    with Memory(path, encoder="hashing") as m:
        m.add("Ana has a cat.", user_id="ana")
        head = m.store.head()
        live = unwritten_episode(m, "Ana's cat", user_id="ana")
        live.search()
        m.erase(user_id="ana")
        assert not write_episode(live, since=head)
        assert m.episodes() == []
        assert write_episode(live, since=m.store.head())
        (decision,) = live.record().decisions
        assert decision.query == "", "it may quote what was erased"
