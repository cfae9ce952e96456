"""Whatever way an item comes to life, search finds it afterwards; and what was refused with an error stays refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from keepworth.base.arrays import Vectors
from keepworth.memory.errors import InvalidText, UnknownItem
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check, compact, reembed
from keepworth.memory.store.transfer import exported, imported
from keepworth.records.episode import Operation, OperationKind
from tests.memory.helpers import WordEncoder, behind_its_back, command, finds, texts

SAID = "Bo cannot eat shellfish"


def opened(path: Path | str = ":memory:") -> Memory:
    return Memory(path, encoder=WordEncoder(32), policy=None, writer=None)


def told_twice(memory: Memory) -> None:
    memory.add(SAID, source="one", metadata={"about": "Bo"})
    memory.add(SAID, source="two", metadata={"about": "Bo"})
    memory.rollback(source="one")


def undone_twice(memory: Memory) -> None:
    told_twice(memory)
    again = memory.rollback(source="two")
    assert texts(memory) == []
    memory.rollback(again.id)


def reworded_back(memory: Memory) -> None:
    memory.add(SAID, source="one", metadata={"about": "Bo"})
    memory.update(memory.get_all()[0].id, "Bo eats everything")
    for _ in reembed(memory.store, WordEncoder(32)):
        pass
    memory.rollback(entry=2)


def moved_and_reworded_back(memory: Memory) -> None:
    with opened() as source:
        source.add(SAID, metadata={"about": "Bo"})
        source.update("m1", "Bo eats everything")
        imported(memory.store, list(exported(source.store)))
    memory.rollback(entry=2)


def successor_of_a_duplicate(memory: Memory) -> None:
    old = memory.add("Bo eats everything", metadata={"about": "Bo"})
    memory.add(SAID, source="one", metadata={"about": "Bo"})
    memory.supersede(old.id, SAID, metadata={"about": "Bo"})
    memory.rollback(source="one")


def merged_into_a_duplicate(memory: Memory) -> None:
    one, other = memory.add("Bo and shellfish"), memory.add("Bo eats")
    memory.add(SAID, source="one")
    memory.apply(Operation(OperationKind.MERGE, (one.id, other.id), SAID))
    memory.rollback(source="one")
    memory.update(texts_of(memory)[SAID], metadata={"about": "Bo"})


def texts_of(memory: Memory) -> dict[str, str]:
    return {item.text: item.id for item in memory.get_all()}


def committed_from_a_bank(memory: Memory) -> None:
    memory.add(SAID, source="one", metadata={"about": "Bo"})
    bank = memory.bank()
    bank.add(SAID, metadata={"about": "Bo"})
    memory.commit(bank)
    memory.apply(Operation(OperationKind.ADD, text=SAID))
    memory.rollback(source="one")
    memory.update(texts_of(memory)[SAID], metadata={"about": "Bo"})


def written_without_an_encoder(memory: Memory) -> None:
    """Another handle, which has no encoder, stored it in quarantine; released, it is to be found."""
    with Memory(memory.path, encoder=None, policy=None, writer=None) as words_only:
        words_only.add(SAID, status="archived", metadata={"about": "Bo"})
    memory.update("m1", status="active")


WAYS: list[Callable[[Memory], None]] = [
    told_twice,
    undone_twice,
    reworded_back,
    moved_and_reworded_back,
    successor_of_a_duplicate,
    merged_into_a_duplicate,
    committed_from_a_bank,
    written_without_an_encoder,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_revived_item_is_found_by_meaning_words_and_filters(way: Callable[[Memory], None], path: Path) -> None:
    with opened(path) as memory:
        finds(memory, SAID)  # the caches follow what comes
        finds(memory, SAID, where={"about": "Bo"})
        way(memory)
        for mode in ("dense", "lexical", "hybrid"):
            assert finds(memory, SAID, mode=mode, top_k=1) == [SAID]
            assert finds(memory, SAID, mode=mode, where={"about": "Bo"}, top_k=1) == [SAID]
        assert memory.search(SAID, mode="dense", top_k=1)[0].score == pytest.approx(1.0, abs=1e-5)
        assert check(memory.store) == []
    with opened(path) as again:
        assert finds(again, SAID, mode="dense", top_k=1) == [SAID]


def test_revived_items_are_encoded_without_blocking_writers(path: Path) -> None:
    said = [f"fact number {n} about topic {n % 7}" for n in range(300)]
    with opened(path) as memory:
        memory.add_many(said, source="one")
        memory.add_many(said, source="two")

    class WritesMeanwhile(WordEncoder):
        written: list[str] = []  # noqa: RUF012

        def encode(self, texts: Sequence[str]) -> Vectors:
            with Memory(path, encoder=None, policy=None, writer=None) as other:  # Busy if the file were locked
                self.written.append(other.add(f"meanwhile {len(self.written)}").id)
            return super().encode(texts)

    with Memory(path, encoder=WritesMeanwhile(32), policy=None, writer=None) as memory:
        memory.rollback(source="one")
        assert WritesMeanwhile.written
        assert finds(memory, said[7], mode="dense", top_k=1) == [said[7]]


def test_missing_vectors_are_reported_and_made(path: Path) -> None:
    with Memory(path, encoder="hashing:32", policy=None, writer=None) as memory:
        memory.add_many([SAID, "Cy plays chess"])
    behind_its_back(path, "DELETE FROM vectors_1 WHERE n = 1")
    told = command("check", "--file", path)
    assert told.exit_code == 2
    assert "1 of the current items" in told.output
    assert "m1" in told.output
    assert "compact" in told.output
    assert command("compact", "--file", path).exit_code == 0
    assert command("check", "--file", path).exit_code == 0
    with Memory(path, encoder="hashing:32", policy=None, writer=None) as memory:
        assert finds(memory, SAID, mode="dense", top_k=1) == [SAID]


def test_open_memory_sees_vectors_made_by_compact(path: Path) -> None:
    with opened(path) as memory:
        memory.add_many([SAID, "Cy plays chess"])
        with Memory(path, encoder=None, policy=None, writer=None) as words_only:
            words_only.add("Di has a boat")
        assert finds(memory, "Di has a boat", mode="dense", top_k=1) != ["Di has a boat"]
        with opened(path) as other:
            compact(other.store)
        assert finds(memory, "Di has a boat", mode="dense", top_k=1) == ["Di has a boat"]


def test_opening_makes_vectors_of_items_revived_without_an_encoder(path: Path) -> None:
    with opened(path) as memory:
        memory.add(SAID, source="one")
        memory.add(SAID, source="two")
        memory.add_many([f"Cy has {number} boats" for number in range(3)])
    with Memory(path, encoder=None, policy=None, writer=None) as words_only:
        words_only.rollback(source="one")
        assert check(words_only.store) != []
    with opened(path) as memory:
        assert check(memory.store) == []
        assert finds(memory, SAID, mode="dense", top_k=1) == [SAID]
        memory.forget(*(item.id for item in memory.get_all()))
    with opened(path) as memory:  # what was looked at once is looked at no more
        assert check(memory.store) == []


def test_rollback_command_makes_vectors_of_revived_items(path: Path) -> None:
    with Memory(path, encoder="hashing:32", policy=None, writer=None) as memory:
        memory.add(SAID, source="one")
        memory.add(SAID, source="two")
    assert command("rollback", "--source", "one", "--file", path).exit_code == 0
    with Memory(path, encoder="hashing:32", policy=None, writer=None) as memory:
        assert finds(memory, SAID, mode="dense") == [SAID]
        assert check(memory.store) == []


def test_commands_make_no_vectors_in_a_file_without_an_encoder(path: Path) -> None:
    with Memory(path, encoder=None, policy=None, writer=None) as memory:
        memory.add(SAID, source="one")
        memory.add(SAID, source="two")
    for words in (("rollback", "--source", "one"), ("compact",), ("check",)):
        assert command(*words, "--file", path).exit_code == 0
    with Memory(path, encoder=None, policy=None, writer=None) as memory:
        assert memory.store.encoder_identity() is None
        assert finds(memory, SAID) == [SAID]


@pytest.mark.parametrize("policy", ["default", "memrl"])
@pytest.mark.parametrize("of", ["decision", "episode"])
def test_reward_that_was_rolled_back_can_be_given_again(policy: str, of: str) -> None:
    with Memory(encoder="hashing:32", policy=policy) as memory:
        memory.add(SAID)
        with memory.episode("feed Bo", by="ana") as episode:
            hits = episode.search(SAID, top_k=1)
        target = hits.decision if of == "decision" else episode.id
        assert memory.reward(target, 1.0, by="ana").applied
        memory.rollback(rewarder="ana")
        assert memory.get("m1").values.credited == 0
        assert memory.reward(target, 1.0, by="ana").applied
        assert not memory.reward(target, 1.0, by="ana").applied  # it counts once
        assert memory.get("m1").values.credited == 1
        memory.rollback(memory.rollback(rewarder="ana").id)
        assert not memory.reward(target, 1.0, by="ana").applied
        assert memory.get("m1").values.credited == 1


def test_an_update_that_was_refused_stays_refused() -> None:
    with opened() as memory:
        memory.add(SAID, source="one")
        other = memory.add("Bo eats everything")
        with pytest.raises(InvalidText, match="duplicate"):
            memory.update(other.id, SAID, trust=0.5)
        assert memory.get(other.id).trust == 1.0, "all or nothing"
        memory.rollback(source="one")
        assert texts(memory) == ["Bo eats everything"]
        assert finds(memory, "Bo eats everything", mode="dense") == ["Bo eats everything"]
        assert check(memory.store) == []


def test_a_deletion_that_was_refused_stays_refused() -> None:
    with opened() as memory:
        item = memory.add(SAID)
        with memory.episode() as episode:
            memory.delete(item.id, episode=episode.id)
        with pytest.raises(UnknownItem):
            memory.delete(item.id)
        memory.rollback(episode.id)
        assert texts(memory) == [SAID]


def test_fact_from_two_sources_survives_one_rollback(path: Path) -> None:
    with Memory(path, encoder=WordEncoder(32), policy=None, writer="rules") as memory:
        said = [{"role": "user", "content": "I live in Turin."}]
        for source in ("monday", "friday"):
            memory.add(said, infer=True, user_id="ana", source=source)
        assert len(texts(memory)) == 1
        undone = memory.rollback(source="monday")
        assert len(texts(memory)) == 1
        assert finds(memory, "where does she live: Turin", mode="dense", user_id="ana") == texts(memory)
        memory.rollback(source="friday")
        assert texts(memory) == []
        memory.rollback(undone.id)
        assert len(texts(memory)) == 1
        assert check(memory.store) == []


def test_expired_item_stays_hidden_after_the_clock_went_back(path: Path) -> None:
    times = ["2026-05-01T12:00:00"]
    with Memory(path, encoder=WordEncoder(32), policy=None, writer=None, clock=lambda: times[-1]) as memory:
        memory.add("the code is 4711", ttl=60)
        assert finds(memory, "code") == ["the code is 4711"]
        times.append("2026-05-01T13:00:00")
        memory.add("something else")
        assert finds(memory, "code", mode="lexical") == []
        times.append("1970-01-01T00:00:00")
        assert finds(memory, "code", mode="lexical") == []
        assert texts(memory) == ["something else"]
    with Memory(path, encoder=WordEncoder(32), policy=None, writer=None, clock=lambda: times[-1]) as memory:
        assert finds(memory, "code", mode="lexical") == []
