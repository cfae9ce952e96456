from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from keepworth.episodes.episode import Session, Turn
from keepworth.episodes.errors import UnknownName
from keepworth.methods.benchmarks import _longmemeval as module
from keepworth.methods.benchmarks._competing import competes
from keepworth.methods.benchmarks._longmemeval import longmemeval, longmemeval_shared, sessions_of
from keepworth.methods.benchmarks._longmemeval_questions import (
    EXTRACTIVE_TYPES,
    TYPES,
    gold_answers,
    iso_date,
    questions,
)
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import SPLITS


def stem(name: str) -> str:
    return name.replace("_abs", "").rsplit("_", 1)[0]


def long_turns(sessions: tuple[Session, ...] | list[Session]) -> set[str]:
    turns = (" ".join(tokens(turn.text)) for session in sessions for turn in session.turns)
    return {turn for turn in turns if turn.count(" ") >= 7}


def test_counts_that_the_docstring_states() -> None:
    counts = Counter((q.type, q.split) for q in questions() if not q.abstention)
    table = {line.split()[0]: line.split()[1:] for line in str(module.__doc__).splitlines() if line.startswith("    ")}
    for kind in TYPES:
        assert [str(counts[kind, split]) for split in SPLITS] == table[kind]
    assert [str(len(longmemeval(split, extractive=True))) for split in SPLITS] == table["extractive"]
    assert Counter(q.split for q in questions() if q.abstention) == {"train": 17, "dev": 2, "test": 11}
    assert len(questions()) == 500


def test_no_conversation_is_on_two_sides() -> None:
    turns = {split: long_turns([s for q in questions() if q.split == split for s in q.sessions]) for split in SPLITS}
    ids = {split: {s.id for q in questions() if q.split == split for s in q.sessions} for split in SPLITS}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert turns[one]
        assert not turns[one] & turns[other]
        assert not ids[one] & ids[other]


def test_edited_copies_under_new_ids_are_tied() -> None:
    by_id = {q.id: q for q in questions()}
    for name in (q.id for q in questions() if q.abstention):
        if name.removesuffix("_abs") in by_id:
            assert by_id[name].split == by_id[name.removesuffix("_abs")].split
    # ids differ by one letter, sessions are copies with new ids
    assert by_id["gpt4_fa19884c"].tie == by_id["gpt4_fa19884d"].tie == "gpt4_fa19884c"


@pytest.fixture(scope="module")
def padded() -> dict[str, list[module.Task]]:
    return {split: longmemeval(split, distractors=20, seed=3, abstention=True) for split in SPLITS}


def test_no_test_evidence_in_a_training_haystack(padded: dict[str, list[module.Task]]) -> None:
    tested = long_turns([s for task in padded["test"] for s in task.sessions if s.id in task.evidence])
    # A session that stands in many haystacks is the same object, and is read once.
    shown = {id(session): session for task in padded["train"] for session in task.sessions}
    assert not tested & long_turns(list(shown.values()))


def test_haystack(padded: dict[str, list[module.Task]]) -> None:
    by_id = {q.id: q for q in questions()}
    for tasks in padded.values():
        for task in tasks:
            question = by_id[task.key.removeprefix("longmemeval/")]
            names = [session.id for session in task.sessions]
            assert len(set(names)) == len(names)
            assert [s.date for s in task.sessions] == sorted(s.date for s in task.sessions)
            assert set(task.evidence) == {s.id for s in question.sessions} <= set(names)
            others = [session for session in task.sessions if session.id not in task.evidence]
            assert task.tags["distractors"] == str(len(others))
            assert len(others) <= 20
            stems = {name.replace("_abs", "").rsplit("_", 1)[0] for name in task.evidence} - {
                "answer_ultrachat",
                "answer",
            }
            for session in others:
                assert session.date < task.asked_at
                assert stem(session.id) not in stems
                assert not any(turn.evidence for turn in session.turns)
                assert not competes(session, task.input, task.answers)
    assert Counter(task.tags["distractors"] for task in padded["train"]).most_common(1)[0][0] == "20"


def test_more_distractors_add_to_fewer_and_the_seed_matters() -> None:
    def drawn(count: int, seed: int) -> list[set[str]]:
        tasks = longmemeval("dev", distractors=count, seed=seed)
        return [{s.id for s in task.sessions} for task in tasks]

    few, many, other = drawn(3, 0), drawn(9, 0), drawn(3, 1)
    assert all(one <= two for one, two in zip(few, many, strict=True))
    assert few != other
    assert drawn(3, 0) == few


def test_input_is_the_question_alone_and_answers_in_it_are_tagged() -> None:
    by_id = {q.id: q for q in questions()}
    for split in SPLITS:
        for task in longmemeval(split):
            assert task.input == by_id[task.key.removeprefix("longmemeval/")].text
            offered = any(f" {' '.join(tokens(a))} " in f" {' '.join(tokens(task.input))} " for a in task.answers)
            assert (task.tags["choice"] == "true") == offered


def test_extractive_answers_are_in_the_evidence() -> None:
    for split in SPLITS:
        tasks = longmemeval(split, extractive=True)
        for task in tasks:
            said = {
                token
                for session in task.sessions
                for turn in session.turns
                if turn.evidence and turn.speaker == "user"
                for token in tokens(turn.text)
            }
            assert any(set(tokens(answer)) <= said for answer in task.answers)
            assert task.tags["type"] in EXTRACTIVE_TYPES
            assert task.tags["abstention"] == "false"
        rest = [task for task in longmemeval(split) if task.tags["extractive"] == "false"]
        assert len(tasks) + len(rest) == len(longmemeval(split))


def test_abstention_is_out_of_training_by_default() -> None:
    assert not any(task.tags["abstention"] == "true" for task in longmemeval("train"))
    assert sum(task.tags["abstention"] == "true" for task in longmemeval("train", abstention=True)) == 17
    assert sum(task.tags["abstention"] == "true" for task in longmemeval("test")) == 11
    assert not any(task.tags["abstention"] == "true" for task in longmemeval("test", abstention=False))


def test_training_sessions_are_training_sessions_once() -> None:
    sessions = sessions_of("train")
    names = {s.id for q in questions() if q.split == "train" for s in q.sessions}
    assert {s.id for s in sessions} <= names
    texts = [tuple(turn.text for turn in session.turns) for session in sessions]
    assert len(set(texts)) == len(texts)
    assert not any(turn.evidence for session in sessions for turn in session.turns)


def test_a_competing_answer_is_not_a_distractor(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(name: str, text: str) -> Session:
        return Session(name, "2023-01-01T00:00", (Turn("user", text, 0),))

    gold = session("gold", "I adopted a cat and called her Luna.")
    rivals = [
        session("same answer", "Luna chased the laser pointer again."),
        session("other value", "What can I feed my kitten? My favourite cat food brand is gone."),
        session("harmless", "I fixed the fence."),
    ]
    question = module.LongMemEvalQuestion(
        "q",
        "single-session-user",
        "Which cat food brand do I buy for her?",
        ("Luna",),
        "2023-05-01T00:00",
        (gold,),
        "train",
        "q",
        False,
        True,
    )
    monkeypatch.setattr(module, "questions", lambda: (question,))
    monkeypatch.setattr(module, "_pool", lambda split: tuple((s, s.id) for s in rivals))
    (task,) = module.longmemeval("train", distractors=3)
    assert {s.id for s in task.sessions} == {"gold", "harmless"}
    assert task.tags["distractors"] == "1"
    assert task.source == "longmemeval-oracle+3"


@pytest.mark.parametrize(
    ("text", "question", "answer", "found"),
    [
        ("I have 3 dogs.", "How many cats do I have?", "3", False),  # a bare number about something else
        ("I have 3 dogs.", "How many dogs do I have?", "3", True),
        ("I have two dogs.", "How many cats do I have?", "two", False),
        ("The yellow dress was lovely.", "What did I buy for my sister?", "a yellow dress", True),
        ("The yellow and red dress.", "What did I buy for my sister?", "a yellow dress", False),
        ("A birthday gift of my sister.", "What birthday gift did I buy my sister?", "socks", True),
        ("My sister is ill.", "What birthday gift did I buy my sister?", "socks", False),
    ],
)
def test_competing_rule(text: str, question: str, answer: str, found: bool) -> None:
    session = Session("s", "2023-01-01T00:00", (Turn("user", text, 0), Turn("assistant", answer, 1)))
    assert competes(session, question, (answer,)) is found


@pytest.mark.parametrize(
    ("text", "golds"),
    [
        ("7 days. 8 days (including the last day) is also acceptable.", ("7 days", "8 days")),
        (
            "One week. Answers ranging from 7 days to 10 days are also acceptable.",
            ("One week", "7 days", "8 days", "9 days", "10 days"),
        ),
        (3, ("3",)),
        ("The music shop on Main St.", ("The music shop on Main St.",)),
    ],
)
def test_gold_answers(text: str | int, golds: tuple[str, ...]) -> None:
    assert gold_answers(text) == golds


def test_dates() -> None:
    assert iso_date("2023/05/20 (Sat) 02:21") == "2023-05-20T02:21"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tests"}, r"no split 'tests'\. Did you mean 'test'"),
        ({"split": "test", "types": ["knowledge-updates"]}, "Did you mean 'knowledge-update'"),
    ],
)
def test_unknown_names(options: dict[str, object], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        longmemeval(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"extractive": True, "abstention": True},
        {"extractive": True, "types": ["single-session-preference"]},
        {"distractors": -1},
        {"types": []},
    ],
)
def test_options_without_effect(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"extractive=True|distractors=-1|types=\(\)"):
        longmemeval("test", **options)  # type: ignore[arg-type]


def test_the_same_in_another_process_with_another_hash_seed() -> None:
    program = (
        "import hashlib\n"
        "from keepworth.methods.benchmarks._longmemeval import longmemeval\n"
        "from keepworth.tasks.entries import candidates\n"
        "tasks = longmemeval('dev', distractors=5, seed=1)\n"
        "text = repr(tasks) + repr([candidates(task, 4, 0) for task in tasks])\n"
        "import sys; sys.stdout.write(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    digests = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(run.stdout)
    assert len(digests) == 1
    assert len(digests.pop()) == 64


# One haystack for all questions of a split.


def test_a_shared_haystack_holds_all_evidence_and_five_hundred_sessions_that_are_none() -> None:
    tasks = longmemeval_shared("test")
    held = {session.id for session in tasks[0].sessions}
    evidence = {id for task in tasks for id in task.evidence}
    assert len(tasks) == 147
    assert evidence <= held
    assert len(held - evidence) == 500
    assert {tuple(session.id for session in task.sessions) for task in tasks} == {
        tuple(session.id for session in tasks[0].sessions)
    }
    by_id = {f"longmemeval/{q.id}": q for q in questions()}
    for task in tasks:
        marked = [(t.speaker, t.text) for s in task.sessions for t in s.turns if t.evidence]
        own = [(t.speaker, t.text) for s in by_id[task.key].sessions for t in s.turns if t.evidence]
        assert set(marked) == set(own), task.key
        others = [s for s in task.sessions if s.id not in task.evidence]
        if task.tags["competing"] == "0":
            assert not any(competes(session, task.input, task.answers) for session in others[::40])
    assert sum(task.tags["competing"] == "0" for task in tasks) > len(tasks) / 2


def test_no_later_side_is_in_a_shared_haystack() -> None:
    own = {split: {tuple(t.text for t in s.turns) for s in sessions_of(split)} for split in SPLITS}
    allowed = {"train": own["train"], "dev": own["dev"] | own["train"]}
    for split, within in allowed.items():
        tasks = longmemeval_shared(split)
        assert {tuple(t.text for t in s.turns) for s in tasks[0].sessions} <= within
    assert {task.tags["seen in training"] for task in longmemeval_shared("train")} == {"0"}
    assert {task.tags["seen in training"] for task in longmemeval_shared("test", distractors=0)} == {"0"}
    assert longmemeval_shared("test")[0].tags["seen in training"] != "0"
