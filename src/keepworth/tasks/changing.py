"""The changing world: facts about people that are repeated, changed, corrected and withdrawn, one by one, and a question about
what is true after the last one.

A stream is made of threads. A thread is one thing about one person, where Ann lives, and what is said of it in time; the threads
of a stream are dealt evenly among its places, each in its own order, because "the later one counts" is part of what they say.
Every thread is as likely as any other to be asked for, so neither place nor date says which one it will be. The threads of a
stream share people and things: the same thing of another person, another thing of the same person.

A withdrawal leaves nothing known. The right answer is then `unknown`, or one of the other wordings in `UNKNOWN`, scored by
the same token F1.

No person and no wording of one split occurs in another, neither of statements nor of questions. Values are as in
`keepworth.tasks.people`: those of training occur everywhere, some in one held-out split only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import Enum
from types import MappingProxyType

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import KeepworthError
from keepworth.tasks.fact_streams import FactStream
from keepworth.tasks.facts import Fact
from keepworth.tasks.people import ATTRIBUTES, checked_split, names_of
from keepworth.tasks.splits import SPLITS, side

SOURCE = "changing"
VERSION = 1
UNKNOWN = ("unknown", "not known", "nobody knows")
"""Answers that count where nothing is known any more."""
SILENT = 0.25
"""Share of the changes that are told in the words of a plain statement."""
FIRST_DAY = date(2024, 1, 1)


class Saying(str, Enum):
    """What a statement does to what is known of its thread. STATE: it says it first, or anew after a withdrawal; REPEAT: it says
    in other words what is known; CHANGE: it was so, and is otherwise now; CORRECT: it never was so; WITHDRAW: nothing is now."""

    STATE = "state"
    REPEAT = "repeat"
    CHANGE = "change"
    CORRECT = "correct"
    WITHDRAW = "withdraw"


S, R, C, X, W = Saying
_LETTERS = {S: "s", R: "r", C: "c", X: "x", W: "w"}
# Drawn evenly, as far as they fit. One in seven never changes; three in fourteen end with nothing known.
PLOTS: tuple[tuple[Saying, ...], ...] = (
    (S,), (S, R), (S, C), (S, X), (S, C), (S, R, C), (S, C, R), (S, C, C), (S, X, C), (S, C, X),
    (S, W), (S, C, W), (S, R, W), (S, W, S),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Topic:
    """One thing a person has at most one of. Wordings by split: `{n}` is the person, `{v}` the value.

    about: a clause that names the thing; states, changes: as in `keepworth.tasks.people.Attribute`."""

    key: str
    about: Mapping[str, str]
    states: Mapping[str, tuple[str, ...]]
    changes: Mapping[str, tuple[str, ...]]
    asks: Mapping[str, str]
    values: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_VALUES: dict[str, tuple[str, ...]] = {
    "phone": tuple(str(number) for number in random.Random("phone").sample(range(20000, 99999), 60)),
    "pet name": _words(
        "Rex Luna Milo Biscuit Shadow Ginger Rocky Coco Ziggy Pepper Smokey Daisy Buster Cookie Misty Waffles "
        "Bandit Nacho Tiger Pumpkin Sparky Mochi Noodle Patch"
    ),
    "dentist day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
}


def _split(train: str, dev: str, test: str) -> Mapping[str, tuple[str, ...]]:
    """Wordings of each split, separated by `|`."""
    return MappingProxyType(
        {split: tuple(each.split(" | ")) for split, each in zip(SPLITS, (train, dev, test), strict=True)}
    )


def _topic(key: str, about: str, asks: str, states: tuple[str, str, str], changes: tuple[str, str, str]) -> Topic:
    """about, asks: one wording for each split."""
    named, asked = (
        MappingProxyType(dict(zip(SPLITS, each.split(" | "), strict=True))) for each in (about, asks)
    )  # fmt: skip
    known = {attribute.key: attribute.values for attribute in ATTRIBUTES} | _VALUES
    return Topic(key, named, _split(*states), _split(*changes), asked, known[key])


TOPICS = (
    _topic(
        "city",
        "where {n} lives | {n}'s place of residence | the town {n} is based in",
        "Which city does {n} live in? | In which city is {n} at home? | What town is {n} living in?",
        (
            "{n} lives in {v}. | {n}'s home is in {v}. | {n} has a flat in {v}.",
            "{n} resides in {v}. | {n} rents a house in {v}.",
            "{n} is based in {v}. | {n} makes a home in {v}. | {n} is a resident of {v}.",
        ),
        (
            "{n} has moved to {v}. | {n} now lives in {v}. | {n} left for {v} and stayed there.",
            "{n} settled in {v} last month. | {n} is a {v} resident these days.",
            "{n} has relocated to {v}. | {n} packed up and went to live in {v}.",
        ),
    ),
    _topic(
        "job",
        "{n}'s job | what {n} does for a living | the work {n} does",
        "What is {n}'s job? | What does {n} do for a living? | As what does {n} earn money?",
        (
            "{n} works as a {v}. | {n} is a {v}. | {n} earns a living as a {v}.",
            "{n} is employed as a {v}. | {n}'s profession is {v}.",
            "{n} makes money as a {v}. | {n} is a {v} by trade. | {n} has a post as a {v}.",
        ),
        (
            "{n} became a {v}. | {n} now works as a {v}. | {n} quit to be a {v}.",
            "{n} retrained as a {v}. | {n}'s new profession is {v}.",
            "{n} took a new post as a {v}. | {n} has turned {v} for a living.",
        ),
    ),
    _topic(
        "phone",
        "{n}'s phone number | how to call {n} | the number {n} can be reached at",
        "What is {n}'s phone number? | Which number do I dial for {n}? | At what number can {n} be reached?",
        (
            "{n}'s phone number is {v}. | You can call {n} on {v}. | {n} has the number {v}.",
            "Dial {v} for {n}. | {n} answers the phone at {v}.",
            "{n} can be reached at {v}. | To ring {n}, use {v}. | {n} picks up at {v}.",
        ),
        (
            "{n}'s new phone number is {v}. | {n} changed numbers and now has {v}. | Call {n} on {v} from now on.",
            "From today dial {v} for {n}. | {n} switched phones and answers at {v}.",
            "{n} got another line and can be reached at {v}. | To ring {n}, use {v} in future.",
        ),
    ),
    _topic(
        "pet name",
        "the name of {n}'s pet | what {n}'s animal is called | {n}'s pet and its name",
        "What is the name of {n}'s pet? | What is {n}'s animal called? | By what name does {n}'s pet go?",
        (
            "{n}'s pet is called {v}. | {n} has a pet named {v}. | The name of {n}'s pet is {v}.",
            "{n} looks after an animal called {v}. | {v} is what {n} calls the pet.",
            "{n}'s pet goes by {v}. | {n} keeps a pet by the name of {v}. | The pet at {n}'s home is {v}.",
        ),
        (
            "{n}'s pet is now called {v}. | {n} renamed the pet {v}. | {n} has a new pet named {v}.",
            "{n} replaced the animal with one called {v}. | {v} is what {n} calls the pet these days.",
            "{n}'s pet goes by {v} now. | {n} gave the pet another name, {v}.",
        ),
    ),
    _topic(
        "dentist day",
        "{n}'s dentist appointment | when {n} sees the dentist | the day of {n}'s dental visit",
        "On which day is {n}'s dentist appointment? | When does {n} see the dentist? | What day is {n}'s dental visit?",
        (
            "{n}'s dentist appointment is on {v}. | {n} has a dentist appointment on {v}. | {n} goes to the dentist on {v}.",
            "{n} sees the dentist on {v}. | The dentist expects {n} on {v}.",
            "{n}'s dental visit is on {v}. | {n} is booked at the dentist's for {v}. | {v} is the day of {n}'s dental visit.",
        ),
        (
            "{n}'s dentist appointment was moved to {v}. | {n} now goes to the dentist on {v}. | The dentist put {n} off to {v}.",
            "{n} sees the dentist on {v} instead. | The dentist now expects {n} on {v}.",
            "{n}'s dental visit was shifted to {v}. | {n} is rebooked at the dentist's for {v}.",
        ),
    ),
    _topic(
        "drink",
        "{n}'s favourite drink | what {n} likes to drink | the beverage {n} prefers",
        "What is {n}'s favourite drink? | What does {n} like to drink? | Which beverage does {n} prefer?",
        (
            "{n}'s favourite drink is {v}. | {n} likes {v} best. | {n} always orders {v}.",
            "{n} drinks {v} every day. | {n} asks for {v} at any time.",
            "{n} prefers {v}. | {n}'s usual is {v}. | {n} will have {v}, as ever.",
        ),
        (
            "{n} switched to drinking {v}. | {n}'s favourite drink is now {v}. | {n} likes {v} best these days.",
            "{n} started to drink {v} in its place. | {n} only asks for {v} lately.",
            "{n} has come to prefer {v}. | {n} goes for {v} nowadays.",
        ),
    ),
    _topic(
        "language",
        "the language {n} is learning | what {n} studies | {n}'s language course",
        "Which language is {n} learning? | What language does {n} study? | What is {n}'s language course in?",
        (
            "{n} is learning {v}. | {n} studies {v}. | {n} takes {v} lessons.",
            "{n} goes to a {v} class. | {n} practises {v} at night.",
            "{n} attends a course in {v}. | {n} is a student of {v}. | {n} is being taught {v}.",
        ),
        (
            "{n} switched to learning {v}. | {n} is now learning {v}. | {n} takes {v} lessons instead.",
            "{n} changed to a {v} class. | {n} practises {v} at night these days.",
            "{n} transferred to a course in {v}. | {n} has taken up {v} in its stead.",
        ),
    ),
    _topic(
        "car",
        "{n}'s car | what {n} drives | the vehicle {n} has",
        "Which car does {n} drive? | What does {n} drive? | What make is {n}'s vehicle?",
        (
            "{n} drives a {v}. | {n}'s car is a {v}. | {n} owns a {v}.",
            "{n} gets around in a {v}. | {n} has a {v} in the garage.",
            "{n}'s vehicle is a {v}. | {n} goes to work by {v}. | {n} is the owner of a {v}.",
        ),
        (
            "{n} now drives a {v}. | {n} changed the car for a {v}. | {n} bought a {v} instead.",
            "{n} swapped cars and gets around in a {v}. | {n} has a {v} in the garage these days.",
            "{n} traded the old vehicle for a {v}. | {n} goes to work by {v} nowadays.",
        ),
    ),
)  # fmt: skip

CORRECTIONS = _split(
    "Correction: {s} | I made a mistake before: {s} | {p}, not {o}.",
    "Sorry, I mixed that up: {s} | That was wrong, it is like this: {s}",
    "Let me put that right: {s} | I misspoke earlier: {s} | {p} rather than {o}.",
)
"""`{s}` is a plain statement, `{p}` the same without its full stop, `{o}` the value that is wrong."""
WITHDRAWALS = _split(
    "Forget what I said about {a}. | Please ignore what I told you about {a}. | It is no longer known: {a}.",
    "Scratch what you have on {a}. | What I said was a mix-up, there is no news of {a}.",
    "Drop whatever I told you about {a}. | Never mind my words on {a}. | Nothing is certain any more about {a}.",
)
"""`{a}` is the thing that is withdrawn."""


def topic_values(topic: Topic, split: str) -> tuple[str, ...]:
    """The values of a topic in a split."""
    allowed = {"train", checked_split(split)}
    return tuple(value for value in topic.values if side(f"{topic.key}/{value}") in allowed)


@dataclass(frozen=True, slots=True)
class Telling:
    """What a statement says, in structure. thread: its number in the stream; value: "" for a withdrawal."""

    thread: int
    person: str
    topic: str
    saying: Saying
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class ChangingStream:
    """stream: what a writer meets; its evidence is the one statement that made true what is asked for, or the withdrawal that
    left nothing known. tellings: what each of its facts says (hidden). asked: the thread that is asked for (hidden)."""

    stream: FactStream
    tellings: tuple[Telling, ...]
    asked: int

    @property
    def true_now(self) -> dict[int, str]:
        """The value of each thread after the last fact, of those of which something is known."""
        now: dict[int, str] = {}
        for telling in self.tellings:
            now[telling.thread] = telling.value
        return {thread: value for thread, value in now.items() if value}

    def state_of(self, thread: int, numbers: Sequence[int]) -> tuple[bool, int]:
        """Of a bank with the facts of these numbers: whether one says what is true of the thread now, and how many say what is
        not. A withdrawal says neither."""
        now = self.true_now.get(thread, "")
        values = [self.tellings[number].value for number in numbers if self.tellings[number].thread == thread]
        return bool(now) and now in values, sum(value not in ("", now) for value in values)

    def oracle_line(self, number: int, present: Sequence[int]) -> str:
        """What a writer says of fact `number` that knows what each fact is about, where facts `present` are in the bank: so that
        the bank holds each thing that is known once, and as it is now."""
        telling = self.tellings[number]
        places = [place for place, other in enumerate(present) if self.tellings[other].thread == telling.thread]
        if telling.saying is Saying.WITHDRAW:
            return f"DELETE {places[0]}" if places else "NOOP"
        if not places:
            return "ADD"
        return "NOOP" if self.tellings[present[places[0]]].value == telling.value else f"UPDATE {places[0]}"

    def task_about(self, thread: int) -> Task:
        """The question about another of its threads, with the right answer to it. Raises KeepworthError where there is no such
        thread."""
        about = next((each for each in self.tellings if each.thread == thread), None)
        if about is None:
            raise KeepworthError(f"the stream {self.stream.key} has no thread {thread}.", "Take one of its tellings.")
        topic = next(each for each in TOPICS if each.key == about.topic)
        value, split = self.true_now.get(thread, ""), self.stream.task.tags["split"]
        plot = "".join(_LETTERS[each.saying] for each in self.tellings if each.thread == thread)
        return Task(
            key=f"{self.stream.task.key.rpartition('/')[0]}/{thread}",
            source=SOURCE,
            input=topic.asks[split].format(n=about.person),
            answers=(value,) if value else UNKNOWN,
            verifier="token_f1",
            tags={"type": topic.key, "split": split, "plot": plot, "known": str(bool(value)).lower()},
        )

    def about(self, thread: int) -> ChangingStream:
        """The same facts with the question about another thread."""
        task, decisive = self.task_about(thread), _decisive(self.tellings, thread)
        evidence = tuple(number == decisive for number in range(len(self.tellings)))
        return replace(self, asked=thread, stream=replace(self.stream, task=task, evidence=evidence))


def changing_streams(split: str, count: int, length: int = 24, *, seed: int = 0) -> list[ChangingStream]:
    """`count` streams of `length` facts, each with one question; the first n of a larger count are the same n.

    A stream is its own cluster. Dates rise by a day from fact to fact. Errors: UnknownName for a split; KeepworthError for a
    length below 4, where there is nothing to tell apart, and for one past what people and topics give."""
    checked_split(split)
    most = len(TOPICS) * len(names_of(split))
    if not 4 <= length <= most:
        raise KeepworthError(f"a stream of {length} facts: there are 4 to {most}.", "Take another length.")
    return [_changing(split, index, length, seed) for index in range(count)]


def _changing(split: str, index: int, length: int, seed: int) -> ChangingStream:
    draw = random.Random(f"{SOURCE}/{VERSION}/{split}/{seed}/{length}/{index}")
    plots: list[tuple[Saying, ...]] = []
    while (left := length - sum(map(len, plots))) > 0:
        plots.append(draw.choice([plot for plot in PLOTS if len(plot) <= left]))
    # About half of all pairs of these people and topics are told of, so that threads share both.
    people = draw.sample(names_of(split), min(len(names_of(split)), _side(len(plots))))
    topics = draw.sample(TOPICS, min(len(TOPICS), _side(len(plots))))
    pairs = draw.sample([(person, topic) for person in people for topic in topics], len(plots))
    threads = [
        _thread(number, person, topic, plot, split, draw)
        for number, ((person, topic), plot) in enumerate(zip(pairs, plots, strict=True))
    ]
    places = [number for number, plot in enumerate(plots) for _ in plot]
    draw.shuffle(places)
    coming = [iter(thread) for thread in threads]
    tellings = tuple(next(coming[thread]) for thread in places)
    key = f"{SOURCE}/{split}/{seed}/{length}/{index}"
    facts = tuple(
        Fact(telling.text, key, (FIRST_DAY + timedelta(days=day)).isoformat(), day, 0)
        for day, telling in enumerate(tellings)
    )
    blank = Task(f"{key}/0", SOURCE, "", (), "token_f1", tags={"split": split})
    stream = FactStream(blank, facts, (False,) * length, key, index)
    return ChangingStream(stream, tellings, 0).about(draw.randrange(len(threads)))


def _side(threads: int) -> int:
    """People, and topics, of a stream of so many threads."""
    side_of = 2
    while side_of * min(side_of, len(TOPICS)) < 2 * threads:
        side_of += 1
    return side_of


def _decisive(tellings: Sequence[Telling], thread: int) -> int:
    """The number of the statement since which the last value, or nothing, is known of a thread."""
    own = [(number, telling.value) for number, telling in enumerate(tellings) if telling.thread == thread]
    since = own[-1]
    for each in reversed(own):
        if each[1] != since[1]:
            break
        since = each
    return since[0]


def _thread(
    number: int, person: str, topic: Topic, plot: Sequence[Saying], split: str, draw: random.Random
) -> list[Telling]:
    tellings: list[Telling] = []
    now, last = "", ""  # last: the wording of the statement before, which a repetition does not use again

    def worded(wordings: Sequence[str], value: str) -> str:
        nonlocal last
        last = draw.choice([each for each in wordings if each != last])
        return last.format(n=person, v=value)

    for saying in plot:
        value = now if saying is Saying.REPEAT else ""
        if saying in (Saying.STATE, Saying.CHANGE, Saying.CORRECT):
            value = draw.choice([each for each in topic_values(topic, split) if each != now])
        if saying is Saying.WITHDRAW:
            text = draw.choice(WITHDRAWALS[split]).format(a=topic.about[split].format(n=person))
        elif saying is Saying.CORRECT:
            plain = worded(topic.states[split], value)
            text = draw.choice(CORRECTIONS[split]).format(s=plain, p=plain.removesuffix("."), o=now)
        elif saying is Saying.CHANGE and draw.random() >= SILENT:
            text = worded(topic.changes[split], value)
        else:
            text = worded(topic.states[split], value)
        tellings.append(Telling(number, person, topic.key, saying, value, text))
        now = value
    return tellings
