"""Stores facts or statements, and finds which older items they replace: `_find_replaced` asks the rules on claims (`_replacing`)
and then the signs of a change (`memory.replaced_statements`). The writers `facts` and `statements`, which is the default, both
store with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from keepworth.memory.change_frames import (
    as_no_longer,
    bare_number,
    bare_value,
    corrects,
    named_value,
    returned_to,
    tells_of_a_new_state,
    with_correction,
    with_value,
)
from keepworth.memory.choose.slots import Finished
from keepworth.memory.compound_statements import says_more
from keepworth.memory.errors import InvalidAdvice
from keepworth.memory.item import Item, is_before, later, timestamp
from keepworth.memory.operations import SUPERSEDES
from keepworth.memory.relative_days import with_dates, without_dates
from keepworth.memory.replaced_statements import LONGEST, may_replace, replaced_by
from keepworth.memory.sentences import sentences
from keepworth.memory.speech import ends_in_question, statements
from keepworth.memory.told_changes import FITTED_TO
from keepworth.memory.wording import content_of, read, word_list
from keepworth.methods.writers._claims import Claim, parsed_claim, stems
from keepworth.methods.writers._replacing import asked_for, taken_over
from keepworth.methods.writers._statements import claims, corrected
from keepworth.records.episode import Operation, OperationKind, StatedFact

if TYPE_CHECKING:
    from keepworth.memory.overlay import Bank


Outdated = Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[Sequence[int]]]
"""(new facts, for each the similar existing items) -> for each the positions of the items that it replaces."""
SHORTLY = 3600.0
"""How many seconds before it something was said that a message alone may be about which does not tell what it is about."""
KNOWN = 12
"""Items per search that a new fact is compared with."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Stores the facts of messages, and updates items: a fact that contradicts an older item replaces it.

    extract: finds the facts, each a text or a `StatedFact`, such as `keepworth.methods.writers.facts.extractor(chat)`; None finds
    statements of the user and of named people by the rules of `claims`. outdated: says which items are replaced, such as
    `comparison(chat)` of the same file; None uses those rules. updates: False only adds. Items of other people are never
    replaced. Raises InvalidAdvice where `extract` gives no list of texts.
    """

    extract: Callable[[Sequence[Mapping[str, Any]]], Iterable[str | StatedFact]] | None = None
    outdated: Outdated | None = None
    updates: bool = True

    def __post_init__(self) -> None:
        for function, what in ((self.extract, "finds facts"), (self.outdated, "compares them")):
            if function is not None and not callable(function):
                raise InvalidAdvice(
                    f"Facts({function!r:.40}) has nothing that {what}.", "Give a function, or None for the rules."
                )

    @property
    def by_rules(self) -> bool:
        """Returns whether no model is called."""
        return self.extract is None and self.outdated is None

    def __call__(self, finished: Finished) -> Iterator[Operation]:
        facts = [fact for fact in self._found(finished) if fact.text.strip()]
        bank = finished.bank() if facts and finished.bank is not None and self.updates else None
        if bank is None:
            yield from (fact for fact in facts if not _is_correction_alone(fact))
            return
        if self.outdated is None:
            for fact in facts:  # one after the other: each is compared with the result of the facts before it
                like, at = _like(parsed_claim(fact.text), bank, finished.project), fact.said_at or finished.said_at
                near = [item for item, _ in like]
                later = [item for item in near if is_before(at, item.said_at or item.written_at)]
                gone = [item for item in near if item not in later]
                nearness = {item.id: cosine for item, cosine in like} if bank.encoder_name == FITTED_TO else None
                gone = _find_replaced(fact.text, gone, nearness) or list(_find_left(fact.text, gone, bank))
                gone += _find_replacing(fact.text, later, bank)
                same = [
                    item for item in near if item not in later and may_correct(fact.speaker, item.provenance.speaker)
                ]
                fact, gone = _corrects_value(fact, gone, same, finished)
                if gone or not _is_correction_alone(fact):
                    yield _taking_over(fact, gone)
            return
        similar = [[item for item, _ in _like(parsed_claim(fact.text), bank, finished.project)] for fact in facts]
        asked = [index for index, similar_facts in enumerate(similar) if similar_facts]
        answers: Sequence[Sequence[int]] = ()
        if asked:
            answers = self.outdated(
                [facts[index].text for index in asked], [[item.text for item in similar[index]] for index in asked]
            )
        gone_of = dict(zip(asked, answers, strict=False))
        for index, fact in enumerate(facts):
            rows = [row for row in gone_of.get(index, ()) if 0 <= row < len(similar[index])]
            yield _taking_over(fact, [item for row in rows if _is_open(item := similar[index][row], bank)])

    def _found(self, finished: Finished) -> list[StatedFact]:
        if self.extract is None:
            return [
                StatedFact(
                    OperationKind.ADD, (), claim.text, turn, speaker, claim.day, timestamp(message.get("said_at"))
                )
                for turn, message in enumerate(finished.messages or finished.transcript)
                if (speaker := str(message.get("role", "user"))) not in ("system", "tool", "developer", "function")
                and isinstance(text := message.get("content"), str)
                for claim in _claims(text, message, speaker, finished.said_at)
            ]
        messages = [{"said_at": finished.said_at, **message} for message in finished.transcript]
        # A transcript without text holds no facts, so the model is not called.
        result: object = self.extract(messages) if messages else ()
        facts = None if isinstance(result, (str, bytes, Mapping)) or not isinstance(result, Iterable) else list(result)
        if facts is None or not all(isinstance(fact, (str, StatedFact)) for fact in facts):
            raise InvalidAdvice(
                f"what finds facts gave {result if facts is None else facts!r:.60}, which is no list of texts.",
                "Let it return a list of str.",
            )
        return [fact if isinstance(fact, StatedFact) else _attributed(fact, finished) for fact in facts]


def _claims(text: str, message: Mapping[str, Any], speaker: str, said_at: str) -> list[Claim]:
    at = timestamp(message.get("said_at")) or said_at
    if speaker == "assistant":
        return claims(text, at, speaker=speaker)
    before = message.get("before")
    asked = message.get("asked")
    question = ends_in_question(asked) if isinstance(asked, str) else ""
    anew = corrected(text, before, question) if isinstance(before, str) else ""
    return [replace(claim, news=True) for claim in claims(anew, at)] if anew else claims(text, at)


def _attributed(fact: str, finished: Finished) -> StatedFact:
    """Attributes a fact to the message that shares most of its words. The fact's day is parsed from its text."""
    words = stems(fact)
    shared = [
        (len(words & stems(text)), -turn, str(message.get("role", "user")))
        for turn, message in enumerate(finished.messages)
        if isinstance(text := message.get("content"), str)
    ]
    most, turn, speaker = max(shared, default=(0, 1, ""))
    if not most and len({role for _, _, role in shared}) > 1:
        turn, speaker = 1, ""
    said_at = timestamp(finished.messages[-turn].get("said_at")) if turn <= 0 and finished.messages else ""
    day = parsed_claim(fact, said_at or finished.said_at).day
    return StatedFact(OperationKind.ADD, (), fact, -turn, speaker, day, said_at)


@lru_cache(4096)
def stated_in(text: str) -> tuple[Claim, ...]:
    """Returns the statements of an item, or the whole item as one where the rules find none."""
    return tuple(claims(text)) or (parsed_claim(text),)


def _like(claim: Claim, bank: Bank, project: str) -> list[tuple[Item, float]]:
    """Returns the items that `claim` may replace: similar, open, and of the same person, agent and session, with the cosine of
    each with its text, 0 where that is not known.

    Args:
        claim: The newer statement.
        bank: Where the items are.
        project: In which project it was said, "" for none. Items of other projects are left out, unless it is about the speaker.
    """
    if claim.attribute == "plan" or len(claim.text) > LONGEST or not len(bank):
        return []  # what is so long says more than one thing, and replaces none: to look for it would cost most of a write
    near: dict[str, tuple[Item, float]] = {}
    for number, hits in enumerate(bank.hits_nearest_to(asked_for(claim), KNOWN)):
        for hit in hits:  # the first search is for the text itself
            near.setdefault(hit.id, (hit.item, (hit.dense or 0.0) if number == 0 else 0.0))
    everywhere = _is_of_oneself(claim.text)
    return [
        (item, cosine)
        for item, cosine in near.values()
        if item.scope == bank.scope
        and item.open
        and (everywhere or (item.metadata.get("project") or project) == project)
    ]


def _is_of_oneself(text: str) -> bool:
    """Returns whether a statement is about the person who speaks, and so holds in all projects: "I moved to Oslo."."""
    words = set(read(text).tokens)
    return not words.isdisjoint(word_list("of oneself")) and words.isdisjoint(word_list("of a project"))


def _find_replaced(text: str, earlier: Sequence[Item], nearness: Mapping[str, float] | None = None) -> list[Item]:
    """Returns those of some earlier items which the statement `text` replaces.

    Args:
        text: The statement.
        earlier: The items.
        nearness: How near each item is to the statement in meaning, by its id; None if that is not known.
    """
    ids = _seem_replaced(text, earlier, nearness)
    return [
        item
        for item in earlier
        if item.id in ids and not says_more(item.text, text, partial(_is_replaced, text=text, like=item))
    ]


def _is_replaced(part: str, text: str, like: Item) -> bool:
    """Returns whether the statement `text` replaces a part of an item, taken as an item of its own."""
    return bool(_seem_replaced(text, [replace(like, text=part)]))


def _seem_replaced(text: str, earlier: Sequence[Item], nearness: Mapping[str, float] | None = None) -> set[str]:
    """Returns the ids of the items that the statement `text` replaces if they say no more than what it is about. Of several
    sentences, one alone has to replace them, too: what tells of a change in one, and what an item is about in another, are two
    things."""
    gone = _replaced_by_whole(text, earlier, nearness)
    speaker = read(text).speaker
    parts = sentences(text.removeprefix(f"{speaker}: ") if speaker else text) if gone else []
    if len(parts) < 2:
        return gone
    among = [item for item in earlier if item.id in gone]
    named = [f"{speaker}: {part}" if speaker else part for part in parts]
    return set().union(*(_replaced_by_whole(part, among, nearness) for part in named))


def _replaced_by_whole(text: str, earlier: Sequence[Item], nearness: Mapping[str, float] | None) -> set[str]:
    text = as_no_longer(text)
    gone = [earlier[index] for index in taken_over(parsed_claim(text), [stated_in(item.text) for item in earlier])]
    return {item.id for item in gone if may_replace(item.text, text)} or set(replaced_by(text, earlier, nearness))


def _find_left(text: str, earlier: Sequence[Item], bank: Bank) -> Iterator[Item]:
    """Yields those of some open items that had taken the place of what the statement `text` is back at: "I switched to emacs"
    of "I'm back to vim", if it had replaced "I use vim"."""
    value = returned_to(without_dates(text))
    for item in earlier if value else ():
        if not value <= content_of(item.text) and any(value <= content_of(old.text) for old in _before(item, bank)):
            yield item


def _before(item: Item, bank: Bank) -> Iterator[Item]:
    """Yields what an item replaced, what that replaced, and so on."""
    seen, waiting = {item.id}, [item]
    while waiting:
        for link in waiting.pop().links:
            if link.relation == SUPERSEDES and link.target not in seen and (old := bank.find(link.target)) is not None:
                seen.add(old.id)
                waiting.append(old)
                yield old


def _find_replacing(text: str, later: Sequence[Item], bank: Bank) -> Iterator[Item]:
    """Yields those of some items said after the statement `text` that replace it, with what they have replaced of the same kind:
    it takes its place among these."""
    for item in later:
        if _find_replaced(item.text, [replace(item, text=text)]):
            yield item
            gone = filter(None, (bank.find(link.target) for link in item.links if link.relation == SUPERSEDES))
            for one in gone:
                if one.superseded_by == item.id and (
                    one.text == text
                    or _find_replaced(text, [one])
                    or _find_replaced(one.text, [replace(one, text=text)])
                ):
                    yield one


def _message_of(fact: StatedFact, finished: Finished) -> Mapping[str, Any]:
    """Returns the message that a statement is from; an empty one where that is not known."""
    messages = finished.messages or finished.transcript
    return messages[fact.turn] if 0 <= fact.turn < len(messages) else {}


def _corrects_value(
    fact: StatedFact, gone: list[Item], near: Sequence[Item], finished: Finished
) -> tuple[StatedFact, list[Item]]:
    """Returns a statement that corrects the value of an older one with the rest of its words, and what it replaces; any other
    statement as it is. A value alone replaces nothing if the same person said something else just before, unless it tells of a
    new state ("These days it's tea."): what the value is of would be lost.

    Args:
        fact: The statement.
        gone: The items that it replaces by the other rules.
        near: Items that are like it, which the same person said before it.
        finished: The conversation.
    """
    plain = without_dates(fact.text)
    if bare_value(plain) or bare_number(plain):
        if not tells_of_a_new_state(plain) and _follows(fact, finished):
            return fact, []
        replaced = [item for item in gone if item in near]
        return _completed(fact, replaced or (near if corrects(plain) else []), finished)
    if named_value(plain)[0]:
        completed, replaced = _completed(fact, near, finished)
        return completed, replaced or gone
    text = _message_of(fact, finished).get("content")
    if isinstance(text, str) and (bare_value(text) or named_value(text)[0] or corrects(text)):
        # `corrected` may have made this statement of the one before.
        return fact, [item for item in near if with_correction(without_dates(item.text), text) == plain][:1] or gone
    return fact, gone


def only_corrects(text: str) -> bool:
    """Returns whether a text tells nothing but a value and that it corrects another: "Sorry, it's on Saturday."."""
    return bool(bare_value(text) or bare_number(text)) and corrects(text)


def _is_correction_alone(fact: StatedFact) -> bool:
    """Returns whether a fact says nothing without what it corrects."""
    text = fact.text.removeprefix(f"{fact.speaker}: ")
    return only_corrects(text) and not statements(text)


def _follows(fact: StatedFact, finished: Finished) -> bool:
    """Returns whether the same person said something before it in its conversation, as far as that is known."""
    messages, spoken = finished.messages or finished.transcript, _message_of(fact, finished)
    return isinstance(spoken.get("before"), str) or any(
        message.get("role", "user") == spoken.get("role", "user") and message.get("name") == spoken.get("name")
        for message in messages[: max(0, fact.turn)]
    )


def _completed(fact: StatedFact, gone: Sequence[Item], finished: Finished) -> tuple[StatedFact, list[Item]]:
    """Returns a statement that tells a value alone with the words of the newest of some items that has a value of the same kind,
    and this item; the statement as it is, and none, where none has. Its dates are those of the new value."""
    plain, at = without_dates(fact.text), fact.said_at or finished.said_at
    if bare_number(plain):  # which of all numbers is meant is known of what was said just before
        gone = [item for item in gone if is_shortly_before(item, at)]
    for item in sorted(gone, key=lambda item: item.said_at or item.written_at, reverse=True):
        if text := with_value(without_dates(item.text), plain):
            return replace(fact, text=with_dates(text, at)), [item]
    return fact, []


def _is_open(item: Item, bank: Bank) -> bool:
    now = bank.find(item.id)
    return now is not None and now.open


def is_shortly_before(item: Item, at: str) -> bool:
    """Returns whether an item was said at most `SHORTLY` seconds before a time; True where that is not known."""
    earlier = item.said_at or item.written_at
    return not (at and earlier) or later(earlier, SHORTLY) >= at


def may_correct(speaker: str, of_another: str) -> bool:
    """Returns whether what `speaker` says may replace what `of_another` said: an assistant does not correct people, and of people
    with names each corrects only what they said themselves."""
    return speaker == of_another or (speaker != "assistant" and {speaker, of_another} <= {"", "user", "assistant"})


def _taking_over(fact: StatedFact, gone: Sequence[Item]) -> StatedFact:
    ids = tuple(item.id for item in gone if may_correct(fact.speaker, item.provenance.speaker))
    return replace(fact, kind=OperationKind.SUPERSEDE, targets=ids) if ids else fact
