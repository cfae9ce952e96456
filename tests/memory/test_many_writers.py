"""Several callers that write one thing at the same time: each reads what it depends on in the transaction that writes."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest

from keepworth.adapters import mem0
from keepworth.memory.errors import KeepworthError, StorageFailed, StorageFull, UnknownItem
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check
from keepworth.records.episode import Operation, OperationKind
from tests.memory.helpers import WordEncoder, at_once, command, largest_file, texts

CITIES = ("Turin", "Lyon", "Oslo", "Bergen", "Porto", "Ghent", "Graz", "Cork") * 2


def opened(path: Path, **options: Any) -> Memory:
    return Memory(path, encoder=WordEncoder(32), **options)


def test_concurrent_puts_under_a_name_leave_one_item(path: Path) -> None:
    with opened(path) as memory:
        puts = [lambda n=n: memory.put(f"value {n}", name={"key": "diet"}, user_id="ana") for n in range(24)]
        done = at_once(puts)
        assert all(item.metadata["key"] == "diet" for item in done)
        (there,) = memory.get_all(user_id="ana")
        assert there.id == max(done, key=lambda item: int(item.id[1:])).id
        assert there.metadata["created"] == memory.get("m1").written_at
        assert check(memory.store) == []


def test_put_replaces_the_named_item_of_its_scope_only(path: Path) -> None:
    with opened(path) as memory:
        for user in ("ana", "bo"):
            memory.put("eats fish", name={"key": "di%et_"}, user_id=user)
        memory.put("eats all", name={"key": "diet_x"}, user_id="ana")
        assert memory.put("eats fish", name={"key": "di%et_"}, user_id="ana", metadata={"n": 1}).metadata["n"] == 1
        memory.put("eats bread", name={"key": "di%et_"}, user_id="ana")
        assert sorted(texts(memory, user_id="ana")) == ["eats all", "eats bread"]
        assert memory.put(None, name={"key": "di%et_"}, user_id="ana") is None
        assert memory.put(None, name={"key": "di%et_"}, user_id="ana") is None, "to delete nothing is no error"
        assert texts(memory, user_id="ana") == ["eats all"]
        assert texts(memory, user_id="bo") == ["eats fish"]


def test_concurrent_contradicting_facts_leave_one_open(path: Path) -> None:
    with opened(path, writer="rules") as memory:
        done = at_once(
            [lambda city=city: memory.add(f"I live in {city}.", infer=True, user_id="ana") for city in CITIES]
        )
        assert not [one for one in done if isinstance(one, Exception)]
        assert len([text for text in texts(memory, user_id="ana") if "live" in text.lower()]) == 1


@pytest.mark.parametrize("room", [6_400_000, 9_600_000])
def test_kept_error_of_a_failed_write_blocks_no_writer(path: Path, room: int) -> None:
    draw, words = random.Random(0), [f"w{number}" for number in range(5000)]
    long = [
        " ".join(draw.choices(words, k=900)) for _ in range(1200)
    ]  # more than fits in memory before the transaction ends
    with Memory(path, encoder=None, writer=None) as one, Memory(path, encoder=None, writer=None) as other:
        one.add("first")
        with largest_file(room), pytest.raises((StorageFailed, StorageFull)) as refused:
            one.add_many(long)
        other.add("second")
        one.add("third")
        assert "nothing was written" in str(refused.value), "the error, and all that its frames hold, lived until here"
        assert texts(one) == texts(other) == ["first", "second", "third"]
        assert check(one.store) == []


def _lives(path: str, city: str, barrier: Any) -> None:
    with Memory(path, encoder=None, writer="rules") as memory:
        barrier.wait()
        memory.add(f"I live in {city}.", infer=True, user_id="ana")


def test_contradicting_facts_of_several_processes_leave_one_open(path: Path) -> None:
    with Memory(path, encoder=None) as memory:
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(4)
        children = [context.Process(target=_lives, args=(str(path), city, barrier)) for city in CITIES[:4]]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 4
        assert len(texts(memory, user_id="ana")) == 1


def test_concurrent_metadata_merges_are_all_kept(path: Path) -> None:
    with opened(path) as memory, mem0.Memory(memory) as store:
        id = memory.add("one note", user_id="ana").id
        done = at_once([lambda n=n: store.update(id, metadata={f"from {n}": n}) for n in range(16)])
        assert not [one for one in done if isinstance(one, Exception)]
        assert memory.get(id).metadata == {f"from {n}": n for n in range(16)}


def test_concurrent_deletes_succeed_once(path: Path) -> None:
    with opened(path) as memory:
        ids = [memory.add(f"note {n}").id for n in range(3)]
        for verb in (memory.delete, memory.forget):
            id = ids.pop()
            done = at_once([lambda verb=verb, id=id: verb(id)] * 8)
            assert len([one for one in done if one is None]) == 1
            assert all(one is None or isinstance(one, UnknownItem) for one in done)


def test_delete_all_is_atomic_beside_concurrent_adds(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many([f"note {n}" for n in range(50)], user_id="ana")
        adds = [lambda n=n: memory.add(f"later {n}", user_id="ana") for n in range(6)]
        *added, first, second = at_once([*adds, *[lambda: memory.delete_all(user_id="ana")] * 2])
        gone = first + second
        assert gone + len(memory.get_all(user_id="ana")) == 50 + len(added), "each is deleted once"


def test_concurrent_equal_rewards_count_once(path: Path) -> None:
    with opened(path) as memory:
        memory.add("eats fish")
        for reward in (1.0, 0.0):
            decision = memory.search("fish", top_k=1).decision
            done = at_once([lambda decision=decision, reward=reward: memory.reward(decision, reward, by="ana")] * 12)
            assert sum(outcome.applied for outcome in done) == 1
        assert memory.get("m1").values.credited == 2
        with memory.episode() as episode:
            episode.search("fish")
        done = at_once([lambda: memory.reward(episode.id, 1.0)] * 12)
        assert sum(outcome.applied for outcome in done) == 1


def test_concurrent_updates_to_one_text_refuse_one(path: Path) -> None:
    with opened(path) as memory:
        ids = [memory.add(text).id for text in ("likes tea", "likes milk")]
        done = at_once([lambda id=id: memory.update(id, "likes rum") for id in ids])
        assert len([one for one in done if isinstance(one, KeepworthError)]) == 1
        assert len(set(texts(memory))) == 2


def test_concurrent_merges_leave_one_item(path: Path) -> None:
    with opened(path) as memory:
        a, b = memory.add("likes tea"), memory.add("drinks tea")
        merge = Operation(OperationKind.MERGE, (a.id, b.id), "tea it is")
        done = at_once([lambda: memory.apply(merge)] * 6)
        assert sum(outcome.applied for outcome in done) == 1
        assert texts(memory) == ["tea it is"]


def test_the_command_puts_one_text_under_a_name(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    Memory(path, encoder=None).close()
    for text in ("eats fish", "eats no meat"):
        assert command("put", "diet", text, "--user", "ana", "--encoder", "none", "--file", path).exit_code == 0
    with Memory(path, encoder=None) as memory:
        assert texts(memory, user_id="ana") == ["eats no meat"]
    assert command("put", "diet", "--user", "ana", "--encoder", "none", "--file", path).exit_code == 0
    with Memory(path, encoder=None) as memory:
        assert texts(memory, user_id="ana") == []
