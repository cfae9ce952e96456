"""Generates short texts about people in sections, with a question about one of them: endless reading tasks of adjustable
difficulty.

Every text holds the asked fact among similar facts: the same person with other attributes, other people with the same attribute.
In some the fact changes later, and the new value counts; so a memory has to be chosen by the question, kept through irrelevant
sections, and replaced by newer facts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from keepworth.records.episode import Observation, RewardTerm, Session, StopReason, Task, Turn
from keepworth.worlds.data_sets.people import ATTRIBUTES, Attribute, check_split, names_of, values_of
from keepworth.worlds.environment import Step
from keepworth.worlds.verifiers import verifier

SOURCE = "people"
VERSION = 1
CHANGED = 0.3
"""Share of the texts in which the fact changes."""
QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "city": "Which city does {n} live in?",
        "job": "What is {n}'s job?",
        "pet": "What pet does {n} have?",
        "drink": "What does {n} like to drink?",
        "language": "Which language is {n} learning?",
        "instrument": "Which instrument does {n} play?",
        "car": "Which car does {n} drive?",
        "sport": "Which sport does {n} do?",
        "class day": "On which day is {n}'s cooking class?",
    }
)
"""Questions by the key of the attribute."""


def people_reading(split: str, count: int, seed: int = 0, *, sections: int = 3, sentences: int = 2) -> list[Task]:
    """Returns `count` tasks: each session of a task is a section, each of its turns a sentence. The first n of a larger count are
    the same n.

    No name of one split occurs in another. answers: one value, a word. tags: type (the attribute), split, changed. Raises
    UnknownName for a split.
    """
    check_split(split)
    return [_task(split, index, seed, sections, sentences) for index in range(count)]


def text_of(task: Task) -> tuple[str, ...]:
    """Returns the texts of the sections."""
    return tuple(" ".join(turn.text for turn in session.turns) for session in task.sessions)


def evidence_of(task: Task) -> tuple[str, ...]:
    """Returns the best possible memory: the sentence that holds the answer."""
    return (_asked_for(task)[-1],)


def memories_of(task: Task, nothing: str) -> tuple[str, ...]:
    """Returns the right memory after each section: the newest sentence about the asked fact; `nothing` before there is one."""
    asked_for = set(_asked_for(task))
    memories = [nothing]
    for session in task.sessions:
        memories.append(next((turn.text for turn in session.turns if turn.text in asked_for), memories[-1]))
    return tuple(memories[1:])


def right_operations(task: Task) -> list[str]:
    """Returns each fact's right operation with the text of its memory: UPDATE for a change, ADD for all others."""
    right: list[str] = []
    before = ""
    for turn in (turn for session in task.sessions for turn in session.turns):
        right.append(f"UPDATE {before}" if turn.evidence and before else "ADD")
        before = turn.text if turn.evidence else before
    return right


def _asked_for(task: Task) -> tuple[str, ...]:
    """Returns the sentences about the asked fact, in the order of the text: one, or two where it changed."""
    return tuple(turn.text for session in task.sessions for turn in session.turns if turn.evidence)


def _task(split: str, index: int, seed: int, sections: int, sentences: int) -> Task:
    draw = random.Random(f"people_reading/{VERSION}/{split}/{seed}/{sections}/{sentences}/{index}")
    person, attribute = draw.choice(names_of(split)), draw.choice(ATTRIBUTES)
    before, after = draw.sample(values_of(attribute, split), 2)
    changed = draw.random() < CHANGED
    text = draw.choice(attribute.states).format(n=person, v=before)
    places = sorted(draw.sample(range(sections), 2)) if changed else [draw.randrange(sections)]
    texts = [text, draw.choice(attribute.changes).format(n=person, v=after)] if changed else [text]
    lines: list[list[tuple[str, bool]]] = [[] for _ in range(sections)]
    for number, sentence in enumerate(places):
        lines[sentence].append((texts[number], True))
    pairs = {(person, attribute.key)}
    for section in lines:
        while len(section) < sentences:
            section.append((_other(person, attribute, pairs, split, draw), False))
        draw.shuffle(section)
    key = f"{SOURCE}/{split}/{seed}/{sections}x{sentences}/{index}"
    return Task(
        key=key,
        source=SOURCE,
        input=QUESTIONS[attribute.key].format(n=person),
        answers=(after if changed else before,),
        verifier="token_f1",
        sessions=tuple(
            Session(
                id=f"{key}/{number}",
                date="",
                turns=tuple(
                    Turn(speaker="text", text=text, index=index, evidence=evidence)
                    for index, (text, evidence) in enumerate(section)
                ),
            )
            for number, section in enumerate(lines)
        ),
        evidence=tuple(f"{key}/{index}" for index in places),
        tags={"type": attribute.key, "split": split, "changed": str(changed).lower()},
    )


def _other(person: str, attribute: Attribute, pairs: set[tuple[str, str]], split: str, draw: random.Random) -> str:
    """Returns a new sentence that shares the person or the attribute with the asked fact, or neither."""
    while True:
        like = draw.random()
        who = person if like < 0.4 else draw.choice(names_of(split))
        what = attribute if 0.4 <= like < 0.8 else draw.choice(ATTRIBUTES)
        if (who, what.key) not in pairs:
            pairs.add((who, what.key))
            return draw.choice(what.states).format(n=who, v=draw.choice(values_of(what, split)))


Sections = Callable[[Task], Sequence[str]]
"""Returns the text of a task, in sections."""

LOGGED = ("token_f1", "exact_match")


class Document:
    """An environment that shows `sections` of the task one after the other, whatever the agent does; then the question, which is
    known from the start (the task of MemAgent, arXiv 2507.02259). reward: the verifier that counts; those of `LOGGED` are logged
    too."""

    def __init__(self, sections: Sections, reward: str = "token_f1") -> None:
        self._sections, self._reward = sections, reward
        self._task: Task | None = None
        self._left: list[str] = []
        self._answering = False

    async def reset(self, task: Task, seed: int) -> Observation:
        self._task, self._left = task, list(self._sections(task))
        return self._next()

    async def step(self, action: str) -> Step:
        assert self._task is not None
        if not self._answering:
            return Step(self._next())
        answer = action.strip()
        rewards = tuple(
            RewardTerm(name, verifier(name)(answer, self._task.answers), weight=float(name == self._reward))
            for name in dict.fromkeys((self._reward, *LOGGED))
        )
        return Step(rewards=rewards, stop=StopReason.COMPLETED if answer else StopReason.PARSE_ERROR, answer=answer)

    async def close(self) -> None:
        self._task, self._left = None, []

    def _next(self) -> Observation:
        assert self._task is not None
        self._answering = not self._left
        if self._answering:
            return Observation("", question=self._task.input)
        section = self._left.pop(0)
        return Observation(section, question=self._task.input, answer_due=False)
