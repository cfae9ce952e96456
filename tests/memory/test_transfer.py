"""Export and import lose nothing; the command line speaks the same verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from keepworth.memory import errors
from keepworth.memory.item import EVERYWHERE, Provenance
from keepworth.memory.memory import Memory
from keepworth.memory.store.maintenance import check
from keepworth.memory.store.transfer import exported, imported

from .stub_encoder import WordEncoder
from .test_store import carry_out, steps


def memory(path: object = ":memory:") -> Memory:
    return Memory(path, encoder=WordEncoder(16), clock=lambda: "2026-01-01T00:00:00")


@settings(max_examples=20, deadline=None)
@given(st.lists(steps, max_size=15))
def test_import_of_an_export_is_the_identity(sequence):
    m = memory()
    episodes = [m.episode(user_id=user) for user in ("ana", "bo", "")]
    undone: list[str] = []
    for step in sequence:
        carry_out(m, episodes, undone, step)
    lines = list(exported(m.store))
    twin = memory()
    imported(twin.store, lines)
    assert list(twin.store.items(EVERYWHERE)) == list(m.store.items(EVERYWHERE))
    assert list(exported(twin.store)) == lines
    assert twin.bank().content_hash() == m.bank().content_hash()
    assert check(twin.store) == []
    for id in undone[-2:]:
        twin.rollback(id)
        m.rollback(id)
        assert list(twin.store.items(EVERYWHERE)) == list(m.store.items(EVERYWHERE))


def test_an_import_has_the_range_of_rewards(tmp_path: Path) -> None:
    with Memory(encoder=None, reward_range=(-1, 1)) as m:
        m.add("a cat")
        m.reward(m.search("cat").decision, -1.0)
        lines = list(exported(m.store))
    with Memory(tmp_path / "a.mem", encoder=None) as twin:
        with pytest.raises(errors.NotAMemoryFile, match=r"line 1.*holds none"):
            imported(
                twin.store, [lines[0].replace("[-1.0, 1.0]", "[1, -1]").replace("[-1.0,1.0]", "[1,-1]"), *lines[1:]]
            )
        imported(twin.store, lines)
        assert list(exported(twin.store)) == lines
    with Memory(tmp_path / "a.mem", encoder=None) as twin:
        assert twin.reward(twin.search("cat").decision, -0.5).applied


HEADER = '{"format": "keepworth memory", "version": VERSION}'


@pytest.mark.parametrize("line", ["{}", "not json", "[1]", *(HEADER.replace("VERSION", letter) for letter in "29")])
def test_nonsense_is_not_imported(line):
    m = memory()
    with pytest.raises(errors.NotAMemoryFile, match="line 1"):
        imported(m.store, [line])
    assert m.store.head() == 0


@pytest.mark.parametrize("number", ['"turn":1', '"revision":1'])
def test_an_import_that_says_true_for_1_is_sound(number: str) -> None:
    m = memory()
    m.add_many(["a cat"], provenances=[Provenance("chat", turn=1)])
    m.update("m1", "a small cat")
    m.add("a dog")
    lines = list(exported(m.store))
    twin = memory()
    imported(twin.store, [line.replace(number, number[:-1] + "true") if "item" in line else line for line in lines])
    assert check(twin.store) == []
    assert list(exported(twin.store)) == lines


def test_import_wants_an_empty_memory():
    m = memory()
    m.add("x")
    with pytest.raises(errors.MemoryProblem, match="not empty"):
        imported(m.store, exported(m.store))


def test_an_import_by_the_command_line_has_the_encoder_of_what_was_exported(tmp_path: Path):
    import keepworth
    from keepworth.cli.memory import app

    run = CliRunner()
    one, two, lines = (str(tmp_path / name) for name in ("a.mem", "b.mem", "a.jsonl"))
    with keepworth.Memory(one, encoder="hashing:64") as m:
        m.add("a cat")
    assert run.invoke(app, ["export", lines, "--file", one]).exit_code == 0
    assert run.invoke(app, ["import", lines, "--file", two]).exit_code == 0
    with keepworth.Memory(two, encoder="hashing:64") as m:
        assert [hit.text for hit in m.search("cat")] == ["a cat"]


def test_an_export_without_one_of_its_lines_is_refused():
    m = memory()
    a = m.add("a cat")
    m.update(a.id, "a dog")
    m.add("a dog")
    lines = list(exported(m.store))
    for place, line in enumerate(lines):
        if not line.startswith('{"scope'):
            with pytest.raises(errors.NotAMemoryFile):
                imported(memory().store, [*lines[:place], *lines[place + 1 :]])


def test_an_export_to_standard_output_loses_no_character(tmp_path: Path):
    from keepworth.cli.memory import app

    text = "\u200fשלום\u200e \u202aa\u202c \u2028 b"
    with Memory(tmp_path / "a.mem", encoder=None) as m:
        text = m.add(text, metadata={"k\x1b[31m": "\x9b2J"}).text
        listed = list(exported(m.store))
    done = CliRunner().invoke(app, ["export", "-", "--file", str(tmp_path / "a.mem")])
    assert done.exit_code == 0
    assert [json.loads(line) for line in done.output.splitlines()] == [json.loads(line) for line in listed]
    assert not set("\u200f\u202a\x1b\x9b") & set(done.output)
