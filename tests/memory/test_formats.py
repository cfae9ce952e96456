"""What other programs keep memories in is read, and what is written for them is what they read."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.adapters.formats import (
    FORMATS,
    place_in_file,
    read_folder,
    read_markdown,
    recognise,
    take,
    write_folder,
    write_lines,
    write_pam,
)
from keepworth.adapters.formats.pam import content_hash
from keepworth.cli.main import main
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import ALL, Item, Provenance
from keepworth.memory.memory import Memory
from keepworth.memory.store.transfer import exported
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
def test_json_lines_round_trip_the_current_items(m: Memory) -> None:
    twin = memory()
    items, bad = take(twin, FORMATS["jsonl"](write_lines(current(m))))
    assert bad == []
    assert [said(item) for item in current(twin)] == [said(item) for item in current(m)]
    assert write_lines(current(twin)) == write_lines(current(m))
    assert take(twin, FORMATS["jsonl"](write_lines(current(m))))[0] == items, "what is there already is stored once"


@settings(max_examples=25, deadline=None)
@given(m=filled())
def test_pam_document_round_trips_the_current_items(m: Memory) -> None:
    document = write_pam(current(m), owner="ana", now="2026-01-01T00:00:00")
    twin = memory()
    items, bad = take(twin, FORMATS["pam"](document))
    assert bad == []
    assert [said(item) for item in current(twin)] == [said(item) for item in current(m)]
    assert take(twin, FORMATS["pam"](document))[0] == items, "what is there already is stored once"


def write(files: dict[str, str], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


@settings(max_examples=25, deadline=None)
@given(m=filled())
def test_unedited_folder_import_is_a_no_op_and_fills_an_empty_memory(m: Memory) -> None:
    with TemporaryDirectory() as name:
        folder = write(write_folder(current(m)), Path(name) / "notes")
        assert recognise(folder) == "folder"
        head, there = m.store.head(), read_folder(folder)
        assert there.missing == {}
        take(m, there.records)
        assert m.store.head() == head
        twin = memory()
        take(twin, there.records)
    told = {
        said(replace(item, text="\n".join(line.rstrip() for line in item.text.strip().split("\n"))))
        for item in current(m)
    }
    assert {said(item) for item in current(twin)} == told


def folder_of(m: Memory, path: Path) -> Path:
    return write(write_folder(current(m)), path)


def edit(folder: Path, old: str, new: str) -> None:
    (file,) = (file for file in folder.glob("*.md") if old in file.read_text("utf-8"))
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")


def test_edited_folder_is_imported_with_its_changes(tmp_path: Path) -> None:
    m = memory()
    tea, milk = m.add("Ana likes tea", user_id="ana"), m.add("Bob likes milk", metadata={"topic": "Food & drink"})
    lesson, gone = m.add("Ask first.\n  Then act.", kind="lesson", event_time="2024-05-06"), m.add("the bus is late")
    folder = folder_of(m, tmp_path / "notes")
    assert sorted(file.name for file in folder.glob("*.md")) == [
        "facts-ana.md",
        "facts.md",
        "food-drink.md",
        "lessons.md",
    ]
    edit(folder, "Ana likes tea", "Ana likes green tea")
    edit(folder, "  Then act.", "  Then act well.")
    edit(folder, "Bob likes milk <!-- m2 -->", 'Bob likes milk <!-- m2 {"trust": 0.5} -->\n- Bob likes oats')
    edit(folder, f"- the bus is late <!-- {gone.id} -->\n", "")
    head, there = m.store.head(), read_folder(folder)
    take(m, there.records)
    assert m.get(tea.id).text == "Ana likes green tea"
    assert (m.get(lesson.id).text, m.get(lesson.id).event_time) == (
        "Ask first.\n  Then act well.",
        "2024-05-06T00:00:00",
    )
    assert (m.get(milk.id).trust, m.get(milk.id).text) == (0.5, "Bob likes milk")
    assert m.get(gone.id).current, "nothing is deleted unasked"
    (new,) = (item for item in current(m) if int(item.id[1:]) > head)
    assert (new.text, new.metadata, new.provenance) == ("Bob likes oats", {"topic": "Food & drink"}, Provenance())
    there = current(m)
    take(m, read_folder(folder).records)
    assert current(m) == there, "the second time there is nothing left to do"
    edit(folder, f"- Ana likes green tea <!-- {tea.id} -->\n", "")
    there = read_folder(folder)
    assert set(there.missing) == {gone.id, tea.id}
    take(m, there.records, gone=there.missing)
    assert (m.get(gone.id).deleted, m.get(tea.id).deleted) == (True, True), "also what was edited there before"
    m.rollback(source="edited")
    assert m.get(milk.id).trust == 1.0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("- Bob <!-- m1 -->", '- Bob <!-- m1 {"trust": -->', r"line 5: its comment|line 5: .*trust"),
        ("- Bob <!-- m1 -->", '- Bob <!-- m1 {"trust": } -->', r"facts\.md, line 5: its comment holds no JSON"),
        (
            "- Bob <!-- m1 -->",
            '- Bob <!-- m1 {"kind": "lesson"} -->',
            r"facts\.md, line 5: kind of m1 cannot be changed",
        ),
        ("- Bob <!-- m1 -->", "- Bob <!-- m1 -->\nBob is here", r"facts\.md, line 6: 'Bob is here' is no item"),
        (
            "- Bob <!-- m1 -->",
            "- Bob <!-- m1 -->\n- Ana <!-- m1 -->",
            r"m1 twice: facts\.md, line 5 and facts\.md, line 6",
        ),
        ("<!-- keepworth {} -->", "<!-- keepworth {]} -->", r"facts\.md, line 3: its comment holds no JSON"),
    ],
)
def test_folder_mistakes_are_named_with_file_and_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    m = memory()
    m.add("Bob")
    folder = folder_of(m, tmp_path / "notes")
    edit(folder, old, new)
    head = m.store.head()
    if says.startswith("line 5"):  # no comment of ours, so that it is part of what is said
        take(m, read_folder(folder).records)
        assert m.get_all()[-1].text == new.removeprefix("- ")
        return
    with pytest.raises(MemoryProblem, match=says):
        take(m, read_folder(folder).records)
    assert m.store.head() == head


def test_folder_import_reports_conflicts_and_refuses_erased_items(tmp_path: Path) -> None:
    m = memory()
    m.add_many(["Bob", "Ana", "Cleo", "Dan"])
    folder = folder_of(m, tmp_path / "notes")
    m.update("m1", "Bob is here")
    m.delete("m2")
    take(m, read_folder(folder).records)
    assert [item.text for item in current(m)] == ["Bob is here", "Cleo", "Dan"], "an unchanged line says nothing new"
    edit(folder, "- Bob ", "- Bob is there ")
    with pytest.raises(MemoryProblem, match="m1 was changed in the memory since the export, too"):
        take(m, read_folder(folder).records)
    edit(folder, "- Bob is there ", "- Bob ")
    edit(folder, "- Ana ", "- Ana is here ")
    with pytest.raises(MemoryProblem, match="m2 is deleted by now"):
        take(m, read_folder(folder).records)
    edit(folder, "- Ana is here <!-- m2 -->\n", "")
    edit(folder, "- Dan <!-- m4 -->\n", "")
    m.update("m4", trust=0.5)
    there = read_folder(folder)
    take(m, there.records, gone=there.missing)
    assert m.get("m4").current, "what was changed since is not deleted"
    m.forget("m3", purge_history=True)
    with pytest.raises(MemoryProblem, match="m3 was erased on purpose"):
        take(m, read_folder(folder).records)


PAM = {
    "schema": "portable-ai-memory",
    "schema_version": "1.0",
    "owner": {"id": "ana"},
    "memories": [
        {
            "id": "a", "type": "preference", "content": "Likes  TEA", "tags": ["drink"],
            "content_hash": "sha256:49b51ad4e3e61edd4f6a6a20d9a9a2ef2e0cc1a46d07ae4cc0e0b3cd1a4a2bd7",
            "temporal": {"created_at": "2024-05-06T07:08:00-07:00", "valid_until": "2030-01-01T00:00:00Z"},
            "provenance": {"platform": "chatgpt", "conversation_ref": "c1"}, "confidence": {"current": 0.5},
            "metadata": {"language": "en", "domain": None},
        },
        {
            "id": "b", "type": "fact", "status": "retracted", "content": "x", "content_hash": "sha256:" + "0" * 64,
            "temporal": {"created_at": "2024-05-06T07:08:00Z"}, "provenance": {"platform": "chatgpt"},
        },
    ],
}  # fmt: skip


def test_foreign_pam_document_is_read_and_its_mistakes_named() -> None:
    document = json.loads(json.dumps(PAM))
    document["memories"][0]["content_hash"] = content_hash("likes tea")
    items, left_out = take(m := memory(), FORMATS["pam"](json.dumps(document, indent=1)), user_id="ana")
    (item,) = items
    assert (item.text, item.trust, item.scope.user) == ("Likes  TEA", 0.5, "ana")
    assert (item.event_time, item.valid_to) == ("2024-05-06T14:08:00", "2030-01-01T00:00:00")
    assert item.metadata == {"type": "preference", "tags": ["drink"], "language": "en"}
    assert (item.provenance.source, item.provenance.session) == ("pam:chatgpt", "c1")
    assert left_out == ["line 32: it was retracted"]
    with pytest.raises(MemoryProblem, match=r"line 8: its content_hash is not that of its content"):
        take(m, FORMATS["pam"](json.dumps(PAM, indent=1)))
    for wrong, says in (
        ({**PAM, "schema_version": "2.0"}, "version '2.0'"),
        ({**PAM, "schema": "portable-ai-memory-conversation"}, "no PAM document of memories"),
        ({**PAM, "memories": {}}, "no list of memories"),
        ({**PAM, "memories": [{"id": "a"}]}, r"line 8: it is no memory of PAM \(content: Field required\)"),
        ({**PAM, "memories": [3]}, r"line 8: it is no memory of PAM \(it is no object\)"),
        ({**PAM, "memories": [None]}, r"line 8: it is no memory of PAM \(it is no object\)"),
        ({**PAM, "memories": [{**document["memories"][0], "temporal": None}]}, r"\(temporal: Input should be "),
        (
            {**PAM, "memories": [{**document["memories"][0], "temporal": {}}]},
            r"\(temporal.created_at: Field required\)",
        ),
        ({**PAM, "memories": [{**document["memories"][0], "confidence": 1}]}, r"\(confidence: Input should be "),
    ):
        with pytest.raises(MemoryProblem, match=says):
            take(m, FORMATS["pam"](json.dumps(wrong, indent=1)))
    with pytest.raises(MemoryProblem, match=r"This is no JSON: .* \(line 12\)"):
        list(FORMATS["pam"]("\n".join(json.dumps(document, indent=1).split("\n")[:12])))


def test_markdown_lines_keep_their_identity_when_they_move() -> None:
    m = memory()

    def read(text: str, file: str = "CLAUDE.md") -> list[Item]:
        return take(m, place_in_file(read_markdown(text), file))[0]

    one, two = read("# Style\n- two spaces\n- tests first\n")
    assert one.metadata == {"heading": "Style", "file": "CLAUDE.md", "line": 2}
    assert one.provenance == Provenance("CLAUDE.md")
    head = m.store.head()
    assert read("# Style\n- two spaces\n- tests first\n") == [one, two]
    assert m.store.head() == head
    moved, new, again = read("# Tests\n\n- tests first\n- no skips\n- tests first\n")
    assert (moved.id, moved.metadata) == (two.id, {"heading": "Tests", "file": "CLAUDE.md", "line": 5})
    assert (again.id, new.text) == (two.id, "no skips")
    assert read("- two spaces\n", "AGENTS.md")[0] == m.get(one.id), "another file may say it, too"
    assert [item.text for item in current(m)] == ["two spaces", "tests first", "no skips"]


FORMS = {
    "markdown": ("# Notes\n- a\n", "[Ana]: tea\n", '"Be kind," he said.\n', "", "[x] done\n"),
    "jsonl": ('{"text": "a"}\n', '"a"\n"b"\n', '{"text": "a"}\n{"text": \n', '{"content": "a"}'),
    "mem0": ('{"results": []}', '[{"memory": "a"}]', '[\n {"memory": "a"}\n]', '{\n"results": [{"memory": '),
    "pam": ('{"schema": "portable-ai-memory"}', '{\n"schema": "portable-ai-memory",\n'),
    "keepworth": ('{"format": "keepworth memory", "version": 3}\n{"item": 3}\n',),
}


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, texts in FORMS.items() for text in texts])
def test_format_is_recognised_by_content(tmp_path: Path, form: str, text: str) -> None:
    file = tmp_path / "a file.txt"
    file.write_text(text, "utf-8")
    assert recognise(file) == form


@pytest.mark.parametrize("ending", ["json", "jsonl", "ndjson"])
def test_words_in_a_file_named_json_are_no_notes(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    file.write_text("garbage\n", "utf-8")
    assert recognise(file) == "jsonl"
    with memory() as m, pytest.raises(MemoryProblem, match="line 1: it is no JSON"):
        take(m, FORMATS["jsonl"](file.read_text("utf-8")))


def test_unrecognised_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(MemoryProblem, match="is a folder that this program did not write"):
        recognise(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MemoryProblem, match=r"a\.bin is not UTF-8 text"):
        recognise(tmp_path / "a.bin")


def test_the_command_line_takes_several_files_a_folder_and_pam(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["memory", *line.split(), "--file", str(tmp_path / "a.mem")])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    (tmp_path / "rules").mkdir()
    (tmp_path / "CLAUDE.md").write_text("- use uv\n", "utf-8")
    (tmp_path / "rules" / "tests.mdc").write_text(
        "---\nalwaysApply: true\nglobs: '*.py'\n---\n- tests first\n", "utf-8"
    )
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n{"text": ""}\n', "utf-8")
    files = f"{tmp_path}/CLAUDE.md {tmp_path}/rules/tests.mdc"
    assert run(f"import {files} --encoder none")[:2] == (0, "2 items, 0 that were there already.\n")
    code, _, err = run(f"import {files} {tmp_path}/bad.jsonl")
    assert (code, "bad.jsonl, line 2: text is empty" in err) == (2, True)
    (tmp_path / "notes").mkdir()
    assert run(f"export {tmp_path}/notes --to folder")[0] == 0, "an empty folder is filled"
    assert run(f"export {tmp_path}/notes --to folder")[0] == 2, "nothing is overwritten"
    assert run(f"import {tmp_path}/notes")[1] == "0 items, 2 that were there already.\n"
    edit(tmp_path / "notes", "use uv", "use uv, not pip")
    (file,) = (file for file in (tmp_path / "notes").glob("*.md") if "tests first" in file.read_text("utf-8"))
    file.unlink()
    code, out, err = run(f"import {tmp_path}/notes")
    assert (code, out) == (0, "0 items, 0 that were there already, 1 changed.\n")
    assert "--delete-missing deletes it" in err
    assert run(f"import {tmp_path}/notes --delete-missing")[1] == "0 items, 1 that were there already, 1 deleted.\n"
    undone = json.loads(run("rollback --source edited --json")[1])["id"]
    assert {line["text"] for line in map(json.loads, run("list --json")[1].splitlines())} == {"use uv", "tests first"}
    assert run(f"rollback {undone}")[0] == 0
    assert run(f"import {files} --delete-missing")[0] == 2
    assert run(f"export {tmp_path}/a.json --to pam")[0] == 0
    assert run(f"import {tmp_path}/a.json")[1] == "0 items, 1 that were there already.\n"
    assert run(f"export {tmp_path}/b.jsonl --to keepworth")[0] == 0
    code, _, err = run(f"import {tmp_path}/b.jsonl {tmp_path}/a.json")
    assert (code, "is a whole memory" in err) == (2, True)


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


@pytest.mark.parametrize("image", [0, "2020-01-01", '{"text": 5}'])
def test_an_image_in_a_journal_that_cannot_be_read_is_one_of_the_import(image: Any, tmp_path: Path, capsys) -> None:
    m = memory()
    m.update(m.add("a cat").id, "a dog")
    lines = [json.loads(line) for line in exported(m.store)]
    change = next(line["change"] for line in reversed(lines) if "change" in line)
    change[3] = image
    (source := tmp_path / "all.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["memory", "import", str(source), "--file", str(tmp_path / "a.mem"), "--encoder", "none"]) == 2
    said = capsys.readouterr().err
    assert "the import does not agree with itself (an image in the journal cannot be read" in said
    assert "nothing was imported" in said


def test_a_pipe_is_imported_where_its_form_is_named_and_never_read_as_empty(tmp_path: Path, capsys) -> None:
    """A pipe gives its content once, and recognising its form would read it."""
    file, pipe = str(tmp_path / "a.mem"), tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["memory", "import", str(pipe), "--file", file, "--encoder", "none"]
    for form in ([], ["--from", "keepworth"]):
        assert main([*words, *form]) == 2
        assert re.search(r"is a pipe, .*\n.*Say it with --from \(jsonl,", capsys.readouterr().err)
    writer = Thread(target=pipe.write_text, args=('{"text": "a cat"}\n',), daemon=True)
    writer.start()
    assert main([*words, "--from", "jsonl"]) == 0
    assert capsys.readouterr().out.startswith("1 items")
    writer.join()
    assert main(["memory", "import", "/dev/zero", "--from", "jsonl", "--file", file]) == 2
    assert "/dev/zero is a device" in capsys.readouterr().err


def test_sources_that_are_no_file_of_the_form_are_named(tmp_path: Path, capsys) -> None:
    folder, note = tmp_path / "notes", tmp_path / "note.md"
    folder.mkdir()
    note.write_text("- a cat\n")
    (m := memory()).add("a dog")
    for name, text in write_folder(current(m)).items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "pipe.md")
    for source, form, says in (
        (folder, "keepworth", "notes is a folder, and keepworth is the form of a file"),
        (note, "folder", r"note\.md is no folder"),
        (folder, "", r"pipe\.md is no file that can be read.*\n.*Move it"),
        (folder, "folder", r"pipe\.md is no file that can be read.*\n.*Move it"),
    ):
        words = ["memory", "import", str(source), "--file", str(tmp_path / "a.mem"), "--encoder", "none"]
        assert main([*words, *(["--from", form] if form else [])]) == 2
        assert re.search(says, capsys.readouterr().err)
    next(folder.glob(".*.json")).unlink()
    with pytest.raises(MemoryProblem, match=r"pipe\.md is no file"):
        recognise(folder)


def test_bad_lines_are_named_by_number_and_import_is_atomic(path: Path, tmp_path: Path, capsys) -> None:
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
    with pytest.raises(MemoryProblem, match=r"line 1: provenance has no field 'turns': its fields are source, "):
        take(m, FORMATS["jsonl"]('{"text": "a cat", "provenance": {"turns": 3}}'))
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
        (f"import {file} --user ana", "is a database"),
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


TWINS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"metadata": {"topic": "tea", "n": 2}},
    {"event_time": "2026-01-02"},
    {"metadata": {"topic": "anis"}, "trust": 0.5},
    {"metadata": {"file": "notes.md", "line": 3}},
)
"""In what notes of the same words differ that were stored with `repeat`."""


@pytest.mark.parametrize("form", ["jsonl", "pam", "folder"])
def test_repeated_notes_that_differ_in_their_fields_are_exported_and_imported_once_each(
    form: str, tmp_path: Path
) -> None:
    m = memory()
    for user in (ALL, "ana"):
        for fields in TWINS:
            m.add("Ana likes tea.", user_id=user, repeat=True, **fields)
    if form == "folder":
        records = read_folder(folder_of(m, tmp_path / "notes")).records
    else:
        whole = write_lines(current(m)) if form == "jsonl" else write_pam(current(m), owner="ana", now="2026-01-01")
        records = list(FORMATS[form](whole))
    twin = memory()
    for _ in range(2):
        take(twin, records)
        assert Counter(map(said, current(twin))) == Counter(map(said, current(m)))
    before = current(m)
    take(m, records)
    assert current(m) == before, "what is there already is stored once"


def test_lines_that_are_there_once_add_no_copies_when_the_file_is_imported_again() -> None:
    whole = "".join(json.dumps(row) + "\n" for row in ("tea", "tea", {"text": "tea", "repeat": True}))
    m = memory()
    for _ in range(3):
        take(m, FORMATS["jsonl"](whole))
        assert texts(m) == ["tea", "tea"]
