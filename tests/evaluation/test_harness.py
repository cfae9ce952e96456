"""The harness: rows that are right by hand, systems that misbehave, settings that do what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.evaluation_page import verdict
from keepworth.evaluation.harness import DOES_NOT_FIT, Conditions, EvaluationFolder, Measurement, Row, score_answer
from keepworth.evaluation.reading import KeptAnswers
from keepworth.evaluation.summary import sum_up
from keepworth.evaluation.system import Answered, FullContext, LatestEntries, Listing, NoMemory, RandomEntries, Rewards
from keepworth.records.episode import Session, Shown, Task, Turn
from keepworth.worlds.benchmark import LeakingSplit, cluster_of, digest, refuse_leaks, sharing

QUESTIONS = 24
PLAN, COPIES = Conditions(tokens=8), object()
"""Defaults of `ran`; COPIES stands for a new reader."""


def tasks_of(count: int = QUESTIONS, alike: bool = False) -> list[Task]:
    """Each with its own haystack of six turns, the fourth of which holds the answer; `alike`: all over the same haystack."""
    found = []
    for number in range(count):
        own = 0 if alike else number
        said = [f"Talk {place} about nothing." if place != 3 else f"Word{own} is value{own}." for place in range(6)]
        turns = tuple(Turn("user", text, place, place == 3) for place, text in enumerate(said))
        session = Session(f"s{own}", "2026-01-01T10:00", turns)
        about: dict[str, Any] = {"sessions": (session,), "evidence": (session.id,), "tags": {"type": "made"}}
        asked = f"What is Word{own}?"
        found.append(Task(f"made/{number}", "made", asked, (f"value{own}",), "token_f1", **about))
    return found


class Copies:
    """A reader that answers with the last word of the last memory that is shown: it can be computed by hand."""

    identity, room = "copies", 1000

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def tokens(self, text: str) -> int:
        return len(text.split())

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        self.asked += [(question, tuple(memories)) for question, memories in queries]
        return [memories[-1].split()[-1] if memories else "" for _, memories in queries]

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        return [0 for _ in queries]


class Finds(Listing):
    """The entry that names what is asked, and then the rest."""

    def ask(self, question: Any) -> Answered:
        wanted = question.text.split()[-1].rstrip("?")
        ids = sorted(self.entries, key=lambda id: wanted not in self.entries[id].text)
        return self._show(ids)


def ran(
    make: Any, tasks: Sequence[Task], plan: Conditions = PLAN, reader: Any = COPIES, name: str = "it", **more: Any
) -> list[Row]:
    rows: list[Row] = []
    Measurement(name, make, tasks, plan, Copies() if reader is COPIES else reader, keep=rows.append, **more).ask_all()
    return sorted(rows, key=lambda row: int(row.key.rpartition("/")[2]))


def kept(record: Any, make: Any, tasks: Sequence[Task], plan: Conditions = PLAN, name: str = "it") -> Copies:
    """What is not done yet is measured and kept in a folder; the reader that was asked."""
    reader = Copies()
    Measurement(name, make, tasks, plan, reader, keep=record.keep, note=record.note).ask_all(record.done(name, plan))
    return reader


def test_finding_system_scores_one_and_no_memory_scores_zero() -> None:
    tasks = tasks_of()
    found, nothing = ran(Finds, tasks), ran(NoMemory, tasks)
    assert [row.scores["score"] for row in found] == [1.0] * QUESTIONS
    assert {row.stage for row in found} == {"not used"}  # all evidence was shown: nothing was lost before the reader
    assert all(row.recall["turn@1"] == row.recall["shown"] == 1.0 for row in found)
    assert [row.scores["score"] for row in nothing] == [0.0] * QUESTIONS
    assert {row.stage for row in nothing} == {"never written"}


def test_a_random_system_is_at_chance() -> None:
    rows = ran(RandomEntries, tasks_of(240), Conditions(tokens=5))
    at_first = sum(row.recall["turn@1"] for row in rows) / len(rows)
    assert abs(at_first - 1 / 6) < 0.08  # three standard deviations
    assert all(row.recall["turn@10"] == 1.0 for row in rows)


def test_metrics_of_an_answer_are_those_worked_out_by_hand() -> None:
    task = Task("k", "s", "q", ("the red brick house",), "token_f1")
    # Normalised gold: red brick house. Two of three words of the answer are right: P = 2/3, R = 2/3.
    assert score_answer(task, "a red stone house") == {"score": 2 / 3, "f1": 2 / 3, "em": 0.0, "bleu1": 2 / 3}
    number = Task("k", "s", "q", ("12",), "numeric")
    assert score_answer(number, "The answer is 12.0")["score"] == 1.0
    choice = Task("k", "s", "q", ("b",), "none", options=("a", "b"))
    assert score_answer(choice, "b") == {"score": 1.0}
    assert score_answer(choice, "a") == {"score": 0.0}


class Raises(Finds):
    def ask(self, question: Any) -> Answered:
        if question.text.endswith("Word3?"):
            raise ZeroDivisionError("on purpose")
        return super().ask(question)


def test_a_haystack_that_is_shown_whole_is_counted_once_and_not_for_each_question(monkeypatch: Any) -> None:
    tokens = Mock(side_effect=lambda text: len(text.split()))
    monkeypatch.setattr(Copies, "tokens", tokens)
    rows = ran(FullContext, tasks_of(5, alike=True))
    assert tokens.call_count == 6
    dates = 6 * 3  # "1 January 2026:" before each
    words = sum(len(turn.text.split()) for turn in tasks_of(1)[0].sessions[0].turns)
    assert {row.tokens for row in rows} == {dates + words}


def test_a_system_that_raises_is_scored_zero_there_and_goes_on() -> None:
    rows = ran(Raises, tasks_of(6))
    assert [row.scores["score"] for row in rows] == [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    assert rows[3].error == "ask raised ZeroDivisionError: on purpose"


def test_system_that_returns_none_is_scored_zero_and_reported(monkeypatch: Any) -> None:
    monkeypatch.setattr(Finds, "ask", lambda self, question: None)
    rows = ran(Finds, tasks_of(3))
    assert [row.scores["score"] for row in rows] == [0.0] * 3
    assert all(row.error.startswith("ask returned None") for row in rows)


def test_full_context_arm_is_not_cut_and_reports_overflow(monkeypatch: Any) -> None:
    assert all(row.items == 6 and not row.error for row in ran(FullContext, tasks_of(2)))
    monkeypatch.setattr(Copies, "room", 10)
    rows = ran(FullContext, tasks_of(2))
    assert {row.error for row in rows} == {DOES_NOT_FIT}
    assert all(not row.scores for row in rows)


def test_every_system_shows_at_most_the_same_number_of_tokens_in_order_of_time() -> None:
    reader = Copies()
    rows = ran(LatestEntries, tasks_of(1), Conditions(tokens=13), reader)
    # Each of the six windows has 9 tokens with its date: one fits.
    assert rows[0].tokens <= 13
    whole = ran(LatestEntries, tasks_of(1), Conditions(tokens=500), reader)
    assert whole[0].items == 6
    shown = reader.asked[-1][1]
    assert [text.split()[4] for text in shown if "Talk" in text] == ["0", "1", "2", "4", "5"]


class Remembers(Finds):
    """It keeps what it was told its answers earned."""

    note: list[float]

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.note = getattr(self, "note", [])

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        self.note.append(reward)


@pytest.mark.parametrize("setting", ["frozen", "live", "shuffled"])
def test_feedback_reaches_the_system_by_its_control(setting: str) -> None:
    system, earned = Remembers(), [float(number % 2) for number in range(8)]
    answers = [("value0",) if reward else ("else",) for reward in earned]
    tasks = [replace(task, answers=right) for task, right in zip(tasks_of(8, alike=True), answers, strict=True)]
    ran(lambda: system, tasks, Conditions(tokens=8, setting=setting))
    if setting == "shuffled":
        # The reward of an earlier question, and before the first what says nothing.
        assert system.note[0] == 0.5
        assert all(value in earned[:number] for number, value in enumerate(system.note) if number)
    else:
        assert system.note == (earned if setting == "live" else [])


def test_a_shuffled_reward_is_any_of_those_before_it_and_never_its_own() -> None:
    streams = []
    for seed in range(60):
        rewards = Rewards("shuffled", seed)
        streams.append([rewards.passed_on(float(number)) for number in range(5)])
    assert {first for first, *_ in streams} == {0.5}
    for number in range(1, 5):
        assert {row[number] for row in streams} == {float(earlier) for earlier in range(number)}


def test_another_memory_holds_no_evidence_and_one_haystack_has_no_other() -> None:
    rows = ran(Finds, tasks_of(6), Conditions(tokens=8, setting="another"))
    assert all(row.recall["turn@10"] == 0.0 for row in rows)
    with pytest.raises(KeepworthError, match="one haystack"):
        ran(Finds, tasks_of(3, alike=True), Conditions(tokens=8, setting="another"))


def test_the_oracle_shows_the_evidence_alone() -> None:
    reader = Copies()
    rows = ran(NoMemory, tasks_of(2), Conditions(setting="oracle"), reader)
    assert all(row.items == 1 and row.scores["score"] == 1.0 for row in rows)


def test_an_evaluation_goes_on_where_it_stopped_and_refuses_another(tmp_path: Path) -> None:
    tasks = tasks_of(5)
    record = EvaluationFolder(tmp_path / "out", {"benchmark": "made", "data": digest(tasks)})
    kept(record, Finds, tasks[:2])
    with record.rows.open("a") as file:
        file.write('{"key": "made/3", "clus')  # a process that was killed while it wrote
    again = EvaluationFolder(tmp_path / "out", {"benchmark": "made", "data": digest(tasks)})
    assert again.done("it", PLAN) == {"made/0": 1.0, "made/1": 1.0}
    assert len(kept(again, Finds, tasks).asked) == 3
    assert sorted(row.key for row in again.read()) == [task.key for task in tasks]
    with pytest.raises(KeepworthError, match="other data"):
        EvaluationFolder(tmp_path / "out", {"benchmark": "made", "data": digest(tasks[:2])})


def test_failed_questions_are_asked_again(tmp_path: Path, monkeypatch: Any) -> None:
    tasks, record = tasks_of(6), EvaluationFolder(tmp_path, {})
    kept(record, Raises, tasks)
    assert [row.key for row in record.read() if row.error] == ["made/3"]
    assert [question for question, _ in kept(record, Finds, tasks).asked] == ["What is Word3?"]
    assert [(row.error, row.scores["score"]) for row in record.read()] == [("", 1.0)] * 6
    monkeypatch.setattr(Copies, "room", 10)
    kept(record, FullContext, tasks, name="full")
    assert record.done("full", PLAN) == {task.key: None for task in tasks}  # it would not fit now either


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"garbage\n", "no JSON"),
        (b"\xff\xfe\n", "no JSON"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b"3\n", "no object"),
        (b'{"key": "x"}\n', "no row"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    record = EvaluationFolder(tmp_path, {})
    kept(record, Finds, tasks_of(1))
    with record.rows.open("ab") as file:
        file.write(line)
    with pytest.raises(KeepworthError, match=f"rows.jsonl, line 2: this is {message}"):
        record.done("it", PLAN)


def test_shuffled_rewards_are_the_same_after_an_interruption(tmp_path: Path) -> None:
    plan = Conditions(tokens=8, setting="shuffled")
    tasks = [task if place % 3 else replace(task, answers=("else",)) for place, task in enumerate(tasks_of(12))]
    whole = Remembers()
    ran(lambda: whole, tasks, plan)
    record = EvaluationFolder(tmp_path, {})
    first, second = Remembers(), Remembers()
    kept(record, lambda: first, tasks[:7], plan)
    kept(record, lambda: second, tasks, plan)
    assert len(set(whole.note[1:])) == 2
    assert first.note + second.note == whole.note


def test_the_summary_pairs_questions_and_resamples_clusters() -> None:
    tasks = tasks_of(8)
    found = sum_up(ran(NoMemory, tasks, name="none") + ran(Finds, tasks), [])
    assert found["gains"]["it"]["mean"] == 1.0
    assert found["gains"]["it"]["clusters"] == 8
    assert found["arms"]["it"]["points"]["scored"] == 1.0
    assert found["arms"]["none"]["points"] == {"scored": 0.0, "never written": 1.0}
    json.dumps(found)


def test_types_of_questions_are_summed_up_apart() -> None:
    own = {"old": (1.0, 0.5, 0.0), "new": (0.25,)}
    rows = [
        Row(f"{kind}/{n}", f"c{n}", kind, "it", "frozen", 0, scores={"score": score}, recall={"turn@5": score / 2})
        for kind, scores in own.items()
        for n, score in enumerate(scores)
    ]
    found = sum_up(rows, [])["arms"]["it"]["types"]
    assert list(found) == ["new", "old"]
    assert (found["old"]["scores"]["score"]["mean"], found["old"]["evidence"]["turn@5"]["mean"]) == (0.5, 0.25)
    assert (found["new"]["scores"]["score"]["mean"], found["new"]["scores"]["score"]["n"]) == (0.25, 1)
    assert found["old"]["scores"]["score"]["clusters"] == 3
    assert sum_up(rows[:3], [])["arms"]["it"]["types"] == {}


def test_a_planted_leak_is_caught() -> None:
    tasks = tasks_of(4)
    refuse_leaks({"train": tasks[:2], "test": tasks[2:]})
    with pytest.raises(LeakingSplit, match="question"):
        refuse_leaks({"train": tasks[:2], "test": [*tasks[2:], tasks[0]]})
    spelt = Task("other", "made", "what is  the word1", tasks[1].answers, "token_f1")
    with pytest.raises(LeakingSplit, match="other"):
        refuse_leaks({"train": tasks[:2], "test": [spelt]})
    shared = Task("new", "made", "Something else?", ("x",), "token_f1", evidence=("s0",))
    with pytest.raises(LeakingSplit, match="session"):
        refuse_leaks({"train": tasks[:2], "test": [shared]})


def test_equal_questions_leak_only_with_shared_evidence() -> None:
    def asked(key: str, *said: str, marked: int = 0) -> Task:
        turns = tuple(Turn("user", text, n, evidence=n < marked) for n, text in enumerate(said))
        sessions = (Session(key, "2026-01-01", turns),) if turns else ()
        return Task(key, "made", "Is it paid?", ("yes",), "token_f1", sessions=sessions)

    def refused(one: Task, other: Task) -> bool:
        try:
            refuse_leaks({"train": [one], "test": [other]})
        except LeakingSplit:
            return True
        return False

    paid = asked("a", "Invoice 7 is paid.", "Hello.", marked=1)
    assert not refused(paid, asked("b", "Invoice 8 is paid.", "Hello.", marked=1))
    assert not refused(asked("a", "Invoice 7 is paid."), asked("b", "Invoice 8 is paid."))
    assert refused(paid, asked("b", "invoice 7 is paid", "Invoice 8 is open.", marked=1))
    assert refused(paid, asked("b", "Good day.", "Invoice 7 is paid.", marked=1))  # told, and marked elsewhere
    assert refused(paid, asked("b", "Invoice 8 is paid.", "Invoice 7 is paid."))
    assert refused(paid, asked("b"))


def test_questions_over_one_haystack_stand_together_and_count_as_one_cluster() -> None:
    assert sharing([*tasks_of(3, alike=True), *tasks_of(2)[1:]]) == [[0, 1, 2], [3]]
    assert cluster_of(Task("k", "s", "q", ("a",), "token_f1", tags={"conversation": "7"})) == "7"
    assert Shown("s0/3.0", 1.0, "x").item.rpartition("/")[0] == "s0"


def test_judge_scores_are_recorded_and_its_failures_counted() -> None:
    asked: list[str] = []

    def judge(question: str, gold: str, answer: str) -> float:
        asked.append(answer)
        if question == "What is Word3?":
            raise ConnectionError("busy")
        return 0.75 if answer == f"{gold}." else 0.0

    rows = ran(Finds, tasks_of(), judge=judge)
    assert len(asked) == len(rows) == QUESTIONS
    assert sorted(row.scores.get("judge", -1.0) for row in rows) == [-1.0, *[0.75] * (QUESTIONS - 1)]
    assert [row.unjudged for row in rows if "judge" not in row.scores] == ["ConnectionError: busy"]
    arm = sum_up(rows, [])["arms"]["it"]
    assert arm["scores"]["judge"]["mean"] == 0.75
    assert arm["scores"]["score"]["mean"] == 1.0
    assert arm["unjudged"] == {"ConnectionError: busy": 1}


def test_a_judge_that_is_gone_costs_no_more_than_a_few_calls() -> None:
    asked: list[str] = []

    def judge(question: str, gold: str, answer: str) -> float:
        asked.append(answer)
        raise ConnectionError("nobody listens")

    rows = ran(Finds, tasks_of(80), judge=judge)
    assert len(rows) == 80
    assert len(asked) == 5
    assert all(row.unjudged and row.scores["score"] == 1.0 for row in rows)


def rows_of(arms: Mapping[str, Sequence[float | None]]) -> list[Row]:
    """One question a cluster; None where an arm does not fit."""
    return [
        Row(
            f"q{n}",
            f"c{n}",
            "",
            arm,
            "frozen",
            0,
            error=DOES_NOT_FIT if score is None else "",
            scores={} if score is None else {"score": score},
        )
        for arm, scores in arms.items()
        for n, score in enumerate(scores)
    ]


def test_gains_are_means_over_questions_with_intervals_over_clusters_and_corrected() -> None:
    # Eight conversations; the first has three questions, the others one.
    clusters = "aaabcdefgh"
    arms = {"none": [0.0] * 10, "good": [0.0] * 3 + [1.0] * 7, "same": [0.0] * 10}
    rows = [replace(row, cluster=clusters[int(row.key[1:])]) for row in rows_of(arms)]
    gains = sum_up(rows, [])["gains"]
    assert (gains["good"]["mean"], gains["good"]["clusters"], gains["good"]["n"]) == (0.7, 8, 10)
    assert gains["same"]["verdict"] == "no difference can be told"
    # a is 0 either way: of 2^8 flips four reach it, twice by Holm.
    assert gains["good"]["adjusted"] == 2 * 2 * 2.0**-8 * 2
    assert gains["good"]["verdict"] == "helps"
    few = sum_up([row for row in rows if row.cluster in "bcde"], [])["gains"]
    assert few["good"]["verdict"] == "too few to tell: 7 clusters are needed for 2 comparisons"


def test_a_verdict_needs_the_clusters_of_its_family() -> None:
    three = sum_up(rows_of({"none": [0.0] * 6, "a": [1.0] * 6, "b": [1.0] * 6, "c": [0.0] * 6}), [])["gains"]
    assert {gain["verdict"] for gain in three.values()} == {"too few to tell: 7 clusters are needed for 3 comparisons"}
    enough = sum_up(rows_of({"none": [0.0] * 7, "a": [1.0] * 7, "b": [1.0] * 7, "c": [0.0] * 7}), [])["gains"]
    assert [gain["verdict"] for gain in enough.values()] == ["helps", "helps", "no difference can be told"]
    assert sum_up(rows_of({"none": [0.0] * 6, "a": [1.0] * 6}), [])["gains"]["a"]["verdict"] == "helps"


def test_the_best_arm_answered_all_questions() -> None:
    half: list[float | None] = [1.0] * 4 + [None] * 4
    said = verdict(sum_up(rows_of({"none": [0.0] * 8, "search": [1.0] * 7 + [0.0], "full": half}), []))
    assert said.startswith("Memory helps. The most with search: +0.875")
    assert said.endswith("Not compared: full answered 4 of 8 questions.")
    alone = verdict(sum_up(rows_of({"none": [0.0] * 8, "full": half}), []))
    assert alone == "No memory answered all questions, so none is called the best: full answered 4 of 8 questions."


def test_a_live_memory_is_one_that_may_help_and_a_control_is_not() -> None:
    for setting, said in (
        ("live", "Memory helps. The most with search+live: +1.000"),
        ("shuffled", "Nothing was compared"),
    ):
        rows = [replace(row, setting=setting) for row in rows_of({"search": [1.0] * 8})]
        assert verdict(sum_up(rows_of({"none": [0.0] * 8}) + rows, [])).startswith(said)


def test_verdict_names_ties_and_the_correction() -> None:
    tied = sum_up(rows_of({"none": [0.0] * 8, "a": [1.0] * 8, "b": [0.5] * 8, "c": [1.0] * 8}), [])
    assert verdict(tied).startswith("Memory helps. The most with a and c: +1.000")
    many = {f"same{n}": [0.0] * 10 for n in range(11)}
    one = {"none": [0.0] * 10, "good": [0.5, 0.4, 0.6, 0.5, 0.4, 0.6, 0.5, -0.1, 0.0, 0.0]}
    gain = sum_up(rows_of({**one, **many}), [])["gains"]["good"]
    assert gain["low"] > 0.0
    assert gain["verdict"] == "no difference can be told, all 12 comparisons counted"


def test_verdict_states_unequal_budgets() -> None:
    rows = rows_of({"none": [0.0] * 8, "a": [1.0] * 8, "b": [0.0] * 8})
    found = sum_up([replace(row, tokens=100 if row.system == "a" else 50) for row in rows], [])
    assert found["gains"]["a"]["verdict"] == "helps"
    assert verdict(found).startswith("Memory helps. The most with a: +1.000")
    assert verdict(found).endswith("With a, unequal tokens (100 a question, 75 usual).")


def test_stages_without_a_reader_end_at_shown() -> None:
    rows = ran(Finds, tasks_of(), reader=None)
    assert sum_up(rows, [])["arms"]["it"]["stages"] == {"shown": QUESTIONS}


def test_kept_answers_are_not_asked_again(tmp_path: Path) -> None:
    first, again = Copies(), Copies()
    queries = [("q", ("a b", "c d")), ("q", ("c d",)), ("r", ("c d",))]
    assert KeptAnswers(first, tmp_path).answers(queries) == ["d", "d", "d"]
    with next(tmp_path.glob("*.jsonl")).open("a") as file:
        file.write('{"key": "cut sho')
    assert KeptAnswers(again, tmp_path).answers([*queries, ("s", ("e f",))]) == ["d", "d", "d", "f"]
    assert again.asked == [("s", ("e f",))]
    assert KeptAnswers(again, tmp_path).answers(queries) == ["d", "d", "d"]


class Answers(Listing):
    def ask(self, question: Any) -> Answered:
        return Answered((), "something", 3)


def test_calls_and_tokens_that_are_not_equal_are_beside_the_verdict() -> None:
    systems = {"none": NoMemory, "latest": LatestEntries, "same": LatestEntries, "full": FullContext, "own": Answers}
    plan = Conditions(tokens=20)
    rows = [row for name, make in systems.items() for row in ran(make, tasks_of(8), plan, name=name)]
    found = sum_up(rows, [])
    assert found["arms"]["none"]["calls"] == found["arms"]["latest"]["calls"] == 1.0
    assert found["arms"]["latest"]["unequal"] == []
    assert [arm.split(" (")[0] for arm in found["arms"]["full"]["unequal"]] == ["unequal tokens"]
    unequal = ["unequal calls (3 a question, 1 usual)", "unequal tokens (0 a question, 20 usual)"]
    assert found["arms"]["own"]["unequal"] == unequal
    assert all("unequal" not in gain["verdict"] for gain in found["gains"].values())


def test_options_are_offered_in_shuffled_order() -> None:
    seen: list[tuple[str, ...]] = []

    class Looks(Listing):
        def ask(self, question: Any) -> Answered:
            seen.append(question.options)
            return Answered()

    about: dict[str, Any] = {"sessions": tasks_of(1)[0].sessions, "options": ("right", "b", "c", "d")}
    ran(Looks, [Task(f"k/{n}", "s", "q", ("right",), "none", **about) for n in range(20)])
    assert {options.index("right") for options in seen} == {0, 1, 2, 3}
