"""What other programs keep memories in is read, and what is written for them is what they read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.adapters.formats import FORMATS, take, write_lines
from keepworth.cli.main import main
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import ALL, Item, Provenance
from keepworth.memory.memory import Memory
from tests.memory.helpers import texts

TIMES = st.sampled_from(["", "2024-05-06T07:08:00", "2025-01-01T00:00:00"])
TEXTS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc")) | st.sampled_from("\n\n#-*+>`\\1. "), min_size=1, max_size=60
).filter(lambda text: text.strip())
NAMES = st.sampled_from(["", "ana", "bo b", "ä"])


def memory(path: object = ":memory:") -> Memory:
    return Memory(path, encoder=None, policy=None, clock=lambda: "2026-01-01T00:00:00")


@st.composite
def filled(draw: Any) -> Memory:
    """With scopes, dates, kinds, provenance and metadata."""
    m = memory()
    for text in draw(st.lists(TEXTS, max_size=6)):
        item = m.add_many(
            [text],
            user_id=draw(NAMES) or ALL, agent_id=draw(NAMES) or ALL, session_id=draw(NAMES) or ALL, event_time=draw(TIMES),
            kind=draw(st.sampled_from(["fact", "lesson", "core"])), key=draw(st.sampled_from(["", "the key"])),
            valid_from=draw(st.sampled_from(["", "2020-01-01T00:00:00"])), trust=draw(st.sampled_from([1.0, 0.25])),
            metadata=draw(st.sampled_from([None, {"team": "red", "n": [1, {"a": None}]}])),
            provenances=[draw(st.sampled_from([Provenance(), Provenance("wiki", "s1", 3, "Ana", "2024")]))],
        )[0]  # fmt: skip
        if draw(st.booleans()):
            m.supersede(item.id, f"{text} (changed)", source="later")
    return m


def said(item: Item) -> tuple[Any, ...]:
    """All that a memory says of the world, and where it has it from."""
    return (
        item.text, item.kind, item.key, item.scope, item.event_time, item.valid_from, item.valid_to, item.expires_at,
        item.trust, json.dumps(item.metadata, sort_keys=True), item.provenance,
    )  # fmt: skip


def current(m: Memory) -> list[Item]:
    return m.get_all(limit=1000)


@settings(max_examples=25, deadline=None)
@given(m=filled())
def test_what_is_true_now_comes_back_from_lines_of_json(m: Memory) -> None:
    twin = memory()
    items, bad = take(twin, FORMATS["jsonl"](write_lines(current(m))))
    assert bad == []
    assert [said(item) for item in current(twin)] == [said(item) for item in current(m)]
    assert write_lines(current(twin)) == write_lines(current(m))
    assert take(twin, FORMATS["jsonl"](write_lines(current(m))))[0] == items, "what is there already is stored once"


def test_markdown_as_people_write_it() -> None:
    text = (
        "\ufeff# Project\r\n\r\nWe use uv.\r\nNot pip.\r\n\n## Style\n- two spaces\n  - no tabs\n* [x] tests first\n1. one\n"
        "   more of one\n\n   and its second paragraph\n\n---\n```sh\n# no heading\nmake\n```\n<!-- note -->\n#hashtag\n"
    )
    found = [(read.place, read.record["text"], read.record.get("metadata")) for read in FORMATS["markdown"](text)]
    assert [(place, text, (metadata or {}).get("heading")) for place, text, metadata in found] == [
        ("line 3", "We use uv.\nNot pip.", "Project"),
        ("line 7", "two spaces", "Project > Style"),
        ("line 8", "no tabs", "Project > Style"),
        ("line 9", "tests first", "Project > Style"),
        ("line 10", "one\nmore of one\n\nand its second paragraph", "Project > Style"),
        ("line 16", "```sh\n# no heading\nmake\n```", "Project > Style"),
        ("line 21", "#hashtag", "Project > Style"),
    ]


NOTES = {
    "rules": ("Ana is allergic.\n---\nBob likes tea.\n---\nCleo is 7.", ["Ana is allergic.", "Bob likes tea.", "Cleo is 7."]),
    "front matter": ("---\ntitle: My notes\n---\nAna likes tea.", ["title: My notes", "Ana likes tea."]),
    "references": ("[Ana]: tea\n\n[Bo]: coffee", ["[Ana]: tea", "[Bo]: coffee"]),
    "html": ("<p>Ana likes tea</p>\n\n<!-- note -->\n\nBo swims.", ["Ana likes tea", "Bo swims."]),
    "deep lists": ("".join(f"{'  ' * n}- entry {n}\n" for n in range(20)), [f"entry {n}" for n in range(20)]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_no_text_of_markdown_is_lost(name: str) -> None:
    found = [read.record for read in FORMATS["markdown"](NOTES[name][0])]
    assert [record["text"] for record in found] == NOTES[name][1]
    assert not any("metadata" in record for record in found), "and none becomes a heading"


def test_mem0_s_list_is_read_with_its_persons_times_and_metadata() -> None:
    row = {
        "id": "4f", "memory": "Likes tea", "hash": "x", "metadata": {"team": "red"}, "user_id": "ana", "run_id": "s1",
        "created_at": "2024-05-06T07:08:00.123456-07:00", "updated_at": None, "actor_id": "a", "expiration_date": "2030-01-01",
    }  # fmt: skip
    for whole in ({"results": [row]}, [row]):
        (item,), _ = take(m := memory(), FORMATS["mem0"](json.dumps(whole)))
        scope = (item.scope.user, item.scope.session)
        assert (item.text, scope, item.metadata) == ("Likes tea", ("ana", "s1"), {"team": "red"})
        assert (item.event_time, item.expires_at) == ("2024-05-06T14:08:00.123456", "2030-01-01T00:00:00")
        assert len(current(m)) == 1
    for wrong in ("{}", "3", '{"results": 5}', "[", "[" * 100_000):
        with pytest.raises(MemoryProblem, match=r"no list of mem0|no JSON"):
            list(FORMATS["mem0"](wrong))


BAD_LINES = [
    *('{"text": "fine"}', "{", "3", '{"text": ""}'),
    '{"text": "x", "colour": 1}',
    '{"text": "x", "event_time": "soon"}',
    *(f'{{"text": "x", "metadata": {value}}}' for value in (3, '["a"]', '"a"', 0, "false")),
    '"also fine"',
]


def test_bad_lines_are_named_by_number_and_nothing_is_half_imported(path: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(MemoryProblem, match=r"10 entries .*: line 2: .*line 3: .*line 4: .*line 5: .*line 6: "):
        take(m := memory(), FORMATS["jsonl"]("\n".join(BAD_LINES)))
    assert current(m) == []
    assert m.store.head() == 0
    source = tmp_path / "notes.jsonl"
    source.write_text("\n".join([*BAD_LINES, BAD_LINES[0]]), encoding="utf-8")
    words = f"memory import {source} --from jsonl --file {path} --encoder none --user ana".split()
    assert main(words) == 2
    assert "has 10 entries that cannot be taken: line 2: it is no JSON" in capsys.readouterr().err
    assert not path.exists()
    with pytest.raises(MemoryProblem, match=r"line 1: it has no field 'text': is it 'txt'[?] Rename it"):
        take(m, FORMATS["jsonl"]('{"txt": "a cat"}'))
    assert main([*words, "--skip-bad"]) == 0
    said = capsys.readouterr()
    assert said.out == "2 items, 1 that were there already, 10 left out.\n"
    assert said.err.count("Left out: line") == 10
    assert said.err.count("metadata must be an object") == 5
    with Memory(path, encoder=None) as there:
        assert [(item.text, item.scope.user) for item in current(there)] == [("fine", "ana"), ("also fine", "ana")]


def test_the_command_line_writes_and_reads_lines_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target, twin = (tmp_path / name for name in ("a.mem", "out.jsonl", "twin.mem"))

    def run(line: str, *, of: Path = file) -> int:
        return main(["memory", *line.split(), "--file", str(of)])

    with Memory(file, encoder=None) as m:
        m.add("Ana likes tea", user_id="ana")
        m.add("Bob likes milk", user_id="bob")
    assert run(f"export {target} --to jsonl --user ana") == 0
    assert "Bob" not in target.read_text(encoding="utf-8")
    assert run(f"export {target} --to jsonl") == 2, "nothing is overwritten"
    for _ in range(2):
        assert run(f"import {target} --from jsonl --encoder none", of=twin) == 0
    with Memory(twin, encoder=None) as m:
        assert texts(m) == ["Ana likes tea"]
    capsys.readouterr()
    assert run("export - --to jsonl --user bob") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "Bob likes milk"
    for line, says in (
        ("export x --to jsonll", "Did you mean 'jsonl'"),
        ("export x --user ana", "writes the whole memory"),
        (f"import {file} --user ana", "takes a whole memory as it was"),
        (f"import {file} --from markdown", "is not UTF-8 text"),
    ):
        assert run(line) == 2
        assert says in capsys.readouterr().err


def test_empty_lines_are_read_once() -> None:
    began = time.process_time()
    (found,) = FORMATS["markdown"]("- a\n" + "\n" * 20_000 + "  b\n")
    assert found.record["text"].split() == ["a", "b"]
    assert [read.record["text"] for read in FORMATS["markdown"]("- a\n" + "\n" * 20_000 + "b\n")] == ["a", "b"]
    assert time.process_time() - began < 2.0


def test_comments_that_never_end_are_looked_through_once() -> None:
    began = time.process_time()
    (found,) = FORMATS["markdown"]("<!-- a --> tea" + " <!--" * 50_000)
    assert found.record["text"].startswith("tea <!--")
    assert time.process_time() - began < 2.0


def test_a_turn_of_line_breaks_alone_is_read_at_once(m: Memory) -> None:
    m.add([{"role": "user", "content": "I like tea."}], infer=True)
    began = time.process_time()
    assert m.add([{"role": "user", "content": "\n" * 20_000}], infer=True) == []
    assert time.process_time() - began < 1.0
