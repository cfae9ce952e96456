"""What `Keeper` keeps of conversations that it never saw, beside rules of one line.

    python -m benchmarks.writing.keeping --data FOLDER [--draws 20] [--fit]

FOLDER holds LoCoMo and BFCL's memory tasks; LongMemEval ships with the package. --fit only prints the weights of
`importance.PRIOR`, which are fitted on LongMemEval and BFCL alone: LoCoMo is not commercial and is for evaluation.

A person is one conversation of LoCoMo or BFCL, or the sessions of ten questions of LongMemEval: what the user says, by turns or
by sentences, and the turns of user and assistant. A memory has places for an eighth
of what a person says. Kept is the share of its evidence that a question finds in memory, averaged over questions.

The weights of a keeper are fitted on the other data sets, so that no number was fitted to its own data. In each draw, what is
kept is counted on half of the people. Controls: chance; a regression on the evidence of the other half, and on that of these very
people (the ceiling of any weights); an oracle. Intervals are over people, with draws inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import arguments, save
from keepworth.base.statistics import interval
from keepworth.memory.facts import USER
from keepworth.memory.importance import MARKS, PRIOR, marks, specificity
from keepworth.memory.sentences import sentences
from keepworth.methods.benchmarks.bfcl_memory import bfcl_memory
from keepworth.methods.benchmarks.locomo import locomo
from keepworth.records.episode import Session
from keepworth.training.run_folder import versions
from keepworth.worlds.data_sets.longmemeval_questions import questions
from keepworth.worlds.splits import SPLITS, draw_order

OUT = Path(__file__).parent / "keeping.json"
PLACES, PERSON = 8, 10
SHRINKAGE = 30.0
RULE = np.array([0.5, -1.0, 1.0] + [0.0] * (len(MARKS) - 3))
"""What a fit is shrunk towards: has digits; of equals the longer, but nothing very long."""
FITTED_ON = ("LongMemEval, turns", "LongMemEval, sentences", "BFCL, sentences")
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Person:
    """texts: in the order of time; marks: theirs; asked: of each question the places of its evidence; worth: of each text, how
    many questions it is (a share of) the evidence of; source: the data set."""

    texts: tuple[str, ...]
    marks: Floats
    asked: tuple[frozenset[int], ...]
    worth: Floats
    source: str

    @property
    def most(self) -> int:
        return max(1, round(len(self.texts) / PLACES))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def said_once(texts: Sequence[str], asked: Sequence[frozenset[int]], source: str) -> Person:
    """With each text on one line, and once."""
    lines = [" ".join(text.split()) for text in texts]
    number_of = {line: number for number, line in enumerate(dict.fromkeys(lines))}
    places = tuple(frozenset(number_of[lines[index]] for index in evidence) for evidence in asked)
    worth = np.zeros(len(number_of))
    for evidence in places:
        worth[list(evidence)] += 1.0 / len(evidence)
    return Person(tuple(number_of), marks(list(number_of)), places, worth, source)


def of_talk(
    sessions: Sequence[Session],
    asked: Sequence[tuple[str, str, set[tuple[str, int]]]],
    source: str,
    *,
    whole: bool,
    everyone: bool = False,
) -> Person:
    """asked: (question, answer, its marked turns). whole: a text is a turn; else it is a sentence, and the evidence of a marked
    turn is the sentence that shares most words with question and answer."""
    texts: list[str] = []
    places: dict[tuple[str, int], list[int]] = {}
    for session in sorted(
        {session.id: session for session in sessions}.values(), key=lambda session: (session.date, session.id)
    ):
        for turn in session.turns:
            if everyone or turn.speaker == USER:
                parts = [turn.text] if whole else sentences(turn.text)
                facts = [part.strip() for part in parts if part.strip()]
                places[session.id, turn.index] = list(range(len(texts), len(texts) + len(facts)))
                texts += facts
    evidence = []
    for question, answer, turns in asked:
        chosen: set[int] = set()
        for turn in turns:
            if of_turn := places.get(turn, []):
                hints, core = words(question), words(answer)
                chosen.add(max(of_turn, key=lambda n: 3 * len(core & words(texts[n])) + len(hints & words(texts[n]))))
        if chosen:
            evidence.append(frozenset(chosen))
    return said_once(texts, evidence, source)


def marked(sessions: Sequence[Session]) -> set[tuple[str, int]]:
    return {(session.id, turn.index) for session in sessions for turn in session.turns if turn.evidence}


def of_longmemeval(name: str, *, whole: bool = True, everyone: bool = False) -> list[Person]:
    own = [
        question for question in questions() if not question.abstention and question.type != "single-session-assistant"
    ]
    order = sorted(own, key=lambda question: (draw_order("person", question.tie), question.id))
    groups = [order[first : first + PERSON] for first in range(0, len(order) - PERSON + 1, PERSON)]
    return [
        of_talk(
            [session for question in group for session in question.sessions],
            [(question.text, " ".join(question.answers), marked(question.sessions)) for question in group],
            name,
            whole=whole,
            everyone=everyone,
        )
        for group in groups
    ]


def of_tasks(tasks: Sequence[Any], by: Callable[[Any], str], source: str, *, whole: bool) -> list[Person]:
    people: dict[str, list[Any]] = {}
    for task in tasks:
        people.setdefault(by(task), []).append(task)
    return [
        of_talk(
            tasks[0].sessions,
            [(task.input, " ".join(task.answers), marked(task.sessions)) for task in tasks],
            source,
            whole=whole,
            everyone=True,
        )
        for tasks in people.values()
    ]


def worlds(data: Path | None) -> dict[str, list[Person]]:
    talks = [task for split in SPLITS for task in locomo(split, data=data)]
    tools = [task for split in SPLITS for task in bfcl_memory(split, data=data)]
    return {
        "LongMemEval, turns": of_longmemeval("LongMemEval, turns"),
        "LongMemEval, sentences": of_longmemeval("LongMemEval, sentences", whole=False),
        "LongMemEval, turns of both": of_longmemeval("LongMemEval, turns of both", everyone=True),
        "LoCoMo, turns": of_tasks(talks, lambda task: str(task.tags["conversation"]), "LoCoMo, turns", whole=True),
        "BFCL, sentences": of_tasks(tools, lambda task: str(task.tags["type"]), "BFCL, sentences", whole=False),
    }


def regression(people: Sequence[Person], towards: Floats, precision: float, each: float = 0.0) -> Floats:
    """Conditional logistic regression of evidence on marks, by Newton's method. each: the weight of a data set, so that large
    ones say no more; 0 counts questions."""
    total: dict[str, float] = {}
    for person in people:
        total[person.source] = total.get(person.source, 0.0) + person.worth.sum()
    share = {source: each / worth if each else 1.0 for source, worth in total.items()}

    def likelihood(weights: Floats) -> float:
        """Less the penalty."""
        value = -0.5 * precision * float(((weights - towards) ** 2).sum())
        for person in people:
            score, worth = person.marks @ weights, person.worth * share[person.source]
            value += float(worth @ score - worth.sum() * (score.max() + np.log(np.exp(score - score.max()).sum())))
        return value

    weights = towards.copy()
    for _ in range(12):
        slope, curve = -precision * (weights - towards), precision * np.eye(len(weights))
        for person in people:
            worth, odds = person.worth * share[person.source], chances(person.marks @ weights)
            slope += worth @ person.marks - worth.sum() * (odds @ person.marks)
            curve += worth.sum() * spread(odds, person.marks)
        step, now = np.linalg.solve(curve, slope), likelihood(weights)
        while likelihood(weights + step) < now - 1e-9:
            step /= 2
        weights = weights + step
    return weights


def chances(score: Floats) -> Floats:
    """In proportion to the exponentials of the scores."""
    odds = np.exp(score - score.max())
    return np.asarray(odds / odds.sum())


def spread(odds: Floats, marks: Floats) -> Floats:
    """The covariance of marks, [marks, marks], under chances that sum to 1."""
    mean = odds @ marks
    return np.asarray((marks.T * odds) @ marks - np.outer(mean, mean))


def begun(people: Sequence[Person]) -> tuple[float, ...]:
    return tuple(float(round(value, 2)) for value in regression(people, RULE, SHRINKAGE, each=400.0))


def begun_elsewhere(worlds: dict[str, list[Person]]) -> dict[str, tuple[float, ...]]:
    """Of each world the weights that are fitted on the other data sets."""

    def source(name: str) -> str:
        return name.split(",")[0]

    return {
        name: begun([person for other, people in worlds.items() if source(other) != source(name) for person in people])
        for name in worlds
    }


def keep_evidence(person: Person, score: Floats) -> tuple[float, int]:
    """The share of evidence that stays, over questions, and how many those are; of equals the latest stays."""
    return float(person.worth[staying(score, person.most)].sum()), len(person.asked)


def staying(score: Floats, most: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.lexsort((np.arange(len(score)), score))[::-1][:most]


def rules() -> dict[str, Callable[[Person], Floats]]:
    def length(person: Person) -> Floats:
        return np.array([len(text.split()) for text in person.texts], dtype=float)

    def mark(name: str) -> Callable[[Person], Floats]:
        return lambda person: person.marks[:, MARKS.index(name)]

    return {
        "newest": lambda person: np.arange(len(person.texts), dtype=float),
        "longest": length,
        "has digits": mark("digits"),
        "has digits, of equals the longer": lambda person: mark("digits")(person) + 1e-6 * length(person),
        "has a name": mark("a name"),
        "has a time": mark("a time"),
        "says my": mark("my"),
        "asks nothing": lambda person: -person.marks[:, MARKS.index("asks")],
        "most specific": lambda person: np.array([specificity(text) for text in person.texts]),
    }


def measured(people: Sequence[Person], weights: tuple[float, ...], draws: int) -> dict[str, Any]:
    rows: dict[str, list[list[tuple[int, float, int]]]] = {}
    for draw in range(draws):
        rng = np.random.default_rng([7, draw])
        order = rng.permutation(len(people)).tolist()
        half = (len(order) + 1) // 2
        seen, held = [people[n] for n in order[:half]], order[half:]

        def note(arm: str, score: Callable[[Person], Floats], held: Sequence[int] = held) -> None:
            rows.setdefault(arm, []).append([(n, *keep_evidence(people[n], score(people[n]))) for n in held])

        note("chance", lambda person, rng=rng: rng.random(len(person.texts)))  # type: ignore[misc]
        for name, rule in rules().items():
            note(name, rule)
        note("the keeper", lambda person: person.marks @ np.array(weights))
        note("oracle", lambda person: person.worth)
        for name, of in (("the evidence of others", seen), ("the evidence of these", people)):
            fitted = regression(of, np.array(weights), 1.0)
            note(f"regression on {name}", lambda person, fitted=fitted: person.marks @ fitted)  # type: ignore[misc]
    return summary(rows)


def summary(rows: dict[str, list[list[tuple[int, float, int]]]]) -> dict[str, Any]:
    totals: dict[str, dict[int, Floats]] = {}
    for arm, draws in rows.items():
        for number, share, count in (row for draw in draws for row in draw):
            totals.setdefault(arm, {}).setdefault(number, np.zeros(2))
            totals[arm][number] += (share, count)

    def over_people(arm: str, than: str = "") -> dict[str, float]:
        total = totals[arm]
        sums = [float(total[n][0] - (totals[than][n][0] if than else 0.0)) for n in total]
        counts = [float(total[n][1]) for n in total]
        bounds = interval(sums, counts)
        return {"mean": sum(sums) / sum(counts), "low": bounds.low, "high": bounds.high, "people": len(total)}

    best = max(rules(), key=lambda arm: over_people(arm)["mean"])
    return {
        "kept": {arm: over_people(arm) for arm in totals},
        "best rule": best,
        "more than the best rule": over_people("the keeper", best),
        "more than the keeper": {arm: over_people(arm, "the keeper") for arm in totals if arm.startswith("regression")},
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--data", type=Path, help="a folder with LoCoMo and BFCL's memory tasks")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--fit", action="store_true", help="only print the weights that a keeper begins with")
    given = parser.parse_args()
    people = worlds(given.data)
    if given.fit:
        print(dict(zip(MARKS, begun([person for name in FITTED_ON for person in people[name]]), strict=True)))
        return
    begin = begun_elsewhere(people)
    body: dict[str, Any] = {
        "command": "python -m benchmarks.writing.keeping --data FOLDER",
        "draws": given.draws,
        "places": "for an eighth of what a person says",
        "ships with": dict(zip(MARKS, PRIOR, strict=True)),
        "versions": versions(),
        "worlds": {},
    }
    with ProcessPoolExecutor(2) as pool:
        results = pool.map(measured, people.values(), begin.values(), [given.draws] * len(people))
        for name, result in zip(people, results, strict=True):
            body["worlds"][name] = {"weights": dict(zip(MARKS, begin[name], strict=True)), **result}
            save(OUT, body)
            shares = {arm: f"{of['mean']:.3f}" for arm, of in result["kept"].items()}
            print(f"{name}: {shares}, best rule: {result['best rule']}", flush=True)


if __name__ == "__main__":
    main()
