"""What is erased is nowhere: not in any byte of any file in the folder. And what is not erased is all there."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from keepworth.cli.main import main
from keepworth.memory import errors
from keepworth.memory.item import Scope
from keepworth.memory.memory import Memory
from keepworth.memory.store import decision_log
from keepworth.memory.store.maintenance import check, compact
from keepworth.memory.store.purge import is_tombstone
from keepworth.memory.store.transfer import exported, imported
from keepworth.records.episode import Operation, OperationKind
from tests.memory.helpers import WordEncoder, command, finds, rows, texts

OUTSIDE = {"zxfamily", "zxoutside"}
"""What asked about her from outside, without a word that was hers alone, is not quoted by anything that is gone."""


def memory(path: Path, **options: object) -> Memory:
    options.setdefault("encoder", WordEncoder())
    return Memory(path, **options)  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left(folder: Path, *needles: str) -> list[tuple[str, str]]:
    """Which needles are in which files, as they are or in another case."""
    return [
        (needle, name)
        for name, content in files(folder).items()
        for needle in needles
        if needle.encode().lower() in content.lower()
    ]


NEEDLES = [
    "zxuser", "zxsession", "zxagent", "zxplain", "zxkey", "zxmeta", "zxvalue", "zxsource", "zxspeaker", "zxreworded",
    "zxsuperseded", "zxsuccessor", "zxdeleted", "zxarchived", "zxrolled", "zxrefused", "zxunknown", "zxquery", "zxoutside",
    "zxtask", "zxreward", "zxlink", "zxmerged", "zxparameter", "zxbody", "zxoutcome", "zxrepeat", "zxdraft", "zxfamily",
]  # fmt: skip
BYSTANDERS = ["bobplain", "bobquery", "bobtask", "rootplain"]


def lived_in(path: Path) -> list[np.ndarray]:
    """A life of one user with a needle in every place there is, beside another's. Returns her vectors."""
    with memory(path) as m:
        m.search("is zxplain known")  # considers nothing, and quotes a word that will be hers alone
        m.add("bobplain likes rice", user_id="bob", source="bobsource")
        m.add("rootplain is everybody's")
        with m.episode(user_id="bob", task="bobtask") as episode:
            episode.search("bobquery likes what")
            episode.reward(1.0)
        bounds = {"user_id": "zxuser", "agent_id": "zxagent", "session_id": "zxsession"}
        plain = m.add("zxplain likes tofu", source="zxsource", metadata={"zxmeta": ["zxvalue"]}, **bounds)
        m.add([{"role": "zxspeaker", "content": "zxdraft was said"}], **bounds)
        m.add("a lesson zxkey", key="when zxkey comes", kind="lesson", **bounds)
        m.update(m.add("zxplain before", **bounds).id, "zxreworded after")
        old = m.add("zxsuperseded lives in Oslo", **bounds)
        new = m.supersede(old.id, "zxsuccessor lives in Rome", metadata={"of": "zxmeta"})
        m.delete(m.add("zxdeleted", **bounds).id)
        m.update(m.add("zxarchived", **bounds).id, status="archived", metadata={"zxvalue": 1})
        m.add("zxplain likes tofu", source="zxrepeat", metadata={"zxmeta": ["zxvalue"]}, **bounds)
        with m.episode(task="zxtask for dinner", **bounds) as episode:
            episode.remember("zxrolled back item")
            episode.search("zxquery inside")
            episode.apply(Operation(OperationKind.SUPERSEDE, (old.id,), "zxrefused wording"))
            episode.apply(Operation(OperationKind.UPDATE, (plain.id, old.id), "zxunknown wording"))
            episode.reward(1.0, source="zxreward")
        episode.end("zxoutcome")
        m.rollback(episode.id)
        m.apply(Operation(OperationKind.LINK, (plain.id, new.id), "zxlink relation"))
        m.apply(Operation(OperationKind.MERGE, (plain.id, new.id), "zxmerged of both"))
        m.rollback(source="zxsource")
        mine = Scope("", "zxuser")
        # Earlier versions stored what a keeper had learned.
        learned = {"now": m.store.clock(), "body": b"zxbody"}
        m.store.change(mine, lambda transaction: transaction.write_event("PARAMETERS", mine, "zxparameter", **learned))
        hits = m.search("zxquery outside", user_id="zxuser", top_k=3)
        m.reward(hits.decision, 0.5, source="zxreward")
        m.search("who is zxoutside and zxreworded")  # by an operator, over everybody
        with m.episode(task="find zxfamily and zxsuccessor"):
            pass
        m.search("what of zxfamily", user_id="zxuser")
        m._decisions.flush()
        compact(m.store)
        m.store.database.exclusive(lambda connection: connection.execute("ANALYZE"))
        return list(m.store.vectors_for(list(m.store.items(mine))).values())


@pytest.mark.parametrize("handle", ["everybody's", "her own", "through a link", "by command"])
def test_a_person_is_erased_from_every_byte_of_every_file(handle: str, path: Path, tmp_path: Path):
    vectors = lived_in(path)
    assert {needle for needle, _ in left(tmp_path, *NEEDLES)} == set(NEEDLES)
    content = b"".join(files(tmp_path).values())
    assert sum(vector.tobytes() in content for vector in vectors) == len(vectors) > 5
    with memory(path) as m:
        assert check(m.store) == []
        before = m.snapshot()
        theirs = [m.get(item.id) for item in m.get_all(user_id="bob")]
        # As a service that runs on; the other handle's cache must not bring anything back.
        if handle == "her own":
            with memory(path, user_id="zxuser") as own:
                erased = own.erase()
        elif handle == "through a link":
            (tmp_path / "links").mkdir()
            (tmp_path / "links" / "link.mem").symlink_to(path)
            with memory(tmp_path / "links" / "link.mem") as linked:
                erased = linked.erase(user_id="zxuser")
        elif handle == "everybody's":
            erased = m.erase(user_id="zxuser")
        if handle != "by command":
            assert len(erased.ids) >= 9
            assert erased.queries >= 3
    if handle == "by command":
        done = command("erase", "--user", "zxuser", "--file", path, "--yes")
        assert (done.exit_code, done.output[:6]) == (0, "Erased")
    assert left(tmp_path, *(set(NEEDLES) - OUTSIDE)) == []
    content = b"".join(files(tmp_path).values())
    assert not any(vector.tobytes() in content for vector in vectors)
    assert {needle for needle, _ in left(tmp_path, *BYSTANDERS)} == set(BYSTANDERS)
    with memory(path) as m:
        assert check(m.store) == []
        assert [m.get(item.id) for item in theirs] == theirs
        assert m.get_all(user_id="zxuser", all_states=True) == []
        assert m.search("zxplain", user_id="zxuser") == []
        for undo in (lambda: m.rollback(since=before), lambda: m.bank(at=before), lambda: m.diff(before)):
            with pytest.raises(errors.Purged, match="erased on purpose"):
                undo()
        # Whoever comes back under the name begins anew.
        m.add("zxplain likes rice now", user_id="zxuser")
        assert finds(m, "zxplain", user_id="zxuser") == ["zxplain likes rice now"]
        assert len(m.get_all(user_id="zxuser", all_states=True)) == 1
        compact(m.store)
        assert check(m.store) == []


def test_person_with_a_successor_item_is_erased(path: Path):
    with memory(path) as m:
        tofu = m.add("ana likes tofu", user_id="ana")
        rice = m.add("ana likes rice", user_id="ana")
        assert m.supersede(rice.id, "ana likes tofu").id == tofu.id
        m.forget(tofu.id, purge_history=True)
        assert m.erase(user_id="ana").ids == (rice.id,)
        assert check(m.store) == []


def test_item_revived_by_an_undo_keeps_its_words_when_its_origin_is_erased(path: Path):
    with memory(path) as m:
        start = m.snapshot()
        tofu = m.add("ana likes tofu")
        undone = m.rollback(since=start)
        assert not m.apply(Operation(OperationKind.SUPERSEDE, (tofu.id,), "ana likes rice")).applied
        m.rollback(undone.id)
        m.forget(tofu.id, purge_history=True)
        assert texts(m) == ["ana likes rice"]
        assert check(m.store) == []


def test_other_handles_forget_an_erased_person_without_reporting_damage(path: Path):
    with Memory(path, encoder=None) as one, Memory(path, encoder=None) as other:
        ana = other.within(user_id="ana")
        with ana.episode("what to eat") as episode:
            ana.add("ana likes tofu")
        assert ana.episode_record(episode.id).task == "what to eat"
        one.erase(user_id="ana")
        with pytest.raises(errors.UnknownEpisode):
            ana.episode_record(episode.id)
        ana.add("ana likes rice")
        assert check(other.store) == []


def test_pending_search_logs_of_other_handles_omit_erased_persons(path: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(decision_log, "FLUSH_SECONDS", 60.0)
    with memory(path) as m, memory(path) as other:
        m.add("zxplain likes tofu", user_id="zxuser")
        m.add("bob likes tofu", user_id="bob")
        gone = other.search("where is zxquery", user_id="zxuser")
        kept = other.search("does bob know zxplain", user_id="bob")
        m.erase(user_id="zxuser")
        later = other.search("who likes tofu")
        other._decisions.flush()
        other.reward(kept.decision, 1.0)
        other.reward(later.decision, 1.0)
        with pytest.raises(errors.UnknownEpisode, match="a logged search"):
            other.reward(gone.decision, 1.0)
        other.search("likes tofu")
        other._decisions.flush()
        assert rows(m, "SELECT query FROM decisions ORDER BY n DESC")[0] == ("likes tofu",)
        assert check(m.store) == []
    assert left(tmp_path, "zxuser", "zxplain", "zxquery") == []


BOUNDS = [{"session_id": "s1"}, {"agent_id": "helper"}, {"user_id": "ana", "session_id": "s1"}]


@pytest.mark.parametrize("bound", BOUNDS)
def test_erasing_a_session_or_agent_keeps_the_rest_of_the_person(bound: dict[str, str], path: Path):
    with memory(path, tenant="acme") as m:
        m.add("zxone", user_id="ana", agent_id="helper", session_id="s1")
        m.add("kept", user_id="ana", agent_id="other", session_id="s2")
        m.erase(**bound)
        assert texts(m, user_id="ana") == ["kept"]
        assert finds(m, "kept", user_id="ana", mode="lexical") == ["kept"]
        assert check(m.store) == []
    with memory(path, tenant="other") as m:
        m.add("kept", user_id="ana")
        m.erase(user_id="ana")
    with memory(path, tenant="acme") as m:
        assert texts(m, user_id="ana") == ["kept"]
        assert check(m.store) == []
    assert left(path.parent, "zxone") == []


def test_a_whole_memory_is_never_erased(path: Path):
    with memory(path) as m:
        m.add("a cat")
        with pytest.raises(errors.InvalidScope, match=r"erase needs a user_id.*delete the file"):
            m.erase()
        assert m.erase(user_id="nobody").ids == ()
        assert len(m) == 1
    asked = command("erase", "--user", "ana", "--file", path, input="n\n")
    assert asked.exit_code == 1
    assert "for good?" in asked.output


# Single items.


def test_an_item_that_was_rolled_back_can_be_erased(tmp_path: Path):
    with memory(tmp_path / "a.mem") as m:
        m.add("stays")
        with m.episode() as episode:
            item = episode.remember("zxbeta credit card")
        undone = m.rollback(episode.id)
        with memory(tmp_path / "a.mem", user_id="ana") as other, pytest.raises(errors.UnknownItem):
            other.forget(item.id, purge_history=True)
        m.forget(item.id, purge_history=True)
        with pytest.raises(errors.Purged, match="bring back"):
            m.rollback(undone.id)
        with pytest.raises(errors.UnknownItem, match="erased on purpose"):
            m.get(item.id)
        assert check(m.store) == []
    assert left(tmp_path, "zxbeta") == []


@pytest.mark.parametrize("back", [True, False], ids=["came back", "stays undone"])
def test_rolled_back_duplicate_is_erased_with_its_item(back: bool, tmp_path: Path):
    with memory(tmp_path / "a.mem") as m:
        m.add("zxbeta credit card", user_id="ana")
        with m.episode() as episode:
            episode.remember("zxalpha credit card")
        if back:
            undone = m.rollback(episode.id)
            m.add("zxalpha credit card")
            m.rollback(undone.id)  # the second of two equal items is a duplicate now
        else:
            m.add("zxalpha credit card")
            m.rollback(episode.id)  # the duplicate is an item now
        (item,) = (item for item in m.get_all() if "zxalpha" in item.text)
        m.forget(item.id, purge_history=True)
        assert check(m.store) == []
        assert texts(m, user_id="ana") == ["zxbeta credit card"]
    assert left(tmp_path, "zxalpha") == []


def test_equal_text_of_another_scope_survives_an_erasure():
    m = memory(":memory:")
    hers, ours = m.add("drinks tea", user_id="ana"), m.add("drinks tea")
    assert m.apply(Operation(OperationKind.MERGE, (hers.id, ours.id), "drinks tea")).item == ours.id
    m.erase(user_id="ana")
    with m.episode() as episode:
        episode.remember("stays")
    m.rollback(episode.id)  # what was erased left no number of duplicates, so that all is replayed
    assert [item.id for item in m.get_all()] == [ours.id]
    assert check(m.store) == []


def test_the_number_of_an_earlier_wording_goes_with_the_erased_item():
    m = memory(":memory:")
    item = m.add("zxbeta credit card")
    m.update(item.id, "nothing of note")
    assert rows(m, "SELECT count(*) FROM former_contents") == [(1,)]
    m.forget(item.id, purge_history=True)
    assert rows(m, "SELECT count(*) FROM former_contents") == [(0,)]


HERS = (
    "SELECT i.n FROM items i JOIN scopes s ON s.id = i.scope WHERE s.\"user\" = 'zxana' "
    "UNION SELECT n FROM touches WHERE json_extract(before, '$.scope.user') = 'zxana'"
)
"""Numbers of the items that were ever hers, rolled-back ones too."""


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 24))])
@pytest.mark.parametrize("by_item", [False, True], ids=["the person", "each item"])
def test_erasure_after_any_history_leaves_no_trace_and_a_sound_journal(by_item, seed, path, tmp_path):
    draw = random.Random(seed)
    everybody, hers, his = memory(path), memory(path, user_id="zxana"), memory(path, user_id="bob")
    episodes: list[tuple[Memory, str]] = []
    rollbacks: list[tuple[Memory, str]] = []

    def text(m: Memory) -> str:
        return f"{'zxtext' if m is hers else 'plain'} {draw.randrange(6)}"

    def step(m: Memory) -> None:
        open_items = [item.id for item in m.get_all() if m is not everybody or item.scope.user != "bob"]
        one = draw.choice([*open_items, "m1"])
        verb = draw.randrange(11)
        about_her = one in open_items and everybody.get(one).scope.user == "zxana"
        if verb < 3:
            m.add(text(m), source="zxsource" if m is hers else "chat", metadata={"n": draw.randrange(2)})
        elif verb == 3:
            wording = text(m) if m is not everybody else "zxreworded" if about_her else "plain"
            m.apply(Operation(OperationKind.UPDATE, (one,), wording))
        elif verb == 4:
            wording = text(m) if m is not everybody else "zxtext by an operator" if about_her else "plain"
            m.apply(Operation(OperationKind.SUPERSEDE, (one,), wording))
        elif verb == 5:
            several = tuple(draw.choice([item.id for item in m.get_all()] or ["m1"]) for _ in range(2))
            m.apply(Operation(OperationKind.MERGE, several, text(m)))
        elif verb == 6:
            kind = draw.choice([OperationKind.DELETE, OperationKind.LINK])
            m.apply(Operation(kind, (one, one)[: draw.randrange(1, 3)]))
        elif verb == 7:
            with m.episode(task="zxtask" if m is hers else "task") as episode:
                episode.search(text(m))
                episode.remember(text(m))
                episode.reward(draw.random())
            episodes.append((m, episode.id))
        elif verb == 8 and episodes:
            owner, id = draw.choice(episodes)
            rollbacks.append((owner, owner.rollback(id).id))
        elif verb == 9 and rollbacks:
            owner, id = draw.choice(rollbacks)
            owner.rollback(id)
        elif open_items:
            m.update(one, status=draw.choice(["active", "archived"]), metadata={"zxmeta" if m is hers else "x": 1})

    for _ in range(40):
        with suppress(errors.MemoryProblem):
            step(draw.choice([everybody, hers, hers, his]))
    assert check(everybody.store) == []
    before = {item.id: item for item in everybody.get_all(all_states=True) if item.scope.user != "zxana"}
    needles = ["zxtext", "zxreworded", "zxsource", "zxmeta"]
    if by_item:
        numbers = rows(everybody, HERS)
        for (n,) in numbers:
            with suppress(errors.UnknownItem):  # it went with one that says the same
                everybody.forget(f"m{n}", purge_history=True)
        assert all(is_tombstone(everybody.store, Scope(), f"m{n}") for (n,) in numbers)
    else:
        everybody.erase(user_id="zxana")
        needles += ["zxana", "zxtask"]
    assert check(everybody.store) == []
    assert {item.id: item for item in everybody.get_all(all_states=True)} == before
    for owner, id in episodes + rollbacks:
        if owner is not hers:
            with suppress(errors.Purged):
                owner.rollback(id)
    assert check(everybody.store) == []
    with memory(":memory:") as twin:
        imported(twin.store, list(exported(everybody.store)))
        assert check(twin.store) == []
    for each in (hers, his, everybody):
        each.close()
    assert left(tmp_path, *needles) == []


# Killed in the middle.

ERASING = """
import os, sys
from keepworth.memory.store import purge
from keepworth.memory.store.database import Database
from tests.memory.test_erase import memory
from pathlib import Path

stage, path = sys.argv[1], Path(sys.argv[2])

def killing(function, before):
    def killed(*arguments, **options):
        if before:
            os.kill(os.getpid(), 9)
        result = function(*arguments, **options)
        os.kill(os.getpid(), 9)
        return result
    return killed

m = memory(path)
if stage == "in the transaction":
    purge._forget_queries = killing(purge._forget_queries, before=False)
elif stage == "after it":
    purge._done = killing(purge._done, before=True)
elif stage == "after the log":
    Database.truncate_log = killing(Database.truncate_log, before=False)
m.erase(user_id="zxuser")
"""


@pytest.mark.parametrize("stage", ["in the transaction", "after it", "after the log"])
def test_killed_erasure_is_undone_or_finished_on_reopening(stage, path, tmp_path):
    lived_in(path)
    done = subprocess.run([sys.executable, "-c", ERASING, stage, str(path)], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    with memory(path) as m:
        assert check(m.store) == []
        begun = m.get_all(user_id="zxuser", all_states=True) == []
    assert begun is (stage != "in the transaction")
    there = {needle for needle, _ in left(tmp_path, *NEEDLES)}
    assert there <= OUTSIDE if begun else there == set(NEEDLES)
    with memory(path) as m:
        assert rows(m, "SELECT count(*) FROM facts_of_file WHERE name = 'erasing'") == [(0,)]


def test_erasure_blocked_by_a_reader_finishes_on_reopening(path: Path, tmp_path: Path):
    lived_in(path)
    script = (
        "import sys\nfrom pathlib import Path\nfrom tests.memory.test_erase import memory\n"
        "m = memory(Path(sys.argv[1]))\n"
        "with m.store.database.reading() as connection:\n"
        "    connection.execute('SELECT count(*) FROM items').fetchall()\n"
        "    print('reading', flush=True)\n    sys.stdin.read()\n"
        "import os\nos._exit(0)\n"
    )
    words, pipe = [sys.executable, "-c", script, str(path)], subprocess.PIPE
    reader = subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=Path(__file__).parents[2])
    reader.stdout.readline()
    m = memory(path)
    m.store.database._writer.set_busy_timeout(100)
    assert not m.erase(user_id="zxuser").log_emptied
    reader.communicate(b"")
    m.close()
    memory(path).close()
    assert left(tmp_path, *(set(NEEDLES) - OUTSIDE)) == []


def test_erase_reports_unknown_persons_and_unifies_spellings(path: Path) -> None:
    with Memory(path, encoder="hashing") as memory:
        before = memory.snapshot()
        memory.add("I like tea.", user_id="Zo\u00eb")
        assert memory.erase(user_id="Zoe").nobody
        assert len(memory.diff(before)) == 1  # nothing was erased, so all can still be undone
        memory.add("I like milk.", user_id="Zoe\u0308")
        assert len(memory.get_all(user_id="Zo\u00eb")) == 2
        assert len(memory.within(user_id="Zoe\u0308").get_all(user_id="Zo\u00eb")) == 2
    missed = command("erase", "--file", path, "--user", "Zoe", "--yes")
    assert "was ever of user 'Zoe': nothing was erased" in " ".join(missed.output.split())
    told = json.loads(command("erase", "--file", path, "--user", "Zoe\u0308", "--yes", "--json").output)
    assert (len(told["erased"]), told["nobody"]) == (2, False)


def test_an_undo_is_undone_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a file.mem"
    with Memory(path, encoder="hashing") as memory:
        before = memory.snapshot()
        memory.add("one")
    done = command("rollback", "--since", before, "--file", path)
    assert f"rollback r2 --file '{path}'" in done.output.replace("\n", "")


def test_forget_older_than_erases_old_items_of_one_person(path: Path, capsys) -> None:
    for year, name in (("2020", "old"), ("2100", "new")):
        with Memory(path, encoder=None, policy=None, clock=lambda year=year: f"{year}-01-01T00:00:00") as memory:
            item = memory.add(f"{name} word of ana", user_id="ana")
            memory.supersede(item.id, f"{name} word of ana, changed")
            memory.add(f"{name} word of bob", user_id="bob")
    words = ["memory", "forget", "--file", str(path), "--user", "ana"]
    assert main([*words, "--older-than", "90", "--purge", "--yes"]) == 0
    assert capsys.readouterr().out == "Erased 2 items.\n"
    assert b"old word of ana" not in path.read_bytes()
    with Memory(path, encoder=None, policy=None) as memory:
        left = texts(memory, all_states=True)
    assert left == ["old word of bob", "new word of ana", "new word of ana, changed", "new word of bob"]
    assert main([*words, "--older-than", "90", "--purge", "--yes"]) == 0
    assert capsys.readouterr().out == "Erased 0 items.\n"
    for wrong in (["m1"], [], ["m1", "--older-than", "1"]):
        assert main([*words, *wrong]) == 2
