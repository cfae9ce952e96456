"""Questions of one's own: when each thing was said, what is alike, and what is refused by its line and its field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from keepworth.records.episode import Task
from keepworth.worlds.benchmark import cluster_of, haystack, sharing
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.json_lines import json_lines
from keepworth.worlds.verifiers import verify


def line(number: int, **change: Any) -> dict[str, Any]:
    writes = [{"id": "home", "text": f"I live in town number {number}."}]
    questions = [{"text": "In which town do I live?", "answers": [str(number)], "evidence": ["home"]}]
    return {"id": f"chat-{number}", "writes": writes, "questions": questions, **change}


def read(tmp_path: Path, *lines: dict[str, Any] | str) -> list[Task]:
    path = tmp_path / "mine.jsonl"
    whole = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    path.write_bytes(whole.encode("utf-8"))
    return json_lines("test", data=path)


def test_each_write_keeps_its_own_time(tmp_path: Path) -> None:
    writes = [
        {"text": "I had breakfast.", "time": "2026-01-03T10:00"},
        {"text": "In another talk.", "session": "b"},
        {"id": "car", "text": "I bought a car today.", "time": "2026-06-20T10:00"},
        {"text": "It is red."},
        {"text": "Much later.", "session": "b", "time": "2027-01-01"},
    ]
    questions = [{"text": "When did I buy a car?", "answers": ["20 June 2026"], "evidence": ["car"]}]
    (task,) = read(tmp_path, line(1, writes=writes, questions=questions))
    told = [(entry.session, entry.turn, entry.date, entry.evidence) for entry in haystack(task)]
    assert told == [
        ("chat-1/0", 0, "2026-01-03T10:00", False),
        ("chat-1/0", 1, "2026-06-20T10:00", True),
        ("chat-1/0", 2, "2026-06-20T10:00", False),  # as the one before it
        ("chat-1/b", 0, "", False),
        ("chat-1/b", 1, "2027-01-01", False),
    ]


@pytest.mark.parametrize(
    "time", ["yesterday", "2026", "2026-13-01", "2026-02-30", "20260103", "2026-01-03T25:00", "10:00"]
)
def test_invalid_time_is_refused(tmp_path: Path, time: str) -> None:
    with pytest.raises(WrongFormat, match=f"line 1, write 1: time is '{time}'"):
        read(tmp_path, line(1, writes=[{"text": "x", "id": "home", "time": time}]))
    with pytest.raises(WrongFormat, match=f"line 1, question 1: time is '{time}'"):
        read(tmp_path, line(1, questions=[{"text": "x", "answers": ["y"], "time": time}]))


@pytest.mark.parametrize(
    "time",
    ["2026-01-03", "2026-01-03T10:00", "2026-01-03 10:00:59.25", "2026-01-03T10:00:00+02:00", "2026-01-03T10:00Z"],
)
def test_times_of_every_precision_are_taken(tmp_path: Path, time: str) -> None:
    (task,) = read(tmp_path, line(1, writes=[{"text": "x", "id": "home", "time": time}]))
    assert haystack(task)[0].date == time


def test_lines_with_equal_names_have_separate_memories(tmp_path: Path) -> None:
    def write(text: str, **more: str) -> list[dict[str, str]]:
        return [{"id": "home", "text": text, **more}]

    tasks = read(
        tmp_path,
        line(1, id="u", writes=write("I live in Leeds.", session="1-0")),
        line(2, id="u-1", writes=write("I live in York.")),
        line(3, id="a/b", writes=write("I live in Ripon.", session="c")),
        line(4, id="a", writes=write("I live in Derby.", session="b/c")),
        line(5, id="a%2Fb", writes=write("I live in Bath.", session="c")),
    )
    assert sharing(tasks) == [[0], [1], [2], [3], [4]]
    assert len({session.id for task in tasks for session in task.sessions}) == 5


def test_an_id_stands_once(tmp_path: Path) -> None:
    def asked(number: int, name: str) -> dict[str, Any]:
        return line(number, id="u", questions=[{"id": name, "text": "Where?", "answers": ["x"]}])

    with pytest.raises(WrongFormat, match="line 2: the id 'u' is that of line 1"):
        read(tmp_path, asked(1, "a"), asked(2, "b"))
    with pytest.raises(WrongFormat, match="line 2: the id '2' is that of line 1"):
        read(tmp_path, line(1, id="2"), {name: value for name, value in line(2).items() if name != "id"})
    twice = [{"id": "q", "text": text, "answers": ["x"]} for text in ("Where?", "When?")]
    with pytest.raises(WrongFormat, match="question 2: mine/u/q comes twice"):
        read(tmp_path, line(1, id="u", questions=twice))


def test_copies_are_one_cluster(tmp_path: Path) -> None:
    copies = [line(1, id=f"copy-{number}") for number in range(12)]
    spelt = line(1, id="spelt", writes=[{"id": "home", "text": " i live in TOWN number 1.", "time": "2026-01-01"}])
    more = line(1, id="more", questions=[{"text": "What is its number?", "answers": ["1"]}])
    tasks = read(tmp_path, *copies, spelt, more, line(2))
    assert [cluster_of(task) for task in tasks] == ["copy-0"] * 14 + ["chat-2"]
    nothing = [
        line(1, id=f"n{n}", writes=[], questions=[{"text": f"What is {n // 2}?", "answers": ["x"]}]) for n in range(4)
    ]
    assert [cluster_of(task) for task in read(tmp_path, *nothing)] == ["n0", "n0", "n2", "n2"]


def test_copies_in_clusters_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongFormat, match="line 2: line 1 asks 'In which town do I live"):
        read(tmp_path, line(1, cluster="a"), line(1, id="other", cluster="b"))
    other = line(1, id="other", cluster="b", questions=[{"text": "What is its number?", "answers": ["1"]}])
    assert [cluster_of(task) for task in read(tmp_path, line(1, cluster="a"), other)] == ["a", "b"]
    assert {cluster_of(task) for task in read(tmp_path, line(1, cluster="a"), line(1, id="other"))} == {"a"}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x1c"])
def test_a_line_ends_at_line_breaks_alone(tmp_path: Path, separator: str) -> None:
    raw = json.dumps(line(1, writes=[{"id": "home", "text": f"I live{separator}in Leeds."}]), ensure_ascii=False)
    (task,) = read(tmp_path, raw)
    assert [" ".join(entry.text.split()) for entry in haystack(task)][-1].endswith("in Leeds.")
    assert len(read(tmp_path, json.dumps(line(1)) + "\r", json.dumps(line(2)) + "\r\r" + json.dumps(line(3)))) == 3


@pytest.mark.parametrize(("change", "message"), [
    ({"writes": [{"id": "home", "text": "a\u0000b"}]}, "line 2, write 1: text has U+0000 at character 1"),
    ({"writes": [{"id": "home", "text": "a\ud800"}]}, "line 2, write 1: text has U+D800 at character 1"),
    ({"writes": [{"id": "home", "text": "a", "speaker": "\u001b[1m"}]}, "line 2, write 1: speaker has U+001B"),
    ({"questions": [{"text": "\ud800?", "answers": ["a"]}]}, "line 2, question 1: text has U+D800"),
    ({"questions": [{"text": "q", "answers": ["\ud800"]}]}, "line 2, question 1: answers has U+D800"),
    ({"questions": [{"text": " ", "answers": ["a"]}]}, "line 2, question 1: its text is empty"),
    ({"questions": [{"text": "q", "answers": [""]}]}, "line 2, question 1: answers holds ''"),
    ({"questions": [{"text": "q", "answers": [None]}]}, "line 2, question 1: answers holds None"),
    ({"questions": [{"text": "q", "answers": [["a"]]}]}, "line 2, question 1: answers holds ['a']"),
    ({"questions": [{"text": "q", "answers": ["a"], "options": ["a", True]}]}, "options holds True"),
])  # fmt: skip
def test_unusable_writes_and_answers_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongFormat, match=re.escape(message)):
        read(tmp_path, line(1), line(2, **change))


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongFormat, match="line 2: this is n"):
        read(tmp_path, line(1), "[" * 100_000)


def test_numbers_are_answers_too(tmp_path: Path) -> None:
    (task,) = read(tmp_path, line(1, questions=[{"text": "q", "answers": [4, "four"], "options": [4, "four", 5.5]}]))
    assert (task.answers, task.options) == (("4", "four"), ("4", "four", "5.5"))


def test_a_question_without_an_answer_is_answered_by_saying_so(tmp_path: Path) -> None:
    asked = [
        {"text": "What is my car called?", "unanswerable": True},
        {"text": "And my boat?", "unanswerable": True, "answers": ["It was never said."]},
        {"text": "Where do I live?", "answers": ["Leeds"], "unanswerable": False},
    ]
    car, boat, home = read(tmp_path, line(1, questions=asked))
    assert [task.tags.get("abstention") for task in (car, boat, home)] == ["true", "true", None]
    assert (car.answers, boat.answers) == (("I don't know",), ("It was never said.",))
    for task in (car, boat):
        said = ("I do not know what it is called.", "That was not mentioned.", "Herbie", "", "...")
        assert [verify(task, answer) for answer in said] == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("change", "message"), [
    ({"answers": []}, 'there is no right answer. Add "answers": ["..."], or "unanswerable": true'),
    ({"unanswerable": "yes"}, "unanswerable is 'yes'. Write true or false."),
    ({"unanswerable": True, "options": ["a"], "answers": ["a"]}, "nothing about a choice among options"),
    ({"unanswerable": True, "verifier": "numeric"}, "judged by whether it says so"),
])  # fmt: skip
def test_unanswerable_question_refuses_contradicting_fields(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(WrongFormat) as refused:
        read(tmp_path, line(1, questions=[{"text": "q", **change}]))
    assert message in str(refused.value)
