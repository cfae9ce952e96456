"""Measures Memory-T1 on dated dialogues of people (`benchmarks.methods.dialogues`): 200 questions about what was said when.

    pip install --no-deps chitchat-dataset==0.9.0
    python -m benchmarks.methods.memory_t1

A question asks what a person said of a word in a stretch of time. Its key is by rule: the person's turns of that time that hold
the word. They also used the word at three other turns, at least, so that words alone do not find it. Stretches are worded in
eight ways, of which the rules that find windows were written for six.
What a window is widened by is chosen on other people, who also say how many people it takes to decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.methods.dialogues import DATA, INSTALL, Person, load
from benchmarks.methods.write import FOLDER, needed, weigh, worded, write_with_record
from benchmarks.record import takes_nothing
from keepworth.episodes.episode import Task
from keepworth.memory.time_window import DAY, TimeWindow
from keepworth.methods.studies._slates import MOST, POOL, EvidencePolicy, train_evidence
from keepworth.methods.studies.memory_t1 import (
    DateQuestion,
    Widening,
    by_words,
    features_of,
    prepared,
    recall,
    training,
    within,
)
from keepworth.tasks.entries import topic_words
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import draw_order

COMMAND = f"{INSTALL}; python -m benchmarks.methods.memory_t1"
RECORD = FOLDER.parent / "memory_t1" / "dialogues.json"
LATEST, QUESTIONS, OF_PERSON = 40, 200, 8
ELSEWHERE, EVIDENCE = 3, 3
"""Turns with the word outside of the stretch, at least, and inside, at most."""
WIDENINGS = tuple(
    Widening(before, after) for before, after in ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 7.0), (0.0, 30.0))
)
SEEDS = (0, 1, 2)
WINDOW, TRUE, LATEST = "words, in the window", "words, in the true window", "latest with the word"
LEARNED, CONTROL, RULE = "learned", "rewards permuted", "the person's turns with the word, in the window"
GAIN = 0.05
"""The least gain in recall that would be worth having."""


def stretches(day: datetime, asked: datetime) -> dict[str, TimeWindow]:
    """Ways to speak of a day, and the time that each means."""

    def of(first: datetime, last: datetime) -> TimeWindow:
        return TimeWindow(first, last + DAY - timedelta(minutes=1))

    today, monday = asked.replace(hour=0, minute=0), day - DAY * day.weekday()
    after, before = day + DAY, day - DAY
    first = day.replace(day=1)
    month = of(first, (first + DAY * 31).replace(day=1) - DAY)
    written = {
        f"on {day:%-d %B %Y}": of(day, day),
        f"on {day:%B %-d}": of(day, day),
        f"between {before:%-d %B %Y} and {after:%-d %B %Y}": of(before, after),
        f"in {day:%B %Y}": month,
        f"the day before {after:%-d %B %Y}": of(day, day),
        f"the day after {before:%-d %B %Y}": of(day, day),
    }
    days = (today - day).days
    if 1 <= days <= 12:
        written["yesterday" if days == 1 else f"{days} days ago"] = of(day, day)
    if monday + DAY * 7 == today - DAY * today.weekday():
        written["last week"] = of(monday, monday + DAY * 6)
    return written


def ask(person: Person, most: int = OF_PERSON) -> list[DateQuestion]:
    """Questions on one person, of a word each, drawn by a fixed draw."""
    said = defaultdict(list)
    for session in person.sessions:
        for turn in session.turns:
            if turn.speaker == "user":
                for word in sorted(topic_words(turn.text) & set(re.findall(r"[a-z]+", turn.text.lower()))):
                    if len(word) > 3:
                        said[word].append((session.id, turn.index, datetime.fromisoformat(turn.date)))
    asked_at = datetime.fromisoformat(max(turn.date for session in person.sessions for turn in session.turns)) + DAY
    made: list[DateQuestion] = []
    for word in sorted(said, key=lambda word: draw_order("word", person.id, word)):
        days = sorted({when.replace(hour=0, minute=0) for _, _, when in said[word]})
        if len(days) < 2:
            continue
        day = min(days, key=lambda day: draw_order("day", person.id, word, day))
        written = stretches(day, asked_at)
        wording = min(written, key=lambda wording: draw_order("wording", person.id, word, wording))
        inside = {(session, turn) for session, turn, when in said[word] if written[wording].gap(when) == 0.0}
        if len(inside) > EVIDENCE or len(said[word]) - len(inside) < ELSEWHERE:
            continue
        question = prepared(as_task(person, f"What did I mention about {word} {wording}?", asked_at, inside), person.id)
        if question is not None:
            made.append(replace(question, range=written[wording]))
        if len(made) == most:
            break
    return made


def as_task(person: Person, text: str, asked_at: datetime, inside: set[tuple[str, int]]) -> Task:
    """The person's conversations with the key marked in them; the answer is what they said."""
    sessions = tuple(
        replace(
            session,
            turns=tuple(replace(turn, evidence=(session.id, turn.index) in inside) for turn in session.turns),
        )
        for session in person.sessions
    )
    answers = tuple(turn.text for session in sessions for turn in session.turns if turn.evidence)
    evidence = tuple(sorted({session for session, _ in inside}))
    key = f"dialogues/{person.id}/{text}"
    return Task(key, "dialogues", text, answers, "contains", f"{asked_at:%Y-%m-%dT%H:%M}", sessions, evidence)


def heard(question: DateQuestion, window: TimeWindow | None, widening: Widening) -> list[int]:
    """The best simple rule: of what the person said in the window, what holds the word of the question, the latest first."""
    word = tokens(question.text.partition(" about ")[2])[0]
    keep = widening.keeps(window, question.said_at)
    held = [
        at
        for at, entry in enumerate(question.entries)
        if keep[at] and entry.speaker == "user" and word in tokens(entry.text)
    ]
    return sorted(held, key=lambda at: question.said_at[at], reverse=True)


def draw(question: DateQuestion) -> float:
    """The expected recall of entries drawn evenly."""
    return min(1.0, MOST / len(question.entries))


def measure() -> dict[str, Any]:
    sides = {side: [ask(person) for person in people if person.sessions] for side, people in load(LATEST).items()}
    taught, tuned = ([one for of_person in sides[side] for one in of_person] for side in ("train", "dev"))
    tests = [one for place in range(OF_PERSON) for of_person in sides["test"] for one in of_person[place : place + 1]]
    tests = sorted(tests[:QUESTIONS], key=lambda question: (question.cluster, question.text))

    def score(rank: Callable[[DateQuestion], Sequence[int]], questions: Sequence[DateQuestion] = tests) -> list[float]:
        return [recall(question, rank(question)) for question in questions]

    def mean(widening: Widening) -> float:
        return float(np.mean(score(lambda question: within(question.window, question, widening), tuned)))

    widening = max(WIDENINGS, key=mean)

    def pooled(question: DateQuestion) -> tuple[list[int], Any]:
        pool = within(question.window, question, widening)[:POOL]
        return pool, features_of(question, pool, np.zeros(len(pool)))

    lessons = [training(question, *pooled(question)) for question in taught]

    def choose(policies: Sequence[EvidencePolicy], questions: Sequence[DateQuestion]) -> list[float]:
        pools = [pooled(question) for question in questions]
        rows = [
            [
                recall(one, [pool[at] for at in policy.ranked(x)])
                for one, (pool, x) in zip(questions, pools, strict=True)
            ]
            for policy in policies
        ]
        return [float(value) for value in np.mean(rows, axis=0)]

    learned, control = (
        [train_evidence(lessons, seed=seed, permuted=permuted) for seed in SEEDS] for permuted in (False, True)
    )
    plain = score(lambda one: within(one.window, one, widening), tuned)
    windowed = np.subtract(choose(learned, tuned), plain).tolist()
    pairs = [WINDOW, CONTROL, RULE, "words", LATEST]
    people = needed(windowed, [question.cluster for question in tuned], GAIN, len(pairs))
    clusters = [question.cluster for question in tests]
    print(f"{len(taught)} questions teach, {len(tuned)} tune: {widening}. To see {GAIN} over words in the window takes")
    print(f"{people} people; there are {len(set(clusters))}, with {len(tests)} questions", flush=True)
    others = dict(zip([id(one) for one in tests], [*tests[OF_PERSON:], *tests[:OF_PERSON]], strict=True))
    arms = {
        "chance": [draw(question) for question in tests],
        "latest": score(lambda one: range(len(one.entries))[::-1]),
        LATEST: score(lambda one: heard(one, None, widening)),
        "words": score(by_words),
        "words, in another's window": score(lambda one: within(others[id(one)].range, one, widening)),
        WINDOW: score(lambda one: within(one.window, one, widening)),
        RULE: score(lambda one: heard(one, one.window, widening)),
        LEARNED: choose(learned, tests),
        CONTROL: choose(control, tests),
        TRUE: score(lambda one: within(one.range, one, Widening(0.0, 0.0))),
        "oracle of choosing": score(lambda one: [at for at, entry in enumerate(one.entries) if entry.evidence]),
    }
    fields = weigh(arms, clusters, LEARNED, pairs)
    window = weigh(arms, clusters, WINDOW, ["words", "words, in another's window", LATEST])
    fields["comparisons"] += [{**gap, "against": f"{gap['against']} ({WINDOW})"} for gap in window["comparisons"]]
    right = float(np.mean([question.window == question.range for question in tests]))
    return {
        "model": "none: a policy over fifteen features of an entry",
        "seeds": len(SEEDS),
        "unit": f"recall@{MOST} of the turns that hold the word in the stretch of time",
        "controls": [CONTROL, "words, in another's window", "chance", "latest", RULE, TRUE],
        **fields,
        "planned": {"gain": GAIN, "clusters": people, "widening": [widening.before, widening.after]},
        "windows read right": round(right, 4),
        "data": DATA,
    }


def conclude(fields: dict[str, Any]) -> tuple[str, str]:
    """Held where the window helps and the learned choice is above every rival; in part where the window alone helps."""
    gaps = {gap["against"]: gap for gap in fields["comparisons"]}
    above = {name: gap["interval"][0] > 0.0 for name, gap in gaps.items()}
    window = all(above[name] for name in above if name.endswith(f"({WINDOW})"))
    verdict = "held" if all(above.values()) else "held in part" if window else "not held"
    means = {arm["name"]: arm["mean"] for arm in fields["arms"]}
    return verdict, (
        f"On {fields['n']} questions about dated dialogues of {fields['clusters']} people BM25 finds {means['words']:.2f} of the "
        f"evidence, {means[WINDOW]:.2f} in the window that the question names, {means[TRUE]:.2f} in the true one (chance "
        f"{means['chance']:.2f}), and the learned choice {means[LEARNED]:.2f}: {worded(gaps[WINDOW])}, {worded(gaps[CONTROL])}, "
        f"{worded(gaps[RULE])}, {worded(gaps[LATEST])}. Rules read {fields['windows read right']:.0%} of the windows right. No "
        "model reads or answers."
    )


def main() -> None:
    takes_nothing(__doc__)
    fields = measure()
    write_with_record("memory_t1", COMMAND, RECORD, conclude(fields), **fields)


if __name__ == "__main__":
    main()
