"""What somebody asks not to keep is not kept, and what somebody asks to forget is deleted, which undo brings back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from keepworth import Memory
from keepworth.methods.writers.facts import Facts


def tell(memory: Memory, *messages: str, **options: str) -> list[str]:
    """Say messages one after the other, and return the notes that are left."""
    before: dict[str, str] = {}
    for text in messages:
        memory.add([{"role": "user", "content": text, **before}], infer=True, **options)  # type: ignore[arg-type]
        before = {"before": text}
    return [item.text for item in memory.get_all()]


@pytest.mark.parametrize("writer", ["statements", "rules"])
@pytest.mark.parametrize("message", [
    "My friend Zoe told me she's pregnant, but that's a secret, don't remember this.",
    "I earn 85k a year. Please don't remember that.",
    "Please don't store this: I have diabetes.",
    "I have HIV. Don't save this.",
    "Do not remember that I am diabetic.",
    "Off the record: I'm looking for a new job.",
    "I don't want you to remember this: I owe my brother money.",
    "I was in prison once. This should not be remembered.",
    "Merk dir das bitte nicht: Ich habe Diabetes.",
    "Ich verdiene 85000 Euro. Das bitte nicht merken.",
    "Speichere das nicht: Ich bin schwanger.",
    "No recuerdes esto: tengo diabetes.",
    "Tengo diabetes, pero no lo guardes.",
    "Ne retiens pas ça : je suis diabétique.",
    "Je suis enceinte. N'enregistre pas ça.",
    "これは覚えないでください：私は糖尿病です。",
])  # fmt: skip
def test_message_that_asks_not_to_be_kept_is_not_kept(message: str, writer: str) -> None:
    with Memory(writer=writer) as memory:
        assert tell(memory, message) == []


@pytest.mark.parametrize(("message", "note"), [
    ("Don't forget that I am diabetic.", "I am diabetic."),
    ("Vergiss nicht, dass ich Diabetes habe.", "Ich habe Diabetes."),
    ("I don't remember this movie.", "I don't remember this movie."),
    ("Don't remember what it was called, but I liked it.", "Don't remember what it was called, but I liked it."),
    ("Never store passwords in plain text.", "Never store passwords in plain text."),
    ("Ich kann mir das nicht merken.", "Ich kann mir das nicht merken."),
])  # fmt: skip
def test_statement_with_similar_words_is_kept(message: str, note: str) -> None:
    with Memory() as memory:
        assert tell(memory, message) == [note]


CAT = "I have a cat called Tom."


@pytest.mark.parametrize(("note", "request_"), [
    ("The gate code is 4471#.", "Please forget the gate code."),
    ("The gate code is 4471#.", "Can you forget the gate code?"),
    ("I am diabetic.", "Forget that I am diabetic."),
    ("I am diabetic.", "Please delete what you know about my diabetes."),
    ("I love jazz.", "Forget everything I told you about jazz, I was joking."),
    ("I have HIV.", "Don't save this."),
    ("I have HIV.", "Forget what I just said."),
    ("Der Torcode ist 4471.", "Vergiss bitte den Torcode."),
    ("Ich bin Diabetiker.", "Vergiss, dass ich Diabetiker bin."),
    ("Mein Chef heißt Müller.", "Vergiss alles über meinen Chef."),
    ("Me encantan las gambas.", "Olvida lo de las gambas, era broma."),
    ("Mon code est 4471.", "Oublie mon code s'il te plaît."),
])  # fmt: skip
def test_request_to_forget_deletes_the_note_that_it_names(note: str, request_: str) -> None:
    with Memory() as memory:
        assert tell(memory, CAT, note) == [CAT, note]
    with Memory() as memory:
        assert tell(memory, CAT, note, request_) == [CAT]


def test_rollback_brings_back_a_note_that_was_forgotten() -> None:
    with Memory() as memory:
        tell(memory, CAT, "The gate code is 4471#.")
        before = memory.snapshot()
        assert tell(memory, "Please forget the gate code.") == [CAT]
        memory.rollback(since=before)
        assert [item.text for item in memory.get_all()] == [CAT, "The gate code is 4471#."]


@pytest.mark.parametrize(("note", "message"), [
    ("The tests run with make check.", "Forget the tests, just ship it."),
    ("The tests run with make check.", "Remove the tests from the build."),
    ("I use Python for data.", "Forget Python, let's use Go."),
    ("I live in Rome.", "Forget it."),
    ("My name is Ana and I live in Rome.", "Forget that I live in Rome."),
    ("My sister lives in Graz.", "Please forget my keys."),
])  # fmt: skip
def test_request_about_something_else_deletes_no_note(note: str, message: str) -> None:
    with Memory() as memory:
        assert note in tell(memory, note, message)


def test_request_to_forget_deletes_notes_of_the_same_person_only() -> None:
    with Memory() as memory:
        tell(memory, "The gate code is 4471#.", user_id="ana")
        tell(memory, "Please forget the gate code.", user_id="ben")
        assert [item.text for item in memory.get_all(user_id="ana")] == ["The gate code is 4471#."]


def test_no_writer_reads_a_message_that_is_not_to_be_kept() -> None:
    seen: list[str] = []

    def extract(messages: Sequence[Mapping[str, Any]]) -> list[str]:
        seen.extend(str(message["content"]) for message in messages)
        return []

    with Memory(writer=Facts(extract)) as memory:
        assert memory.add("I have diabetes. Please don't save this.", infer=True) == []
        memory.add("I have a cat.", infer=True)
    assert seen == ["I have a cat."]


@pytest.mark.parametrize(
    "calls",
    [
        [["I have HIV."], ["Don't save this."]],
        [["I have HIV.", "Don't save this."]],
        [["I have HIV."], ["Forget what I just said."]],
        [["I have HIV."], ["Off the record."]],
        [["Ich habe HIV."], ["Merk dir das nicht."]],
        [["I'm pregnant (don't save this)."]],
        [["My password is hunter2. Do not store."]],
    ],
)
def test_a_request_not_to_keep_takes_back_the_message_before(calls: list[list[str]]) -> None:
    with Memory(":memory:", encoder="hashing") as memory:
        memory.add([{"role": "user", "content": "I like tea."}], infer=True)
        for texts in calls:
            memory.add([{"role": "user", "content": text} for text in texts], infer=True)
        assert [item.text for item in memory.get_all()] == ["I like tea."]


def test_an_old_note_stays_where_a_request_names_no_statement() -> None:
    times = ["2026-12-01T09:00", "2026-12-02T09:00"]
    with Memory(":memory:", encoder="hashing", clock=lambda: times[0]) as memory:
        memory.add([{"role": "user", "content": "I like tea."}], infer=True)
        times.pop(0)
        memory.add([{"role": "user", "content": "Don't save this."}], infer=True)
        assert [item.text for item in memory.get_all()] == ["I like tea."]


@pytest.mark.parametrize("request_to_forget", ["Please forget the gate code.", "Forget what I just said."])
def test_a_person_with_a_name_forgets_notes_of_that_person_alone(request_to_forget: str) -> None:
    with Memory(":memory:", encoder="hashing") as memory:
        for name, text in (("Bob", "My dog is Rex."), ("Ana", "The gate code is 4471."), ("Ana", request_to_forget)):
            memory.add([{"role": "user", "name": name, "content": text}], infer=True)
        assert [item.text for item in memory.get_all()] == ["Bob: My dog is Rex."]


def test_a_request_not_to_keep_leaves_notes_of_no_message() -> None:
    with Memory(":memory:", encoder="hashing") as memory:
        memory.add_many(["The build needs Java 21.", "Deploys are on Tuesdays."])
        memory.add([{"role": "user", "content": "Don't save this."}], infer=True)
        assert [item.text for item in memory.get_all()] == ["The build needs Java 21.", "Deploys are on Tuesdays."]


def test_an_answer_without_a_memory_deletes_no_note() -> None:
    with Memory(":memory:", encoder="hashing") as memory:
        for text in ("I like tea.", "Don't remember."):
            memory.add([{"role": "user", "content": text}], infer=True)
        assert "I like tea." in [item.text for item in memory.get_all()]
