"""Knowledge that changes: LongMemEval's update questions as a stream, with old and new evidence in one memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from keepworth.base.metrics import tokens
from keepworth.registry import Method
from keepworth.worlds.course import Course, only_way, stream_task
from keepworth.worlds.data_sets.longmemeval_questions import questions
from keepworth.worlds.entries import covers
from keepworth.worlds.made_up import check_split, leanings
from keepworth.worlds.scene import Scene, Stream, StreamTask
from keepworth.worlds.streams import World

# A user states a fact in one session and changes it in a later one; the question asks for the later. Both are read as
# they come, both are equally similar to the question, and only the reward tells which one is right. Data:
# "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory" (arXiv 2410.10813), as the package ships it:
# its extractive knowledge-update questions of which some marked turn holds the answer and some other does not.
#
# The agent is a rule: it answers from one of the notes it is offered, and is right where the answer is in that note.


ON = "read on"
GOAL = "what does the user say now"
SIDES = {"dev": ("train",), "held-out": ("dev", "test")}
OFFERED = 8
HELD_SHARE = 0.3
READ = 0.5
LATER = 0.1
FIRST = 2


@dataclass(frozen=True, slots=True)
class Note:
    """What the user said in one marked turn.

    label: tells notes apart, by date and the sentence nearest to the question; right: whether the answer is in the note.
    """

    text: str
    label: str
    right: bool


@dataclass(frozen=True, slots=True)
class Update:
    """A question, with what the user said earlier and what in the last session about it."""

    id: str
    question: str
    earlier: tuple[Note, ...]
    latest: tuple[Note, ...]


def updates(*, split: str = "dev", seed: int = 0, order: str = "random", length: int | None = None) -> Stream:
    """Builds the stream. Each question comes about eight times; its earlier notes are read first, its latest about a tenth of
    the stream later, and only then is it asked. Held-out questions are read in the same way and never asked in the stream.

    Args:
        split: "dev" takes the questions of LongMemEval's training side, "held-out" the others.
        seed: The seed of the stream.
        order: An order other than "random" changes the order of questions, not of reading.
        length: The number of tasks; None for eight of each question.
    """
    generator = np.random.default_rng([95, check_split(split, order), seed])
    facts = _read_updates(SIDES[split])
    facts = tuple(facts[index] for index in generator.permutation(len(facts)))
    held_numbers = set(range(len(facts) - round(HELD_SHARE * len(facts)), len(facts)))
    stream_numbers = [number for number in range(len(facts)) if number not in held_numbers]
    total = length or 8 * len(stream_numbers)
    # Held-out questions are read among the others, all in the first `READ` of the stream.
    turns = [int(index) for index in generator.permutation(len(facts))]
    turns.sort(key=lambda number: number not in stream_numbers[:FIRST])
    reading: dict[int, list[tuple[Note, ...]]] = {}
    ready: dict[int, int] = {}
    for step, number in enumerate(turns):
        start = 0 if step < FIRST else int(step * READ * total / len(turns))
        ready[number] = 0 if step < FIRST else start + max(1, int(LATER * total))
        reading.setdefault(start, []).append(facts[number].earlier)
        reading.setdefault(ready[number], []).append(facts[number].latest)
    asking = np.random.default_rng([96, check_split(split, order), len(order), seed])
    notes = [note for fact in facts for note in (*fact.earlier, *fact.latest)]

    def task(key: str, scenes: list[Scene], update: Update) -> StreamTask:
        notes_of_fact = (*update.earlier, *update.latest)
        others = [notes[index] for index in asking.permutation(len(notes)) if notes[index] not in notes_of_fact]
        offered = [*notes_of_fact, *others[: max(0, OFFERED - len(notes_of_fact))]]
        offered = [offered[index] for index in asking.permutation(len(offered))]
        scene = Scene(
            GOAL,
            update.question,
            tuple(note.label for note in offered),
            right=frozenset(note.label for note in notes_of_fact if note.right),
            leaning=leanings(len(offered), asking),
        )
        return stream_task(key, partial(Course, *scenes, scene), update.id, 0.5, GOAL)

    tasks = []
    for number in range(total):
        scenes = [only_way(GOAL, note.text, ON, (note.label,)) for part in reading.get(number, ()) for note in part]
        pool = [index for index in stream_numbers if ready[index] <= number]
        chosen = facts[pool[int(asking.integers(len(pool)))]]
        tasks.append(task(f"updates/{split}/{seed}/{number}", scenes, chosen))
    held_out = [
        task(f"updates/{split}/{seed}/held-out/{facts[index].id}", [], facts[index]) for index in sorted(held_numbers)
    ]
    return Stream(
        "updates",
        split,
        seed,
        order,
        tuple(tasks),
        tuple(held_out),
        horizons=(2,),
        context=0,
        widest=OFFERED,
        lasting=True,
    )


@lru_cache(maxsize=2)
def _read_updates(sides: tuple[str, ...]) -> tuple[Update, ...]:
    facts = []
    for question in questions():
        if question.type != "knowledge-update" or question.abstention or question.split not in sides:
            continue
        dated = [
            (session.date, turn.text)
            for session in question.sessions
            for turn in session.turns
            if turn.evidence and turn.speaker == "user"
        ]
        last = max((date for date, _ in dated), default="")
        noted = [(date, _note(question.text, question.answers, date, text)) for date, text in dated]
        rights = [note.right for _, note in noted]
        if any(rights) and not all(rights):
            earlier = tuple(note for date, note in noted if date != last)
            facts.append(
                Update(question.id, question.text, earlier, tuple(note for date, note in noted if date == last))
            )
    return tuple(facts)


def _note(question: str, answers: tuple[str, ...], date: str, text: str) -> Note:
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    wanted = set(tokens(question))
    nearest = max(sentences, key=lambda sentence: len(wanted & set(tokens(sentence))))
    return Note(text, f"go by what was said on {date[:10]}: {nearest}", any(covers(gold, [text]) for gold in answers))


METHOD = Method(
    kind="world",
    name="updates",
    title="Updates",
    paper="arXiv 2410.10813",
    about="A person corrects facts later, and the question wants the later one (LongMemEval)",
    tags=("factual",),
    differs=("Only extractive questions are asked, and a rule answers from one of the notes that it is offered."),
    make=World(updates, "seen-before", length=None),
)
