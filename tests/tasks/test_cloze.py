from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from keepworth.episodes.episode import Session, Turn
from keepworth.tasks.cloze import BLANK, cloze, spans, training_cloze
from keepworth.tasks.entries import candidates, entries
from keepworth.tasks.longmemeval import questions
from keepworth.tasks.metrics import tokens


def log(*texts: str, name: str = "s", speaker: str = "user") -> Session:
    return Session(name, "2023-05-01T10:00", tuple(Turn(speaker, text, index) for index, text in enumerate(texts)))


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("I bought my bike for 300 dollars.", [("number", "300")]),
        ("I paid $1,299.99 for it.", [("number", "$1,299.99")]),
        ("I have two dogs and 16GB of memory.", [("number", "two"), ("number", "16GB")]),
        ("I met Sarah at the Grand Ballroom.", [("name", "Sarah"), ("name", "Grand Ballroom")]),
        ("I studied at the University of Melbourne.", [("name", "University of Melbourne")]),
        ("Sarah met me.", []),  # begins the sentence
        ("When I think I should, I do.", []),
        ("I saw it on March 15th, 2023, at 7:30 pm.", [("date", "March 15th, 2023"), ("date", "7:30 pm")]),
        ("I run on Tuesdays and on 3/27.", [("date", "Tuesdays"), ("date", "3/27")]),
        ("I met Tom because Tom called.", []),  # its other words give it away
        ("I watched my TV.", []),
        ("I love Hendrick's gin.", [("name", "Hendrick")]),
    ],
)
def test_spans(sentence: str, found: list[tuple[str, str]]) -> None:
    assert [(kind, sentence[start:end]) for kind, start, end in spans(sentence)] == found


def test_a_task_from_a_users_log() -> None:
    session = log("Hello there! I bought my bike for 300 dollars. Is that much?", "Nothing to hide in this one.")
    (task,) = cloze([session])
    assert task.input == f'Complete: "I bought my bike for {BLANK} dollars."'
    assert task.answers == ("300",)
    assert task.evidence == ("s",)
    assert [turn.evidence for turn in task.sessions[0].turns] == [True, False]
    assert "I bought my bike for 300 dollars." in entries(task)[0].text
    assert candidates(task, 3, seed=0)
    assert dict(task.tags) == {"type": "cloze-number", "split": "train", "abstention": "false", "distractors": "0"}
    (again,) = cloze([log("I bought my bike for 300 dollars.", name="other")])
    assert again.key != task.key


def test_only_the_named_speaker_is_used() -> None:
    session = log("I bought my bike for 300 dollars.", speaker="Ann")
    assert len(cloze([session], speaker="Ann")) == 1
    with pytest.raises(ValueError, match=r"nobody called 'user' speaks .* \['Ann'\]"):
        cloze([session])


def test_one_wording_with_two_answers_is_dropped_and_with_one_is_kept_once() -> None:
    assert cloze([log("I bought my bike for 300 dollars.", "I bought my bike for 400 dollars.")]) == []
    assert len(cloze([log("I bought my bike for 300 dollars.", "I bought my bike for 300 dollars.")])) == 1


def test_distractors_do_not_compete() -> None:
    logs = [
        log("I bought my bike for 300 dollars.", name="a"),
        log("We bought a new bike and dollars are gone.", name="rival"),
        log("Nothing of interest today.", name="b"),
        replace(log("Nothing of interest later.", name="late"), date="2024-01-01T00:00"),
    ]
    (task,) = cloze(logs, distractors=5)
    assert {session.id for session in task.sessions} == {"a", "b"}
    assert task.tags["distractors"] == "1"


@pytest.mark.parametrize("options", [{"limit": 0}, {"distractors": -1}])
def test_bad_options(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cloze([log("I bought my bike for 300 dollars.")], **options)


def test_a_session_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="session id 's' is given more than once"):
        cloze([log("Hi."), log("Ho.")])


def test_training_cloze_uses_training_sessions_only_and_hides_its_answers() -> None:
    tasks = training_cloze(seed=0)
    assert len(tasks) > 1000
    train = {s.id for q in questions() if q.split == "train" for s in q.sessions}
    held_out = {
        turn.text
        for q in questions()
        if q.split != "train"
        for s in q.sessions
        for turn in s.turns
        if len(turn.text) > 60
    }
    for task in tasks:
        assert {session.id for session in task.sessions} <= train
        answer = set(tokens(task.answers[0])) - {"of", "in", "and", "de"}
        assert answer
        assert not answer & set(tokens(task.input))
        assert task.input.count(BLANK) == 1
        (turn,) = [turn for session in task.sessions for turn in session.turns if turn.evidence]
        assert turn.speaker == "user"
        whole = task.input.removeprefix('Complete: "')[:-1].replace(BLANK, task.answers[0])
        assert whole in " ".join(turn.text.split())
        assert turn.text not in held_out
    assert len({task.key for task in tasks}) == len({task.input for task in tasks}) == len(tasks)


def test_kinds_are_balanced_and_draws_nest() -> None:
    few, many = training_cloze(seed=5, limit=30), training_cloze(seed=5, limit=300)
    assert Counter(task.tags["type"] for task in few) == {"cloze-name": 10, "cloze-number": 10, "cloze-date": 10}
    assert many[:30] == few
    assert training_cloze(seed=6, limit=30) != few
