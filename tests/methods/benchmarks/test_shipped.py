"""What is particular to the benchmarks that are shipped: LongMemEval, word problems, and the memory of their stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from keepworth.base.errors import UnknownName
from keepworth.base.metrics import tokens
from keepworth.methods.recipes.arithmetic import Config, head, memory_of, system
from keepworth.records.episode import Session, Turn
from keepworth.worlds.data_sets import longmemeval as module
from keepworth.worlds.data_sets.arithmetic import SOURCES, _marks, arithmetic, problems
from keepworth.worlds.data_sets.competing import competes
from keepworth.worlds.data_sets.longmemeval import longmemeval
from keepworth.worlds.data_sets.longmemeval_questions import EXTRACTIVE_TYPES, gold_answers
from keepworth.worlds.splits import SPLITS
from keepworth.worlds.verifiers import expression, verify


def test_extractive_answers_are_in_the_evidence() -> None:
    for split in SPLITS:
        tasks = longmemeval(split, extractive=True)
        for task in tasks:
            turns = [turn for session in task.sessions for turn in session.turns]
            told = " ".join(turn.text for turn in turns if turn.evidence and turn.speaker == "user")
            said = set(tokens(told))
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
        "q", "single-session-user", "Which cat food brand do I buy for her?", ("Luna",), "2023-05-01T00:00", (gold,),
        "train", "q", False, True,
    )  # fmt: skip
    monkeypatch.setattr(module, "questions", lambda: (question,))
    monkeypatch.setattr(module, "_pool", lambda split: tuple((s, s.id) for s in rivals))
    (task,) = module.longmemeval("train", distractors=3)
    assert {s.id for s in task.sessions} == {"gold", "harmless"}
    assert task.tags["distractors"] == "1"
    assert task.source == "longmemeval-oracle+3"


@pytest.mark.parametrize(("text", "question", "answer", "found"), [
    ("I have 3 dogs.", "How many cats do I have?", "3", False),  # a bare number about something else
    ("I have 3 dogs.", "How many dogs do I have?", "3", True),
    ("I have two dogs.", "How many cats do I have?", "two", False),
    ("The yellow dress was lovely.", "What did I buy for my sister?", "a yellow dress", True),
    ("The yellow and red dress.", "What did I buy for my sister?", "a yellow dress", False),
    ("A birthday gift of my sister.", "What birthday gift did I buy my sister?", "socks", True),
    ("My sister is ill.", "What birthday gift did I buy my sister?", "socks", False),
])  # fmt: skip
def test_competing_rule(text: str, question: str, answer: str, found: bool) -> None:
    session = Session("s", "2023-01-01T00:00", (Turn("user", text, 0), Turn("assistant", answer, 1)))
    assert competes(session, question, (answer,)) is found


RANGE = "One week. Answers ranging from 7 days to 10 days are also acceptable."


@pytest.mark.parametrize(("text", "golds"), [
    ("7 days. 8 days (including the last day) is also acceptable.", ("7 days", "8 days")),
    (RANGE, ("One week", "7 days", "8 days", "9 days", "10 days")),
    (3, ("3",)),
    ("The music shop on Main St.", ("The music shop on Main St.",)),
])  # fmt: skip
def test_gold_answers(text: str | int, golds: tuple[str, ...]) -> None:
    assert gold_answers(text) == golds


@pytest.mark.parametrize(("load", "options", "message"), [
    (longmemeval, {"split": "tests"}, r"no split 'tests'\. Did you mean 'test'"),
    (longmemeval, {"split": "test", "types": ["knowledge-updates"]}, "Did you mean 'knowledge-update'"),
    (arithmetic, {"source": "swamp", "split": "train"}, "Did you mean 'svamp'"),
    (arithmetic, {"source": "svamp", "split": "train", "verifier": "f1"}, "verifier"),
])  # fmt: skip
def test_unknown_names(load: Callable[..., object], options: dict[str, object], message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        load(**options)


@pytest.mark.parametrize("options", [
    {"extractive": True, "abstention": True},
    {"extractive": True, "types": ["single-session-preference"]},
    {"distractors": -1},
    {"types": []},
])  # fmt: skip
def test_options_without_effect(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"extractive=True|distractors=-1|types=\(\)"):
        longmemeval("test", **options)  # type: ignore[arg-type]


def test_counts_are_those_documented() -> None:
    found = {source: Counter(problem.split for problem in problems(source)) for source in SOURCES}
    assert found["gsm8k"] == {"train": 6685, "dev": 788, "test": 1319}
    assert found["svamp"] == {"train": 646, "dev": 95, "test": 259}


@pytest.mark.parametrize("source", SOURCES)
def test_every_answer_verifies_itself_and_a_wrong_one_does_not(source: str) -> None:
    for split in ("dev", "test"):
        for task in arithmetic(source, split):
            assert verify(task, f"So it is {task.answers[0]}.") == 1.0
            assert verify(task, f"{task.answers[0]}1") == 0.0


def test_equations_of_svamp_give_its_answers_but_for_one_of_the_source() -> None:
    wrong = [p.equation for p in problems("svamp") if expression(p.equation, [p.answer]) != 1.0]
    assert wrong == ["( ( 4 - 2 ) + 3 )"]


def test_variations_of_a_problem_stay_on_one_side() -> None:
    side: dict[str, str] = {}
    for problem in problems("svamp"):
        for mark in _marks(problem.question.rsplit(". ", 1)[0]):
            assert side.setdefault(mark, problem.split) == problem.split or len(mark.split()) < 6


def test_a_story_and_its_question_are_the_problem() -> None:
    for problem in problems("svamp"):
        assert f"{problem.story} {problem.asked}" == problem.question


def test_each_memory_holds_the_story_among_as_many_as_were_asked_for() -> None:
    tasks = arithmetic("svamp", "dev", remembered=True)
    memory = memory_of(8, tasks, seed=0)
    first = 0
    for task in tasks:
        bank = memory(task)
        texts = [item.text for item in bank.items()]
        assert len(texts) == 8
        assert task.sessions[0].turns[0].text in texts
        hits = bank.search(task.input, 1, mode="lexical")
        first += [hit.item.text for hit in hits] == [task.sessions[0].turns[0].text]
        assert memory(task).content_hash() == bank.content_hash()
    assert first > len(tasks) / 2  # the question's own words find it, more often than not


def test_prompt_examples_show_the_requested_format() -> None:
    assert "> recall: Mary pens\n= Mary had 7 pens." in head("calculator", remembered=True)
    assert "recall" not in head("calculator")


def test_settings_of_the_memory_have_an_effect() -> None:
    found = system(Config(answer="calculator", stories=4, max_tokens=10))
    assert found.row_budget == 3 * 2 * 10
    assert set(found.test["svamp test questions"].ways) == {"", "no_tool"}
