from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.episodes.errors import UnknownName
from keepworth.recipes.user_tasks import Config
from keepworth.tasks.chat_logs import ChatLog, logged
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import SPLITS
from keepworth.tasks.unlabelled import statements, unlabelled

NAMES = ("Ann", "Bert", "Carla", "Dora", "Emil", "Fritz", "Gina", "Hanna", "Ivo", "Jana", "Karl", "Lena")
PLACES = ("Leeds", "York", "Hull", "Bath", "Derby", "Truro", "Wells", "Ripon")

PLAIN = 200
BREADS = ("rye", "oat", "corn", "barley", "spelt", "millet", "maize", "buckwheat")


def sentence(number: int) -> str:
    """A statement with a name and a number; no two numbers give the same one."""
    if number >= PLAIN:  # nothing in it can be hidden
        return f"We really like to bake {BREADS[number - PLAIN]} bread at home with the others."
    name, place = NAMES[number % len(NAMES)], PLACES[number // len(NAMES) % len(PLACES)]
    verb = ("met", "called", "helped", "visited", "painted")[number % 5]
    return f"I {verb} my friend {name} near {place} with a bag of {number + 13} green apples."


def row(numbers: Sequence[int], **more: Any) -> dict[str, Any]:
    messages = []
    for start in range(0, len(numbers), 2):
        messages.append({"role": "user", "content": " ".join(map(sentence, numbers[start : start + 2]))})
        messages.append({"role": "assistant", "content": "That is nice to hear."})
    return {"messages": messages, **more}


def log_of(rows: Sequence[dict[str, Any]]) -> ChatLog:
    return logged(((f"line {n}", each) for n, each in enumerate(rows, start=1)), "log")


def simple(sessions: int = 24, **more: Any) -> ChatLog:
    return log_of(
        [row(range(6 * n, 6 * n + 6), session=f"s{n}", time=f"2026-01-{n + 1:02d}", **more) for n in range(sessions)]
    )


numbers = st.integers(0, 60) | st.integers(PLAIN, PLAIN + len(BREADS) - 1)
logs = st.lists(st.tuples(st.lists(numbers, min_size=2, max_size=6), st.integers(0, 9)), min_size=3, max_size=14)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs)
def test_nothing_of_a_session_a_person_or_a_sentence_is_on_two_sides(drawn: list[tuple[list[int], int]]) -> None:
    rows = [
        row(numbers, session=f"s{n}", **({"user": f"u{person}"} if person < 4 else {}))
        for n, (numbers, person) in enumerate(drawn)
    ]
    log = log_of(rows)
    try:
        made = unlabelled(log).tasks
    except WrongFormat:  # too little that is apart
        return
    place: dict[str, str] = {}
    for split in SPLITS:
        for task in made.by_split[split]:
            people = {f"person {session.id.split('/')[0]}" for session in task.sessions if "/" in session.id}
            asked = {f"asked {task.input}"}
            words = {f"said {statement.words}" for session in task.sessions for statement in statements(session)}
            for mark in {*(f"session {session.id}" for session in task.sessions), *people, *asked, *words}:
                assert place.setdefault(mark, split) == split, mark
    assert {task.tags["split"] for task in made.by_split["train"]} == {"train"}


def test_cloze_answers_stand_in_their_evidence_and_nowhere_in_what_is_asked() -> None:
    made = unlabelled(simple(), ["cloze"])
    for task in made.tasks.all:
        (answer,) = task.answers
        said = [turn.text for session in task.sessions for turn in session.turns if turn.evidence]
        assert any(answer in text for text in said)
        assert not set(tokens(answer)) & set(tokens(task.input))


def test_the_report_counts() -> None:
    report = unlabelled(simple()).report
    assert (report.sessions, report.dated, report.turns, report.statements) == (24, 24, 72, 144)
    assert report.tied_sets == 24
    assert sum(report.sides.values()) == 24
    (cloze,) = report.kinds
    assert sum(cloze.by_split.values()) == 144  # one of each statement
    assert all(0 <= value <= 1 for kind in report.kinds for value in kind.shortcuts.values())
    text = "\n".join(report.lines())
    assert "24 sessions" in text
    assert "may be chance" in text
    assert report.to_json()["kinds"][0]["kind"] == "cloze"


def test_what_may_be_chance_follows_from_what_a_run_measures_on() -> None:
    made = unlabelled(simple(30), ["cloze"])
    (tasks, sets), test = made.report.measured, made.tasks.by_split["test"]
    assert unlabelled(simple(30), ["cloze"]).report.measured[0] == min(100, len(test))
    assert sets == len({made.tasks.cluster[task.key] for task in test[:tasks]}) < tasks
    few = unlabelled(simple(30), ["cloze"], questions=5).report
    assert few.measured[0] == 5
    wanted = f"measures on 5 test tasks (questions), of {few.measured[1]} sets"
    assert any(wanted in line and f"{1.96 * (0.5 / few.measured[1]) ** 0.5:.2f} may" in line for line in few.verdict)
    assert Config().questions == 100  # what is said where nothing else is


def test_the_order_of_the_lines_changes_nothing() -> None:
    rows = [row(range(6 * n, 6 * n + 6), session=f"s{n}") for n in range(12)]
    one, other = unlabelled(log_of(rows)), unlabelled(log_of(rows[::-1]))
    assert one.tasks == other.tasks


def test_one_session_or_two_people_cannot_be_held_out() -> None:
    with pytest.raises(WrongFormat, match="holds 1 session, which make 1 set"):
        unlabelled(simple(1), ["cloze"])
    two = [row(range(6 * n, 6 * n + 6), session=f"s{n}", user=f"u{n % 2}") for n in range(24)]
    with pytest.raises(WrongFormat, match=r"24 sessions, which make 2 set.*nothing can be held out.*Without a user"):
        unlabelled(log_of(two), ["cloze"])


def test_a_log_of_one_person_is_split_by_session_and_says_so() -> None:
    mine, nobodys = unlabelled(simple(user="me"), ["cloze"]), unlabelled(simple(), ["cloze"])
    assert mine.report.tied_sets == 24
    assert "of one person" in "\n".join(mine.report.lines())
    assert "of one person" not in "\n".join(nobodys.report.lines())
    some = log_of([row(range(6 * n, 6 * n + 6), session=f"s{n}", **{"user": "me"} if n < 4 else {}) for n in range(24)])
    assert unlabelled(some, ["cloze"]).report.tied_sets == 21


def test_a_kind_of_which_there_is_nothing_is_named() -> None:
    rows = [{"messages": [{"role": "user", "content": f"number {n}?"}], "id": n} for n in range(20)]
    with pytest.raises(WrongFormat, match=r"no task of the kind cloze on the .* side .*first person"):
        unlabelled(log_of(rows), ["cloze"])
    with pytest.raises(UnknownName, match="'cloze'"):
        unlabelled(simple(), ["clozes"])


def scored(values: Sequence[float | None]) -> ChatLog:
    rows = [row(range(6 * n, 6 * n + 6), session=f"s{n}") for n in range(len(values))]
    for each, value in zip(rows, values, strict=True):
        each["messages"][1]["reward"] = value
        each["messages"][3]["reward"] = 0.0 if value else value
    return log_of(rows)


def test_answers_with_more_reward_than_the_average_are_imitated() -> None:
    made = unlabelled(scored([1.0] * 20), ["rewarded"])
    assert len(made.tasks.all) == 20
    for task in made.tasks.all:
        assert task.row["reward"] == 1.0
        assert [each["role"] for each in task.row["prompt"]] == ["user"]
        assert task.answers == ("That is nice to hear.",)
    rewards = made.report.rewards
    assert (rewards.count, rewards.low, rewards.high, rewards.mean, rewards.above, rewards.both) == (
        40,
        0,
        1,
        0.5,
        0.5,
        20,
    )


def test_of_what_is_imitated_only_counts_are_told() -> None:
    report = unlabelled(scored([1.0] * 20), ["rewarded"]).report
    (line,) = [line for line in report.lines() if line.startswith("rewarded:")]
    assert line.endswith("test tasks.")
    assert not report.kinds[0].shortcuts


def test_rewards_that_say_nothing_are_refused() -> None:
    with pytest.raises(WrongFormat, match="log has no rewards"):
        unlabelled(simple(), ["rewarded"])
    log = log_of([{**row([6 * n, 6 * n + 1], session=f"s{n}"), "reward": 1} for n in range(12)])
    with pytest.raises(WrongFormat, match="All 12 rewards in log are 1"):
        unlabelled(log, ["rewarded"])
    with pytest.raises(WrongFormat, match="one after the other"):
        unlabelled(scored([1.0] * 12), ["rewarded", "cloze"])


def exchange(asked: str, answered: str, reward: float, before: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {
        "messages": [*before, {"role": "user", "content": asked}, {"role": "assistant", "content": answered}],
        "reward": reward,
    }


def prompts_of(log: ChatLog) -> dict[str, list[str]]:
    by_split = unlabelled(log, ["rewarded"]).tasks.by_split
    return {split: [f"{task.row['prompt']} {task.answers[0]}" for task in by_split[split]] for split in SPLITS}


def test_many_answers_to_one_question_are_on_one_side() -> None:
    questions = [*(f"Sort {n}?" for n in range(12)), "How do I sort a list of numbers in Python?"]
    rows = [
        exchange(asked, f"Take variant {k}.", k % 2) for asked in questions for k in range(30 if "How" in asked else 4)
    ]
    made = unlabelled(log_of(rows), ["rewarded"])
    place: dict[str, str] = {}
    for split in SPLITS:
        for task in made.tasks.by_split[split]:
            assert place.setdefault(task.input, split) == split
    assert made.report.tied_sets == len(questions) == len(place)


def test_a_history_that_lines_without_a_session_repeat_is_on_one_side() -> None:
    rows = []
    for n in range(20):
        said: list[dict[str, Any]] = []
        for part in range(4):
            rows.append(exchange(f"And {n} {part}?", f"The topic {n} has a part {part} of its own.", part % 2, said))
            said = rows[-1]["messages"]
    prompts = prompts_of(log_of(rows))
    for one in prompts["train"]:
        for split in ("dev", "test"):
            assert not any(prompt.split("] ")[-1] in one or one.split("] ")[-1] in prompt for prompt in prompts[split])


def test_answers_that_were_drawn_again_are_on_the_side_of_their_session() -> None:
    rows = []
    for n in range(12):
        for tried in range(2):
            one = exchange(f"Sort {n}?", f"Take way {tried}.", tried)
            one["messages"] += row([2 * n + 100 * tried, 2 * n + 100 * tried + 1])["messages"]
            rows.append({**one, "reward": None, "session": f"s{n}"})
            one["messages"][1]["reward"] = tried
            one["messages"].insert(0, {"role": "system", "content": f"It is day {tried}."})
    report = unlabelled(log_of(rows), ["cloze"]).report
    assert (report.sessions, report.tied_sets, sum(report.sides.values())) == (12, 12, 12)
    for task in unlabelled(log_of(rows), ["rewarded"]).tasks.all:
        assert [each["content"] for each in task.row["prompt"]] == ["It is day 1.", task.input]


def test_what_begins_many_conversations_ties_nothing_and_is_not_imitated() -> None:
    hello = exchange("Hi!", "Hello!", 1)["messages"]
    hello[1]["reward"] = 1
    rows = [exchange(f"Sort {n}?", "Yes.", n % 2, hello) for n in range(30)]
    made = unlabelled(log_of(rows), ["rewarded"])
    assert made.report.tied_sets == 30
    assert {task.input for task in made.tasks.all} == {f"Sort {n}?" for n in range(1, 30, 2)}
    assert made.report.left_out["rewarded answers to what begins too many conversations"] == 30
