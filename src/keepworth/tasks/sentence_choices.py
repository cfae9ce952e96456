"""Next sentence and order: which of several of a user's own sentences came next, and which of two was said first.

Like cloze tasks they need no labels. Every sentence to choose from is in the memory, so that being there decides nothing: where
it stands there does. The next sentence is no nearer in words to the one before it than the others are, as far as the
conversations allow: `in_common` says what is left of that.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, combinations, groupby, islice, pairwise

from keepworth.episodes.episode import Session, Task
from keepworth.memory.sentences import sentences
from keepworth.tasks.cloze import marked
from keepworth.tasks.competing import topic_words
from keepworth.tasks.entries import windows_of
from keepworth.tasks.metrics import tokens
from keepworth.tasks.splits import draw_order

CHOICES = 4
"""Sentences to choose the next one from."""
WINDOW = 60
"""Words of what is remembered as one: both sentences stand in one such window."""
POOL = 32
"""Sentences of a session among which wrong choices are looked for."""
_QUOTES = frozenset('"“”')


@dataclass(frozen=True, slots=True)
class UserStatement:
    """A sentence of a user, by turn number `turn` of `session`; place: among the sentences of the turn; words: normalised;
    date: of its turn."""

    session: Session
    turn: int
    place: int
    text: str
    words: str
    date: str


def is_statement(sentence: str) -> bool:
    """6 to 40 words, from a capital to a full stop, without quotations."""
    return (
        6 <= len(sentence.split()) <= 40
        and sentence.endswith((".", "!"))
        and sentence[0].isupper()
        and not _QUOTES & set(sentence)
    )


@lru_cache(maxsize=65_536)
def statements(session: Session) -> tuple[UserStatement, ...]:
    return tuple(
        UserStatement(session, turn.index, place, sentence, " ".join(tokens(sentence)), session.date_of(turn))
        for turn in session.turns
        if turn.speaker == "user"
        for place, sentence in enumerate(sentences(turn.text))
        if is_statement(sentence)
    )


def next_sentence(
    sessions: Sequence[Session],
    seed: int = 0,
    limit: int | None = None,
    *,
    distractors: int = 4,
    source: str = "next",
    split: str = "train",
    without: Callable[[str], bool] = lambda sentence: False,
) -> list[Task]:
    """At most `limit` tasks: which of four sentences a user said right after another one. No sentence is in two of them, but as a
    wrong choice.

    The haystack is the sentence's session and `distractors` others of those given; the wrong choices are from there. without:
    sentences that are not to be asked about. tags: type ("next"), split."""
    said = {session.id: statements(session) for session in sessions}
    pools = {
        id: sorted(
            {each.words: each.text for each in listed if not without(each.text)}.items(),
            key=lambda each: draw_order(seed, "wrong", *each),
        )
        for id, listed in said.items()
    }
    often = Counter(each.words for listed in said.values() for each in listed)
    pairs = [
        pair for listed in said.values() for pair in _pairs(listed) if all(often[each.words] == 1 for each in pair)
    ]
    pairs.sort(key=lambda pair: draw_order(seed, "next", pair[0].session.id, pair[0].turn, pair[0].place))
    taken: set[str] = set()
    found: list[Task] = []
    for first, second in pairs:
        if limit is not None and len(found) >= limit:
            break
        if {first.words, second.words} & taken or without(first.text) or without(second.text):
            continue
        name = _hash("next", first.session.id, first.turn, first.text, second.text)
        haystack = _haystack([(first.session, {first.turn})], sessions, distractors, seed, name)
        pool = {
            words: text
            for session in haystack
            for words, text in _some(pools[session.id], seed, name, session.id)
            if words not in (first.words, second.words)
        }
        wrong = _balanced(first.text, second.text, list(pool.values()), seed, name)
        if len(wrong) < CHOICES - 1:
            continue
        taken |= {first.words, second.words}
        choices = sorted([second.text, *wrong], key=lambda text: draw_order(seed, name, "choice", text))
        asked = f'I said: "{first.text}" Which of these did I say right after it? Answer with its number.'
        found.append(
            _task(name, source, split, "next", asked, choices, second.text, haystack, (first.session.id,), first.text)
        )
    return found


def said_first(
    sessions: Sequence[Session],
    seed: int = 0,
    limit: int | None = None,
    *,
    distractors: int = 4,
    source: str = "order",
    split: str = "train",
    without: Callable[[str], bool] = lambda sentence: False,
) -> list[Task]:
    """At most `limit` tasks: which of two sentences a user said first. Both are of one session, of different turns, or of two
    sessions and said at different times. No sentence is in two tasks. tags: type ("order"), split."""
    said = [each for session in sessions for each in statements(session)]
    often = Counter(each.words for each in said)
    left = [each for each in said if often[each.words] == 1 and not without(each.text)]
    left.sort(key=lambda each: draw_order(seed, "order", each.session.id, each.turn, each.place))
    dated = {each.words: each for each in left if each.date}
    partners: dict[str, dict[str, UserStatement]] = {}
    for each in left:
        partners.setdefault(each.session.id, {})[each.words] = each
    found: list[Task] = []
    taken: set[str] = set()
    without_partner: set[tuple[str, int, str]] = set()  # what is left only shrinks
    for one in left:
        if limit is not None and len(found) >= limit:
            break
        place = (one.session.id, one.turn, one.date)
        if one.words in taken or place in without_partner:
            continue
        # Pairs of one session and of two take turns, as far as there are both.
        pools = [partners[one.session.id], dated if one.date else {}]
        listed = (each for pool in (pools if len(found) % 2 else pools[::-1]) for each in pool.values())
        other = next((each for each in listed if _ordered(one, each) is not None), None)
        if other is None:
            without_partner.add(place)
            continue
        ordered = _ordered(one, other)
        assert ordered is not None
        for each in ordered:
            taken.add(each.words)
            dated.pop(each.words, None)
            del partners[each.session.id][each.words]
        name = _hash("order", *(part for each in ordered for part in (each.session.id, each.turn, each.text)))
        own = [(each.session, {each.turn}) for each in ordered]
        if one.session.id == other.session.id:
            own = [(one.session, {one.turn, other.turn})]
        haystack = _haystack(own, sessions, distractors, seed, name)
        choices = sorted((each.text for each in ordered), key=lambda text: draw_order(seed, name, "choice", text))
        evidence = tuple(dict.fromkeys(each.session.id for each in ordered))
        asked = "Which of these did I say first? Answer with its number."
        found.append(_task(name, source, split, "order", asked, choices, ordered[0].text, haystack, evidence, ""))
    return found


def chosen(task: Task) -> str:
    """The sentence that is right, of a task of this file."""
    return str(task.row["choices"][int(task.answers[0]) - 1])


def in_common(task: Task) -> list[float]:
    """Of each choice, the share of words of a topic that it has in common with the sentence before."""
    own = topic_words(str(task.row["before"]))
    return [_overlap(own, each) for each in task.row["choices"]]


def _pairs(listed: Sequence[UserStatement]) -> Iterator[tuple[UserStatement, UserStatement]]:
    """Sentences that follow each other in one turn and are remembered together."""
    texts = {turn.index: turn.text for turn in listed[0].session.turns} if listed else {}
    for turn, together in groupby(listed, key=lambda each: each.turn):
        # Numbers of words at which sentences and windows end: neither loses a word.
        sentence_ends = [0, *accumulate(len(each.split()) for each in sentences(texts[turn]))]
        window_ends = list(accumulate(len(each.split()) for each in windows_of(texts[turn], WINDOW)))
        for one, other in pairwise(together):
            begin, end = sentence_ends[one.place], sentence_ends[other.place + 1]
            if other.place == one.place + 1 and bisect(window_ends, begin) == bisect(window_ends, end - 1):
                yield one, other


def _some(pool: Sequence[tuple[str, str]], seed: int, name: str, session: str) -> Iterator[tuple[str, str]]:
    """POOL of them, in turn from a place that is drawn."""
    start = int(draw_order(seed, name, session)[:8], 16) % max(1, len(pool))
    return islice(chain(pool[start : start + POOL], pool[:start]), POOL)


def _balanced(before: str, right: str, pool: Sequence[str], seed: int, name: str) -> list[str]:
    """Three wrong choices. How many of them are nearer in words to the sentence before than the right one is drawn, 0 to 3, each
    equally often, and so is how many are longer: so neither decides anything. As near to that as the pool allows."""
    own, length = topic_words(before), len(right.split())
    bound = _overlap(own, right)
    cells: dict[tuple[bool, bool], list[str]] = {}
    for text in sorted(pool, key=lambda text: draw_order(seed, name, "wrong", text)):
        cells.setdefault((_overlap(own, text) > bound, len(text.split()) > length), []).append(text)
    listed = [(text, *cell) for cell, texts in sorted(cells.items()) for text in texts[: CHOICES - 1]]
    nearer, longer = (int(draw_order(seed, name, what)[:8], 16) % CHOICES for what in ("nearer", "longer"))

    def off(three: tuple[tuple[str, bool, bool], ...]) -> tuple[int, str]:
        missed = abs(sum(each[1] for each in three) - nearer) + abs(sum(each[2] for each in three) - longer)
        return missed, draw_order(seed, name, *(each[0] for each in three))

    best = min(combinations(listed, CHOICES - 1), key=off, default=())
    return [text for text, *_ in best]


def _overlap(own: frozenset[str], text: str) -> float:
    words = topic_words(text)
    return len(own & words) / max(1, len(own | words))


def _ordered(one: UserStatement, other: UserStatement) -> tuple[UserStatement, UserStatement] | None:
    """The earlier one first; None where that is not known, where they follow each other in one turn, or where the times of two
    turns contradict their order."""
    if one.session.id == other.session.id:
        first, second = sorted((one, other), key=lambda each: each.turn)
        return None if first.turn == second.turn or (second.date and first.date > second.date) else (first, second)
    if not one.date or not other.date or one.date == other.date:
        return None
    return (one, other) if one.date < other.date else (other, one)


def _haystack(
    own: Sequence[tuple[Session, set[int]]], sessions: Sequence[Session], distractors: int, seed: int, name: str
) -> tuple[Session, ...]:
    held = {session.id: marked(session, turns) for session, turns in own}
    others = [each for each in sessions if each.id not in held]
    others.sort(key=lambda session: draw_order(seed, name, session.id))
    return tuple(sorted((*held.values(), *others[:distractors]), key=lambda each: (each.date, each.id)))


def _task(
    name: str,
    source: str,
    split: str,
    kind: str,
    asked: str,
    choices: Sequence[str],
    right: str,
    haystack: tuple[Session, ...],
    evidence: tuple[str, ...],
    before: str,
) -> Task:
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(choices, start=1))
    return Task(
        key=f"{kind}/{name}",
        source=source,
        input=f"{asked}\n{listed}",
        answers=(str(choices.index(right) + 1),),
        verifier="numeric",
        asked_at=max(session.date for session in haystack),
        sessions=haystack,
        evidence=evidence,
        tags={"type": kind, "split": split, "abstention": "false"},
        row={"choices": list(choices), "before": before},
    )


def _hash(*parts: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]
