"""A generated book of events: who did what, where and when. No third-party text, any size, and no name on two sides."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import permutations

from keepworth.base.errors import KeepworthError
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.passages import name_of, passage, with_evidence
from keepworth.worlds.data_sets.people import names_of
from keepworth.worlds.json_lines import mark_evidence
from keepworth.worlds.splits import draw_order, side


def _words(text: str) -> list[str]:
    return text.split()


_BOOKS = {"train": 6, "dev": 3, "test": 10}
"""The number of books of a side."""

_WHAT = tuple(
    f"{of} {form}"
    for of in _words("chess jazz pottery film cooking science poetry photo bicycle wine robot kite opera garden")
    for form in _words("contest evening workshop fair lecture festival auction meeting")
)
_WHERE = tuple(
    f"{named} {building}"
    for named in _words(
        "Harbour Linden Castle Market Abbey Orchard Quarry River Station Union Bishop Mill Garden Tower"
    )
    for building in _words("Hall Park Square Theatre House Yard Court Library")
)
_TOLD = (
    "On {t}, {e} was at {s} for the {c}.",
    "{e} went to the {c} at {s} on {t}.",
    "The {c} at {s} on {t} had {e} among its guests.",
    "It was {t}, and {e} had come to {s} for the {c}.",
)
_CALLED: Mapping[str, str] = {"t": "dates", "s": "places", "e": "people", "c": "kinds of event"}
_ASKED = (*permutations("esc", 2), ("es", "c"), ("ec", "t"), ("sc", "e"))
"""The fields of a cue, and the field that is asked for."""
GROUPS = ("0", "1", "2", "3-5", "6+")
"""Groups of questions by the number of events that match their cue."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event: t is the date as text, s the place, e the person, c the kind; `day` gives its order in time."""

    t: str
    s: str
    e: str
    c: str
    day: int


def event_book(split: str, *, chapters: int = 100, each: int = 3, seed: int = 0) -> list[Task]:
    """Returns questions about books of events, which are not in order of time.

    For each book and each cue (a person, a place, a kind of event, or two of these): which dates, places, people or kinds go
    with it. A cue without a match has the answer `none`, so that invented answers are penalised. Then the latest event of a
    person, and a person's kinds of event in order of time.

    Answers are scored by `set_f1`, `token_f1` and `in_order`. The mean over groups of the first kind is "simple recall", the
    mean of the others "chronological awareness"; the paper's own books are written by a language model and have 100,000
    tokens. The tags are type ("0 events", ..., "latest", "in order"), split, cluster (the book).

    Args:
        split: "train", "dev" or "test".
        chapters: The events of a book, a chapter each; at least 10.
        each: The questions for each group of GROUPS, which are by how many events match.
        seed: The seed of the books.
    """
    if chapters < 10 or each < 1:
        raise KeepworthError(f"chapters={chapters}, each={each}: at least 10 chapters and 1 question.", "Write more.")
    return [task for number in range(_BOOKS[split]) for task in _book(split, number, chapters, each, seed)]


def _book(split: str, number: int, chapters: int, each: int, seed: int) -> list[Task]:
    draw = random.Random(f"events/{split}/{seed}/{number}")
    people, places, kinds = (
        draw.sample(names, min(12, len(names)))
        for names in (names_of(split), *([value for value in all_ if side(value) == split] for all_ in (_WHERE, _WHAT)))
    )
    # The last two of each are in no event, for cues without a match.
    absent = {"e": people[-2:], "s": places[-2:], "c": kinds[-2:]}
    people, places, kinds = people[:-2], places[:-2], kinds[:-2]
    days = draw.sample(range(365 * 3), chapters)
    fields = (places, people, kinds)
    # Some values are frequent and some rare, which fills the groups of questions.
    weights = [[1 / (rank + 1) for rank in range(len(values))] for values in fields]
    events = []
    for day in days:
        where, person, kind = (draw.choices(of, shares)[0] for of, shares in zip(fields, weights, strict=True))
        events.append(Event(_written(day), where, person, kind, day))
    names = [name_of("events", split, seed, number, at) for at in range(len(events))]
    book = [
        passage(id, [draw.choice(_TOLD).format(t=e.t, s=e.s, e=e.e, c=e.c)])
        for id, e in zip(names, events, strict=True)
    ]
    chapter, book_id = {event: at for at, event in enumerate(events)}, f"{split}/{seed}/{number}"

    def ask(kind: str, question: str, answer: str, verifier: str, about: Sequence[Event]) -> Task:
        """Returns a question about some of the events, whose chapters are the evidence."""
        chapters_about = {chapter[event] for event in about}
        haystack = tuple(
            mark_evidence(session, {0}) if at in chapters_about else session for at, session in enumerate(book)
        )
        return with_evidence(
            Task(
                key=f"event-book/{book_id}/{name_of(question)}",
                source=f"event-book+{len(book)}",
                input=question,
                answers=(answer,),
                verifier=verifier,
                sessions=haystack,
                tags={"type": kind, "split": split, "cluster": book_id},
            )
        )

    by_group: dict[str, list[tuple[str, str, list[Event]]]] = {group: [] for group in GROUPS}
    for cue, target in _ASKED:
        for values in _cues(cue, events, absent, draw):
            matching = [
                event for event in events if all(getattr(event, f) == v for f, v in zip(cue, values, strict=True))
            ]
            things = sorted({getattr(event, target) for event in matching})
            question = f"Which {_CALLED[target]} go with {_described(cue, values)}?"
            question += " List all, separated by semicolons, or say none."
            by_group[_group(len(matching))].append((question, "; ".join(things) or "none", matching))
    tasks = []
    for group, questions in by_group.items():
        questions.sort(key=lambda one: draw_order(seed, number, one[0]))
        tasks += [ask(f"{group} events", question, answer, "set_f1", of) for question, answer, of in questions[:each]]
    often = [person for person in people if 2 <= sum(event.e == person for event in events) <= 6]
    for person in often[:each]:
        of_person = sorted((event for event in events if event.e == person), key=lambda event: event.day)
        last = f"Where was {person} last, by date?"
        tasks.append(ask("latest", last, of_person[-1].s, "token_f1", of_person[-1:]))
        kinds_met = list(dict.fromkeys(event.c for event in of_person))
        if len(kinds_met) == len(of_person):
            kinds_in_order = (
                f"Which kinds of event was {person} at? List all in order of their dates, separated by semicolons."
            )
            tasks.append(ask("in order", kinds_in_order, "; ".join(kinds_met), "in_order", of_person))
    return tasks


def _written(day: int) -> str:
    when = date(2021, 1, 1) + timedelta(days=day)
    return f"{when.day} {when:%B} {when.year}"


def _cues(
    cue: str, events: Sequence[Event], absent: Mapping[str, Sequence[str]], draw: random.Random
) -> list[tuple[str, ...]]:
    """Returns combinations of values that occur in an event, and some that no event matches."""
    cues = sorted({tuple(getattr(event, field) for field in cue) for event in events})
    if len(cue) == 1:
        return cues + [(value,) for value in absent[cue]]
    apart = {tuple(getattr(draw.choice(events), field) for field in cue) for _ in range(20)}
    return cues + sorted(apart - set(cues))[:5]


def _described(cue: str, values: Sequence[str]) -> str:
    formats = {"e": "{}", "s": "{}", "c": "the {}"}
    return " and ".join(formats[field].format(value) for field, value in zip(cue, values, strict=True))


def _group(count: int) -> str:
    return "6+" if count > 5 else "3-5" if count > 2 else str(count)


METHOD = Method(
    kind="benchmark",
    name="event-book",
    title="Event book",
    paper="arXiv 2501.13121",
    about="Answer who did what, where and when, in a generated book",
    tags=("factual",),
    differs="Sentences are templates, where a model writes the paper's books of 100,000 tokens.",
    make=Benchmark("event-book", event_book, metric="score", shipped=True),
)
