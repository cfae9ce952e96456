"""Facts from a conversation without a language model: what the user states about themselves, one sentence each.

The rule is coarse on purpose and the same everywhere: a user's sentence in the first person that is not a question, a
request or a courtesy. What it misses is never fixed by looking at the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keepworth.episodes.episode import Session, Task, Turn
from keepworth.memory.sentences import COURTESY, FIRST_PERSON, OPENING, QUESTION_TAIL, sentences
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import draw_order

USER = "user"
FACT_WORDS = 40
"""A longer sentence is cut here, with an ellipsis."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One stated fact and where it was said. `date`: ISO 8601, as the session has it; `turn`: index in the session."""

    statement: str
    session: str
    date: str
    turn: int
    sentence: int
    speaker: str = USER

    @property
    def text(self) -> str:
        """With its date, for people to read: `2023-05-20: I moved to Oslo.`"""
        return f"{self.date[:10]}: {self.statement}"

    @property
    def place(self) -> tuple[str, int]:
        """The turn it comes from: (session id, turn index)."""
        return self.session, self.turn


def facts_of_turn(turn: Turn, session: Session) -> list[Fact]:
    """The facts one turn states, in the order of saying; none where the speaker is not the user."""
    if turn.speaker != USER:
        return []
    return [
        Fact(statement, session.id, session.date_of(turn), turn.index, number)
        for number, statement in enumerate(filter(None, map(_statement, sentences(turn.text))))
    ]


def facts_of(sessions: Iterable[Session]) -> list[Fact]:
    """The facts of some sessions in the order of time: by date, then by turn."""
    return [
        fact
        for session in sorted(sessions, key=lambda session: (session.date, session.id))
        for turn in session.turns
        for fact in facts_of_turn(turn, session)
    ]


def _statement(sentence: str) -> str:
    """The fact in a sentence, or "" where it states none."""
    text = " ".join(sentence.replace("’", "'").split())
    if text.endswith("?"):
        tails = list(QUESTION_TAIL.finditer(text))
        if not tails:
            return ""
        text = text[: tails[0].start()].rstrip(" ,;-–—") + "."
    if COURTESY.match(text) or not FIRST_PERSON.search(text):
        return ""
    text = OPENING.sub("", text)
    words = text.split()
    if len(words) < 4:
        return ""
    text = " ".join(words[:FACT_WORDS]) + (" ..." if len(words) > FACT_WORDS else "")
    return text[0].upper() + text[1:]


# Steps for a memory manager, cut out of conversations: what was known before, one new fact, and the questions it decides.
#
# After the data construction of "Memory-R1" (arXiv 2508.19828): no operation is labelled; a step is worth what a reader can
# answer afterwards. Two things differ. Facts come from `keepworth.tasks.facts` instead of a large model. And a step may
# also carry *kept* questions, whose evidence is in the memory already: with linked questions alone, a manager that
# overwrites anything at all with the new fact is rewarded exactly like one that adds it.


WINDOW = 50
"""Facts that a bank before a step holds at most, beside those the questions need (the paper says 50 turns, and 24)."""


@dataclass(frozen=True, slots=True)
class LinkedQuestion:
    """task: key; linked: whether the step's fact is its evidence (False: it must merely survive the step)."""

    task: str
    question: str
    answers: tuple[str, ...]
    linked: bool


@dataclass(frozen=True, slots=True)
class ManagerTuple:
    """One step. before: what was stated earlier, in order of time; fact: what is new; questions: what it is judged by."""

    key: str
    before: tuple[Fact, ...]
    fact: Fact
    questions: tuple[LinkedQuestion, ...]


@dataclass(frozen=True, slots=True)
class TupleCounts:
    """tasks: handed in; tuples: made of them; no_fact: tasks that gave none, because no fact that the rule found in their
    evidence turns holds a word of the answer."""

    tasks: int
    tuples: int
    no_fact: int


def manager_tuples(tasks: Sequence[Task], *, seed: int = 0) -> tuple[list[ManagerTuple], TupleCounts]:
    """The steps of `tasks`, in their order, and what was left out.

    For each task: the step of every decisive fact (`decisive_facts`) of its last turn that has one, with the task's own
    question linked; and a step whose fact is no evidence and comes later than all evidence, where the question must survive.
    Each step gets a question of *another* task of the list whose evidence the bank holds, where there is one. Draws depend on
    (seed, task key) only. Hand in the tasks of one split.

    Raises ValueError for an empty list of tasks.
    """
    if not tasks:
        raise ValueError("manager_tuples: no tasks were given")
    splits = {task.tags.get("split", "") for task in tasks}
    if len(splits) > 1:
        raise ValueError(f"manager_tuples: the tasks are of several splits ({', '.join(sorted(splits))}): hand in one")
    needed = {task.key: decisive_facts(task, facts_of(task.sessions)) for task in tasks}
    found: list[ManagerTuple] = []
    without = 0
    for task in tasks:
        steps = _steps(task, seed)
        without += not steps
        for number, (before, fact, linked) in enumerate(steps):
            own = LinkedQuestion(task.key, task.input, task.answers, linked)
            marked = _marked(task)
            # Superseded evidence stays too: telling it from the new fact is what the step is about.
            bank = _window(before, {known for known in before if known.place in marked})
            places = {(known.session, known.turn, known.sentence) for known in bank}
            others = [
                LinkedQuestion(other.key, other.input, other.answers, False)
                for other in tasks
                if other.key != task.key
                and needed[other.key]
                and {(f.session, f.turn, f.sentence) for f in needed[other.key]} <= places
            ]
            others.sort(key=lambda question: draw_order(seed, task.key, number, question.task))
            found.append(ManagerTuple(f"{task.key}#{number}", bank, fact, (own, *others[:1])))
    return found, TupleCounts(len(tasks), len(found), without)


def decisive_facts(task: Task, facts: Sequence[Fact]) -> list[Fact]:
    """Of the facts from turns marked as evidence (hidden key), those that hold enough words of a gold answer: at least
    half as many as the one that holds most, and one at least."""
    marked = _marked(task)
    wanted = {word for answer in task.answers for word in tokens(answer)}
    shared = [(fact, len(wanted & set(tokens(fact.statement)))) for fact in facts if fact.place in marked]
    most = max((count for _, count in shared), default=0)
    return [fact for fact, count in shared if count and 2 * count >= most]


def _steps(task: Task, seed: int) -> list[tuple[list[Fact], Fact, bool]]:
    facts = facts_of(task.sessions)
    evidence = decisive_facts(task, facts)
    if not evidence:
        return []
    last = max(place for place, fact in enumerate(facts) if fact in evidence)
    decisive = [place for place, fact in enumerate(facts) if fact in evidence and fact.place == facts[last].place]
    steps = [(facts[:place], facts[place], True) for place in decisive]
    later = [place for place in range(last + 1, len(facts)) if facts[place].place != facts[last].place]
    later.sort(key=lambda place: draw_order(seed, task.key, "bystander", place))
    return steps + [(facts[:place], facts[place], False) for place in later[:1]]


def _marked(task: Task) -> set[tuple[str, int]]:
    return {(session.id, turn.index) for session in task.sessions for turn in session.turns if turn.evidence}


def _window(before: Sequence[Fact], must_keep: set[Fact]) -> tuple[Fact, ...]:
    # Of fewer than WINDOW this drops some of the oldest, too: changing it changes the tasks that managers were trained on.
    recent = set(before[len(before) - WINDOW :])
    return tuple(fact for fact in before if fact in recent or fact in must_keep)
