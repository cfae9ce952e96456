"""The verbs people use, and what bad input gets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keepworth.memory import errors
from keepworth.memory.async_memory import AsyncMemory
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import backup, check, compact, reembed, statistics
from keepworth.memory.store.schema import VERSION
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import WordEncoder, behind_its_back, finds, texts


def memory(path: object = ":memory:", **options: object) -> Memory:
    return Memory(path, **{"encoder": WordEncoder(32), **options})


def test_tenants_are_isolated(tmp_path: Path):
    one = memory(tmp_path / "a.mem", tenant="one")
    two = memory(tmp_path / "a.mem", tenant="two", user_id="ana")
    with one.episode() as episode:
        item = episode.remember("the password is swordfish", user_id="ana")
    hits = one.search("password")
    back = one.rollback(one.rollback(episode.id).id)
    assert two.search("password") == []
    assert two.get_all() == []
    for call in (two.get, two.delete, two.history, two.forget, lambda id: two.update(id, "x"), two.rollback):
        with pytest.raises((errors.UnknownItem, errors.UnknownEpisode)):
            call(item.id)
    for verb, id in ((two.reward, hits.decision), (two.rollback, episode.id), (two.rollback, back.id)):
        with pytest.raises(errors.UnknownEpisode):
            verb(id, **({"value": 1.0} if verb == two.reward else {}))
    for verb in (two.episode_record, lambda id: two.add("a dog", episode=id), lambda id: two.search("dog", episode=id)):
        with pytest.raises(errors.UnknownEpisode):
            verb(episode.id)
    assert not two.apply(Operation(OperationKind.DELETE, (item.id,))).applied
    with pytest.raises(errors.InvalidScope, match="already 'ana'"):
        two.search("password", user_id="bo")
    assert one.get(item.id).values.shown == 0


def test_expiring_item_is_found_until_its_time():
    times = iter([f"2026-01-01T00:00:{second:02d}" for second in range(60)])
    m = memory(clock=lambda: next(times))
    m.add("for a moment", ttl=5)
    m.add("for ever")
    assert set(finds(m, "for a moment")) == {"for a moment", "for ever"}
    for _ in range(8):
        next(times)
    assert finds(m, "for a moment") == ["for ever"]


def test_banks_fork_and_commit(path: Path):
    m = memory(path)
    old = m.add("ana lives in rome", user_id="ana")
    bank = m.bank(user_id="ana")
    fork = bank.fork()
    new = fork.add("ana has a cat")
    fork.apply(Operation(OperationKind.SUPERSEDE, (old.id,), "ana lives in oslo"))
    fork.apply(Operation(OperationKind.UPDATE, (new.id,), "ana has a red cat"))
    m.add("written meanwhile", user_id="ana")
    assert finds(fork, "where ana lives", 1) == ["ana lives in oslo"]
    assert (len(bank), len(m)) == (1, 2)
    assert all(outcome.applied for outcome in m.commit(fork))
    assert set(texts(m)) == {"written meanwhile", "ana lives in oslo", "ana has a red cat"}
    assert all(hit.dense is not None for hit in m.search("red cat", mode="dense"))
    assert len(bank) == 1
    other = fork.fork()  # it calls the cat by another id than the memory does
    another, other = other.add("ana has a dog"), other.fork()
    m.add("written later", user_id="ana")
    other.apply(Operation(OperationKind.DELETE, (new.id, another.id)))
    m.commit(other)
    assert set(texts(m)) == {"written meanwhile", "written later", "ana lives in oslo"}
    assert check(m.store) == []


def test_many_texts_find_the_duplicates_that_each_alone_would_find(path: Path):
    with memory(path) as m:
        first = m.add("cat number 3", user_id="ana")
        m.add("cat number 4", user_id="bob")  # of another scope
        gone = m.add("cat number 5", user_id="ana")
        m.delete(gone.id)
        listed = [f"cat number {n}" for n in range(30)]
        ids = [item.id for item in m.add_many([*listed, "cat  number 7"], user_id="ana")]
        assert ids[3] == first.id
        assert ids[30] == ids[7]
        assert len({*ids}) == 30
        assert gone.id not in ids
        assert [item.id for item in m.add_many(listed, user_id="ana")] == ids[:30]
        with pytest.raises(errors.InvalidText, match="number 20"):
            m.add_many([*listed[:20], "not \ud800 Unicode"], user_id="ana")
        assert check(m.store) == []


def test_maintenance_compacts_and_checks(path: Path, tmp_path: Path):
    m = memory(path)
    m.add_many([f"cat number {n}" for n in range(50)])
    m.add("words only", key="k")
    before = {item.id: item for item in m.store.items(m.scope)}
    fingerprint = m.bank().content_hash()
    m.update("m3", "cat of another colour")
    m.rollback(since="s51")
    compact(m.store)
    assert {item.id: item for item in m.store.items(m.scope)} == before
    assert m.bank().content_hash() == fingerprint
    copy = backup(m.store, tmp_path / "copy.mem")
    with pytest.raises(errors.MemoryProblem, match="exists"):
        backup(m.store, copy)
    with memory(copy) as twin:
        assert check(twin.store) == []
        assert twin.bank().content_hash() == fingerprint
    figures = statistics(m.store)
    assert (figures.current, figures.unembedded, figures.encoder) == (51, 0, "words")


def test_another_encoder_is_refused_until_reembed(path: Path):
    with memory(path) as m:
        m.add_many([f"cat {n}" for n in range(10)])
    other = WordEncoder(48, "other words")
    with pytest.raises(errors.EncoderMismatch, match="reembed"):
        memory(path, encoder=other)
    with memory(path, encoder=None) as m:
        m.add("without a vector")
        assert statistics(m.store).unembedded == 1
        job = reembed(m.store, other, batch=3)
        next(job), next(job)
        job.close()  # interrupted: the old set still serves
    with memory(path) as m:
        assert len(m.search("cat 3", mode="dense")) == 10
        list(reembed(m.store, other, batch=3))
        assert m.search("cat 3", mode="dense", top_k=1)[0].text == "cat 3"
    with memory(path, encoder=other) as m:
        list(reembed(memory(path, encoder=None).store, WordEncoder(32), batch=3))
        with pytest.raises(errors.EncoderMismatch, match="open the memory again"):
            m.search("cat 3", mode="dense")
        list(reembed(m.store, other, batch=100))
        assert statistics(m.store).unembedded == 0
        assert m.search("without a vector", mode="dense", top_k=1)[0].text == "without a vector"
        assert check(m.store) == []


def test_reader_opened_before_the_first_vector_finds_later_items(path: Path):
    Memory(path, encoder=None).close()
    reader = memory(path, read_only=True)
    assert reader.search("cat") == []
    memory(path).add("a cat")
    assert finds(reader, "cat", mode="dense") == ["a cat"]


def test_foreign_files_are_refused_and_untouched(tmp_path: Path):
    text, foreign = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("dear diary " * 50)
    behind_its_back(foreign, "CREATE TABLE t(x)")
    for path in (text, foreign, tmp_path):
        content = path.read_bytes() if path.is_file() else b""
        with pytest.raises(errors.NotAMemoryFile, match=r"other|another|folder"):
            memory(path)
        assert not path.is_file() or path.read_bytes() == content
    with pytest.raises(errors.NotAMemoryFile):
        memory(tmp_path / "missing" / "a.mem")


OTHERS = [
    (VERSION + 1, errors.NewerFile, "upgrade"),
    (VERSION - 1, errors.OlderFile, rf"format {VERSION - 1}, .* reads {VERSION}: .*export --to jsonl"),
]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(("version", "error", "said"), OTHERS)
def test_a_file_of_another_format_is_refused_and_untouched(version, error, said, read_only: bool, path: Path):
    with memory(path) as m:
        m.add("x")
        m.store.database.exclusive(lambda c: c.pragma("user_version", version))
    content = path.read_bytes()
    with pytest.raises(error, match=said):
        memory(path, read_only=read_only)
    assert path.read_bytes() == content


def test_async_memory_has_every_method_of_the_sync_one() -> None:
    public = [name for kind in (Memory, LiveEpisode) for name in dir(kind) if not name.startswith("_")]
    assert {"observe", "end", "record", "policy"} <= set(public)

    async def story() -> None:
        async with AsyncMemory(memory(policy="memrl")) as m:
            async with m.episode("reset the router") as episode:
                await episode.search(actions=("pull",))
                await episode.act("pull")
                await episode.step_reward(1.0)
                for wrapper, inner in ((m, m.memory), (episode, episode.live)):
                    for name in (each for each in dir(type(inner)) if not each.startswith("_")):
                        assert hasattr(wrapper, name), name
                await episode.reward(1.0)
                assert (await episode.record()).rewards
                assert (episode.task, episode.number, episode.acts) == ("reset the router", 0, 1)
            assert m.policy == "memrl"
            assert await m.pending() == []

    asyncio.run(story())


def test_missing_file_that_is_only_read_is_named_with_the_command_that_makes_one(path: Path) -> None:
    with pytest.raises(errors.NotAMemoryFile, match="does not exist") as caught:
        Memory(path, read_only=True)
    assert "keepworth memory add" in caught.value.fix
    assert not path.exists()
