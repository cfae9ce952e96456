"""Systems by name: an agent behind a URL, and settings that apply to every system alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.evaluation.harness import Conditions, Row, measure
from keepworth.evaluation.summary import sum_up
from keepworth.evaluation.system import Answered, AskedQuestion, FullContext, LatestEntries, Listing, NoMemory
from keepworth.tasks.benchmark import haystack
from tests.evaluation.test_harness import Copies, ran, tasks_of


def holding(system: Any, texts: Sequence[str]) -> list[str]:
    """The system with one entry a text; the ids of the entries."""
    turns = tuple(Turn("user", text, place, False) for place, text in enumerate(texts))
    entries = haystack(Task("t", "s", "q", ("a",), "token_f1", sessions=(Session("s", "", turns),)))
    system.begin(0)
    system.write(entries)
    return [f"s/{place}.0" for place in range(len(texts))]


def shown(system: Any, text: str = "aaaa", most: int = 3) -> list[str]:
    return [each.item for each in system.ask(AskedQuestion(text, most)).shown]


class Tries(Listing):
    """It shows one of the entries that speak of what is asked: the one that earned most so far, or any where none is known."""

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self.draws = random.Random(seed)
        self.earned: dict[str, list[float]] = {}

    def ask(self, question: AskedQuestion) -> Answered:
        word = question.text.split()[-1].rstrip("?")
        fitting = [id for id, entry in self.entries.items() if word in entry.text.split()]

        def worth(id: str) -> float:
            met = self.earned.get(id, [])
            return sum(met) / len(met) if met else 0.5

        best = max(map(worth, fitting))
        return self._show([self.draws.choice([id for id in fitting if worth(id) == best])])

    def learn(self, reward: float, shown: Sequence[str]) -> None:
        for id in shown:
            self.earned.setdefault(id, []).append(reward)


WORDS, TIMES = 12, 12


def choosing() -> list[Task]:
    """Of each word two entries, one of which is right, over one haystack; each is asked for several times."""
    turns = tuple(
        Turn("user", f"About Word{word} it is {side}{word}", 2 * word + place, False)
        for word in range(WORDS)
        for place, side in enumerate(("right", "wrong"))
    )
    session = (Session("s", "2026-01-01T10:00", turns),)
    asked = [(time, word) for time in range(TIMES) for word in range(WORDS)]
    return [
        Task(f"made/{number}", "made", f"What of Word{word}?", (f"right{word}",), "token_f1", sessions=session)
        for number, (_, word) in enumerate(asked)
    ]


class AnswersItself(Listing):
    def ask(self, question: AskedQuestion) -> Answered:
        return Answered((), "something", 3)


def test_calls_and_tokens_that_are_not_equal_are_beside_the_verdict() -> None:
    tasks, rows = tasks_of(8), list[Row]()
    systems = {
        "none": NoMemory,
        "latest": LatestEntries,
        "same": LatestEntries,
        "full": FullContext,
        "own": AnswersItself,
    }
    for name, make in systems.items():
        measure(name, make, tasks, Conditions(tokens=20), Copies(), keep=rows.append)
    found = sum_up(rows, [])
    assert found["arms"]["none"]["calls"] == found["arms"]["latest"]["calls"] == 1.0
    assert found["arms"]["latest"]["unequal"] == []
    assert [arm.split(" (")[0] for arm in found["arms"]["full"]["unequal"]] == ["unequal tokens"]
    assert found["arms"]["own"]["unequal"] == [
        "unequal calls (3 a question, 1 usual)",
        "unequal tokens (0 a question, 20 usual)",
    ]
    assert all("unequal" not in gain["verdict"] for gain in found["gains"].values())


def test_options_are_offered_in_an_order_that_says_nothing() -> None:
    seen: list[tuple[str, ...]] = []

    class Looks(Listing):
        def ask(self, question: AskedQuestion) -> Answered:
            seen.append(question.options)
            return Answered()

    session = tasks_of(1)[0].sessions
    ran(
        Looks,
        [
            Task(f"k/{n}", "s", "q", ("right",), "none", sessions=session, options=("right", "b", "c", "d"))
            for n in range(20)
        ],
    )
    assert {options.index("right") for options in seen} == {0, 1, 2, 3}


def test_a_shuffled_reward_is_at_chance_over_many_draws() -> None:
    """The mean over seeds, where one draw says little."""
    shares = []
    for seed in range(12):
        rows = ran(Tries, choosing(), Conditions(tokens=50, setting="shuffled", seed=seed))
        shares.append(sum(row.scores["score"] for row in rows) / len(rows))
    assert abs(sum(shares) / len(shares) - 0.5) < 0.12
