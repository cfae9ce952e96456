"""A damaged file: what can be read of it comes back, what cannot is said, and nothing more is written to it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

from keepworth.episodes.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.item import EVERYWHERE, Item, Status
from keepworth.memory.memory import Memory
from keepworth.memory.store.checks import check
from keepworth.memory.store.salvage import salvaged
from keepworth.memory.store.transfer import exported, imported

from .stub_encoder import WordEncoder

PAGE = 8192


def opened(path: Path | str) -> Memory:
    return Memory(path, encoder=WordEncoder(16))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with some of everything: rewordings, successors, deletions, rollbacks, erasures, searches, two users."""
    path = tmp_path_factory.mktemp("whole") / "a.mem"
    with opened(path) as m:
        items = m.add_many([f"note {number} {'x' * 200}" for number in range(200)], user_id="ana")
        m.add("of somebody else", user_id="bo", key="else", metadata={"a": [1]}, expires_at="2060-01-01")
        for item in items[::9]:
            m.update(item.id, f"{item.id} changed")
        for item in items[1::9]:
            m.supersede(item.id, f"{item.id} followed")
        for item in items[2::9]:
            m.delete(item.id)
        m.forget(items[3].id, purge_history=True)
        with m.episode("a task", user_id="ana") as episode:
            episode.remember("rolled back")
        m.rollback(episode.id)
        m.reward(m.search("note 5", user_id="ana").decision, 1.0)
    return path


def all_items(path: Path) -> dict[str, Item]:
    with Memory(path, encoder=None, read_only=True) as m:
        return {item.id: item for item in m.store.items(EVERYWHERE)}


def leaves(path: Path, table: str) -> list[int]:
    """The pages on which rows of a table lie."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,)).fetchall()
    connection.close()
    return [number for (number,) in found]


def damaged(whole: Path, to: Path, *pages: int) -> Path:
    content = bytearray(whole.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE : page * PAGE] = random.Random(page).randbytes(PAGE)
    to.write_bytes(content)
    return to


def brought_back(lines: list[str]) -> Memory:
    m = opened(":memory:")
    imported(m.store, lines, unsound=True)
    return m


def test_a_whole_memory_is_salvaged_as_it_is_exported(whole: Path):
    lost: list[str] = []
    lines = list(salvaged(whole, lost))
    assert lost == []
    with opened(whole) as m:
        assert sorted(lines[1:]) == sorted(list(exported(m.store))[1:])
    twin = opened(":memory:")
    imported(twin.store, lines)
    assert check(twin.store) == []


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_any_page_may_be_damaged_and_whatever_is_gone_is_said(whole: Path, tmp_path: Path, step: int):
    before = all_items(whole)
    for page in range(2, whole.stat().st_size // PAGE + 1, step):
        file = damaged(whole, tmp_path / "b.mem", page)
        content = file.read_bytes()
        lost: list[str] = []
        lines = [json.loads(line) for line in salvaged(file, lost)]
        assert file.read_bytes() == content
        found = {line["item"]["id"] for line in lines if "item" in line}
        assert found <= set(before)
        assert lost or len(found) == len(before), page


def test_items_whose_rows_are_gone_are_made_again_from_the_journal(whole: Path, tmp_path: Path):
    file = damaged(whole, tmp_path / "b.mem", *leaves(whole, "items")[:2])
    lost: list[str] = []
    twin = brought_back(list(salvaged(file, lost)))
    assert {item.id: item for item in twin.store.items(EVERYWHERE)} == all_items(whole)
    assert check(twin.store) == []
    (said,) = lost
    assert said.endswith("they were made again from the journal")


def test_journal_entries_that_are_gone_cost_their_history_alone(whole: Path, tmp_path: Path):
    file = damaged(whole, tmp_path / "b.mem", leaves(whole, "events")[1])
    lost: list[str] = []
    twin = brought_back(list(salvaged(file, lost)))
    assert {item.id: item for item in twin.store.items(EVERYWHERE)} == all_items(whole)
    (said,) = lost
    assert "journal entries" in said
    twin.add("goes on")
    assert twin.search("goes on", top_k=1)[0].text == "goes on"


def test_what_an_unreadable_entry_changed_comes_back_in_quarantine(whole: Path, tmp_path: Path):
    file = damaged(whole, tmp_path / "b.mem", leaves(whole, "items")[0], leaves(whole, "events")[-1])
    lost: list[str] = []
    twin = brought_back(list(salvaged(file, lost)))
    before, after = all_items(whole), {item.id: item for item in twin.store.items(EVERYWHERE)}
    differing = [item for id, item in after.items() if before[id] != item]
    assert differing
    assert all(item.status is Status.QUARANTINED for item in differing if item.open)
    assert any("in quarantine" in said for said in lost)


def test_scopes_whose_names_are_gone_become_nobody_else_s(whole: Path, tmp_path: Path):
    pages = [*leaves(whole, "scopes"), *leaves(whole, "sqlite_autoindex_scopes_1")]
    lost: list[str] = []
    lines = list(salvaged(damaged(whole, tmp_path / "b.mem", *pages), lost))
    users = {json.loads(line)["item"]["scope"]["user"] for line in lines if line.startswith('{"item"')}
    assert len(users) == 2
    assert all(user.startswith("unreadable scope ") for user in users)
    assert any("names of scopes" in said for said in lost)
    lost = []
    lines = list(salvaged(damaged(whole, tmp_path / "b.mem", pages[0]), lost))
    assert {json.loads(line)["item"]["scope"]["user"] for line in lines if line.startswith('{"item"')} == {"ana", "bo"}


def test_what_was_written_last_is_read_from_the_log(whole: Path, tmp_path: Path):
    shutil.copy(whole, tmp_path / "b.mem")
    with opened(tmp_path / "b.mem") as m:
        m.add("in the log alone")
        for name in ("c.mem", "c.mem-wal"):
            shutil.copy(tmp_path / name.replace("c", "b", 1), tmp_path / name)
    assert any("in the log alone" in line for line in salvaged(tmp_path / "c.mem", []))


def test_what_is_no_memory_is_not_salvaged(whole: Path, tmp_path: Path):
    file = tmp_path / "a.mem"
    for content in (b"", b"x" * 9000, whole.read_bytes()[:100] + b"\xff" * 9000):
        file.write_bytes(content)
        with pytest.raises(errors.NotAMemoryFile):
            list(salvaged(file, []))


def test_the_command_line_says_what_could_not_be_read(whole: Path, tmp_path: Path):
    from keepworth.cli.memory import app

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output + repr(result.exception)
        return result.output

    file, lines, again = (str(tmp_path / name) for name in ("b.mem", "b.jsonl", "c.mem"))
    damaged(whole, Path(file), leaves(whole, "items")[0])
    said = run("salvage", lines, "--file", file)
    assert "Could not be read: " in said
    assert "import --unsound" in said
    run("import", lines, "--unsound", "--file", again, "--encoder", "hashing:16")
    assert all_items(Path(again)).keys() == all_items(whole).keys()
    assert "Everything could be read." in run("salvage", str(tmp_path / "d.jsonl"), "--file", str(whole))
    result = CliRunner().invoke(app, ["salvage", str(tmp_path / "e.jsonl"), "--file", str(tmp_path / "none.mem")])
    assert isinstance(result.exception, errors.MemoryProblem)
    result = CliRunner().invoke(app, ["export", "--salvage", str(tmp_path / "e.jsonl")])
    assert isinstance(result.exception, KeepworthError)
    assert "keepworth memory salvage" in result.exception.fix


def test_once_damage_was_met_nothing_more_is_written(whole: Path, tmp_path: Path):
    file = damaged(whole, tmp_path / "b.mem", *leaves(whole, "items"))
    m = opened(file)
    m.store.put_parameters(m.scope, "before", b"damage was met")
    before = file.read_bytes()
    with pytest.raises(errors.NotAMemoryFile):
        m.get_all()
    with pytest.raises(errors.NotAMemoryFile, match="nothing is written to it any more"):
        m.add("more")
    with pytest.raises(errors.NotAMemoryFile, match="nothing is written to it any more"):
        m.store.put_parameters(m.scope, "after", b"")
    m.close()
    assert file.read_bytes() == before, "not even what was in the log"
    assert any("PARAMETERS" in line for line in salvaged(file, []))
