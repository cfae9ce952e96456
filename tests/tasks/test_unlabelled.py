from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.episodes.episode import Session, Turn
from keepworth.episodes.errors import UnknownName
from keepworth.recipes.own import Config
from keepworth.tasks import sentence_choices
from keepworth.tasks.chat_logs import ChatLog, logged
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.metrics import tokens
from keepworth.tasks.sentence_choices import chosen, in_common, next_sentence, said_first, statements
from keepworth.tasks.splits import SPLITS
from keepworth.tasks.unlabelled import SELF_SUPERVISED, unlabelled
from keepworth.tasks.verifiers import verify

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
    for kind in SELF_SUPERVISED:
        try:
            made = unlabelled(log, [kind]).tasks
        except WrongFormat:  # too little that is apart
            continue
        place: dict[str, str] = {}
        for split in SPLITS:
            for task in made.by_split[split]:
                people = {f"person {session.id.split('/')[0]}" for session in task.sessions if "/" in session.id}
                asked = {f"asked {task.input}"}
                words = {f"said {each.words}" for session in task.sessions for each in statements(session)}
                for mark in {*(f"session {each.id}" for each in task.sessions), *people, *asked, *words}:
                    assert place.setdefault(mark, split) == split, mark
        assert {task.tags["split"] for task in made.by_split["train"]} == {"train"}


def test_cloze_answers_stand_in_their_evidence_and_nowhere_in_what_is_asked() -> None:
    made = unlabelled(simple(), ["cloze"])
    for task in made.tasks.all:
        (answer,) = task.answers
        said = [turn.text for session in task.sessions for turn in session.turns if turn.evidence]
        assert any(answer in text for text in said)
        assert not set(tokens(answer)) & set(tokens(task.input))


def test_what_came_next_came_next() -> None:
    for task in unlabelled(simple(), ["next"]).tasks.all:
        before, right = task.row["before"], chosen(task)
        (evidence,) = [turn for session in task.sessions for turn in session.turns if turn.evidence]
        assert f"{before} {right}" in evidence.text
        memory = " ".join(turn.text for session in task.sessions for turn in session.turns)
        assert all(each in memory for each in task.row["choices"])  # being there decides nothing
        assert not any(f"{before} {each}" in memory for each in task.row["choices"] if each != right)
        assert verify(task, task.answers[0]) == 1
        assert verify(task, " ".join(str(n) for n in range(1, 5))) == 0  # all of them are no answer
        assert len(set(task.row["choices"])) == 4


def test_what_was_said_first_was_said_first() -> None:
    tasks = unlabelled(simple(), ["order"]).tasks.all
    for task in tasks:
        places = {
            text: (session.date, session.id, turn.index)
            for text in task.row["choices"]
            for session in task.sessions
            for turn in session.turns
            if text in turn.text
        }
        assert min(places, key=lambda text: places[text]) == chosen(task)
    assert {len(task.evidence) for task in tasks} == {1, 2}  # pairs of one session, and of two


def test_what_was_said_first_follows_the_times_of_messages() -> None:
    """Sessions that last for weeks, one in another."""
    rows = []
    for n in range(24):
        messages = [
            {"role": "user", "content": sentence(2 * n + place), "time": time}
            for place, time in enumerate((f"2026-01-{n + 1:02d}", f"2026-02-{28 - n:02d}"))
        ]
        rows.append({"messages": messages, "session": f"s{n}"})
    tasks = unlabelled(log_of(rows), ["order"]).tasks.all
    said_at = {each["content"]: each["time"] for one in rows for each in one["messages"]}
    assert {len(task.evidence) for task in tasks} == {1, 2}
    for task in tasks:
        assert min(task.row["choices"], key=said_at.__getitem__) == chosen(task)


def test_times_that_contradict_the_order_of_messages_are_not_asked_about() -> None:
    session = Session(
        "s", "2026-01-02", (Turn("user", sentence(0), 0), Turn("user", sentence(1), 1, date="2026-01-01"))
    )
    assert said_first([session]) == []


def test_without_times_only_one_session_has_an_order() -> None:
    sessions = [Session(f"s{n}", "", tuple(Turn("user", sentence(4 * n + i), i) for i in range(4))) for n in range(3)]
    tasks = said_first(sessions)
    assert len(tasks) == 6
    assert all(len(task.evidence) == 1 for task in tasks)


def test_a_sentence_said_twice_is_asked_about_by_nobody() -> None:
    texts = [
        f"{sentence(0)} {sentence(1)}",
        f"{sentence(0)} {sentence(2)}",
        f"{sentence(3)} {sentence(4)}",
        sentence(5),
    ]
    session = Session("s", "", tuple(Turn("user", text, i) for i, text in enumerate(texts)))
    (task,) = next_sentence([session])
    assert task.row["before"] == sentence(3)
    assert all(sentence(0) not in each.input for each in said_first([session]))


def test_a_long_turn_takes_no_more_for_a_sentence_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: Counter[str] = Counter()

    def counting(name: str) -> None:
        original = getattr(sentence_choices, name)

        def counted(*given: Any) -> Any:
            compared[name] += 1
            return original(*given)

        monkeypatch.setattr(sentence_choices, name, counted)

    counting("_overlap")
    counting("_ordered")
    found = []
    for count in (100, 400):
        text = " ".join(f"We saw the tree {n} near the lake {n * n}." for n in range(count))
        session = Session("s", "", (Turn("user", text, 0), Turn("user", sentence(0), 1)))
        compared.clear()
        assert len(next_sentence([session])) > count / 4
        assert len(said_first([session])) == 1
        found.append(dict(compared))
    short, long = found
    assert long["_overlap"] < 5 * short["_overlap"]
    assert long["_ordered"] < 5 * short["_ordered"]


def test_nearness_in_words_and_length_decide_nothing() -> None:
    """What follows shares half of the words of what it follows and is longer; other sentences share more, or are longer still."""
    texts = []
    for n in range(12):
        words = [f"w{n}x{part}" for part in "abcdef"]
        texts.append(f"We {' '.join(words)} now. We {' '.join(words[:3])} q{n} r{n} s{n} t{n} now.")
        texts.append(f"We {' '.join(words[:5])} q{n} now.")
        texts.append(f"We saw u{n} in v{n} with many many many other people of the town again today.")
        texts.append(f"We had y{n} for z{n} once.")
    session = Session("s", "", tuple(Turn("user", text, i) for i, text in enumerate(texts)))
    tasks = [task for seed in range(40) for task in next_sentence([session], seed)]
    nearest = sum(in_common(task)[int(task.answers[0]) - 1] == max(in_common(task)) for task in tasks) / len(tasks)
    longest = sum(len(chosen(task).split()) == max(len(each.split()) for each in task.row["choices"]) for task in tasks)
    assert len(tasks) == 480
    assert (
        nearest < 0.8
    )  # 1 - 3/47, were the wrong ones drawn at random; each has one nearer sentence, taken half the time or more
    assert longest / len(tasks) < 0.35


def test_the_report_counts() -> None:
    report = unlabelled(simple(), SELF_SUPERVISED).report
    assert (report.sessions, report.dated, report.turns, report.statements) == (24, 24, 72, 144)
    assert report.tied_sets == 24
    assert sum(report.sides.values()) == 24
    cloze, following, order = report.kinds
    assert sum(cloze.by_split.values()) == 144  # one of each statement
    assert (following.chance, order.chance) == (0.25, 0.5)
    assert [each.answer_in_evidence for each in report.kinds] == [1.0, 1.0, 1.0]
    assert all(0 <= value <= 1 for each in report.kinds for value in each.shortcuts.values())
    text = "\n".join(report.lines())
    assert "24 sessions" in text
    assert "may be chance" in text
    assert report.to_json()["kinds"][0]["kind"] == "cloze"


def test_rules_and_their_opposites_are_measured() -> None:
    """The shorter sentence comes first; the next one is shortest and has no word in common."""
    rows = []
    for n in range(60):
        words = [f"{letter}{n}" for letter in "abcdefghij"]
        said = f"We saw {' '.join(words[:6])} today. It was {words[6]} and {words[7]} out there."
        later = [f"Later we saw {' '.join(words[:k])} and many other people too." for k in (3, 4, 5)]
        rows.append({"messages": [{"role": "user", "content": each} for each in (said, *later)], "session": f"s{n}"})
    following, order = unlabelled(log_of(rows), ["next", "order"], distractors=0).report.kinds
    assert following.shortcuts["the shortest"] == 1
    assert following.shortcuts["fewest words in common"] == 1
    assert following.shortcuts["the first"] + following.shortcuts["the last"] < 1
    assert order.best_shortcut[0] == "the shorter"
    assert order.shortcuts["the first"] + order.shortcuts["the last"] == 1


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
    one, other = unlabelled(log_of(rows), ["cloze", "next"]), unlabelled(log_of(rows[::-1]), ["cloze", "next"])
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
    (line,) = [each for each in report.lines() if each.startswith("rewarded:")]
    assert line.endswith("test tasks.")
    assert report.kinds[0].answer_in_evidence is None


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
            assert not any(each.split("] ")[-1] in one or one.split("] ")[-1] in each for each in prompts[split])


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
