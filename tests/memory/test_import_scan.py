"""What is imported is looked through for secrets, as what is written is, whatever format it comes in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.cli.main import main
from keepworth.memory.item import Status
from keepworth.memory.scan import Scan
from keepworth.memory.store.checks import check

SECRET, PLAIN = "My password is swordfish7.", "I like green tea"
MEM0 = {"results": [{"id": "1", "memory": text, "user_id": "ana"} for text in (SECRET, PLAIN)]}
FILES = {
    "jsonl": "\n".join(json.dumps(text) for text in (SECRET, PLAIN)),
    "mem0": json.dumps(MEM0),
    "markdown": f"# Notes\n\n* {SECRET}\n* {PLAIN}\n",
}


def taken(folder: Path, format: str, *words: str) -> Path:
    source, file = folder / f"in.{format}", folder / "agent.mem"
    source.write_text(FILES[format])
    main(["memory", "import", str(source), "--from", format, "--file", str(file), "--encoder", "none", *words])
    return file


def states(file: Path) -> dict[str, str]:
    with Memory(file, encoder=None) as memory:
        return {item.text: item.status.value for item in memory.get_all(all_states=True)}


@pytest.mark.parametrize("format", FILES)
def test_a_secret_goes_into_quarantine_and_is_counted(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = taken(tmp_path, format)
    assert "2 items, 0 that were there already, 1 of them in quarantine (password 1;" in capsys.readouterr().out
    assert states(file) == {SECRET: "quarantined", PLAIN: "active"}
    with Memory(file, encoder=None) as memory:
        assert [hit.text for hit in memory.search("password green tea swordfish7")] == [PLAIN]


def test_another_action_may_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = taken(tmp_path, "jsonl", "--secrets", "redact")
    assert "2 items, 0 that were there already, 1 without what was taken out of them." in capsys.readouterr().out
    assert states(file) == {"My password is [password removed].": "active", PLAIN: "active"}
    (tmp_path / "b").mkdir()
    assert states(taken(tmp_path / "b", "jsonl", "--secrets", "allow")) == {SECRET: "active", PLAIN: "active"}


def test_refused_names_the_line_and_takes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = taken(tmp_path, "jsonl", "--secrets", "refuse")
    assert "line 1: the text holds what is not remembered here: password" in capsys.readouterr().err
    assert states(file) == {}
    taken(tmp_path, "jsonl", "--secrets", "refuse", "--skip-bad")
    assert "1 left out" in capsys.readouterr().out
    assert states(file) == {PLAIN: "active"}


def exported(folder: Path) -> Path:
    with Memory(folder / "old.mem", encoder=None) as memory:
        memory.add_many([SECRET, PLAIN, "The API token is abcdefghijklmnop."])
    with Memory(folder / "old.mem", encoder=None, scan=Scan()) as memory:
        memory.update("m3", status="quarantined")
        memory.release("m3")
    main(["memory", "export", str(folder / "all.jsonl"), "--file", str(folder / "old.mem")])
    return folder / "all.jsonl"


def test_our_own_format_is_looked_through_and_what_was_let_out_stays_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, file = exported(tmp_path), tmp_path / "new.mem"
    capsys.readouterr()
    main(["memory", "import", str(source), "--file", str(file)])
    assert "3 items, 1 of them in quarantine (password 1;" in capsys.readouterr().out
    with Memory(file, encoder=None) as memory:
        assert [item.status for item in memory.get_all(all_states=True)] == [
            Status.QUARANTINED,
            Status.ACTIVE,
            Status.ACTIVE,
        ]
        assert check(memory.store) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--secrets", "refuse"), "the text holds what is not remembered here: password"),
        (("--secrets", "redact"), "takes nothing out of it"),
    ],
)
def test_our_own_format_is_refused_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    source, file = exported(tmp_path), tmp_path / "new.mem"
    main(["memory", "import", str(source), "--file", str(file), *words])
    assert says in capsys.readouterr().err
    assert not file.exists() or states(file) == {}
