"""What people say, kept as notes in their own words, so that nothing which is stated depends on rules that find facts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from keepworth.memory.choose.slots import Finished
from keepworth.memory.item import Item, legible, timestamp
from keepworth.memory.relative_days import with_dates
from keepworth.memory.speech import LONGEST, StatedSentence, clean, ends_in_question, statements
from keepworth.methods.writers._claims import stems
from keepworth.methods.writers._fact_writer import Facts, only_corrects
from keepworth.methods.writers._forgetting import forgotten, taken_back
from keepworth.methods.writers._statements import corrected
from keepworth.records.episode import Operation, OperationKind, StatedFact
from keepworth.registry import Method

_LOG = logging.getLogger("keepworth.memory")
MOST = 64
"""The most notes of a message: of a longer one, neighbouring statements are put together, up to `LONGEST` characters."""
OF_ASSISTANTS = 2_000
"""Characters up to which neighbouring statements of an assistant are put together: a long answer would else take all places of
what is shown."""
DERIVED = "derived from"
"""What links a fact to the note that it was found in."""
_NOT_SPEAKERS = ("system", "tool", "developer", "function")
_PEOPLE = ("user", "human", "person", "customer", "client")


@dataclass(frozen=True, slots=True)
class Statements:
    """Keeps each statement of a person as a note, word for word, and replaces notes that a newer one contradicts.

    Questions, commands to the agent, greetings, talk of the task at hand and pasted material are no statements
    (`memory.speech`). A message in which somebody asks not to keep what it says is not kept, and a note that somebody asks to
    forget is deleted (`memory.forget_requests`). A short answer is kept with the question that it answers, a relative day with
    its date, and a statement that begins with a word such as "she" together with the one before it. A request to remember is
    always kept.

    Args:
        assistant: Keep what the assistant states, too.
        facts: What finds facts beside the notes, such as `writers.facts.model()`; None finds none. A fact is linked to its note,
            and one that has no word which its note lacks is left out. If it fails, the notes are kept.
        updates: False only adds: a note replaces none.
    """

    assistant: bool = False
    facts: Facts | None = None
    updates: bool = True

    @property
    def by_rules(self) -> bool:
        """Returns whether no model is called."""
        return self.facts is None or self.facts.by_rules

    def __call__(self, finished: Finished) -> Iterator[Operation]:
        if self.updates:
            yield from forgotten(finished)
        notes = list(self._notes(finished))
        ids: dict[int, list[str]] = {}
        for operation in Facts(lambda _: notes, updates=self.updates)(finished):
            yield operation
            if self.facts is not None and isinstance(operation, StatedFact) and (id := _written_last(finished)):
                ids.setdefault(operation.turn, []).append(id)
        if self.facts is not None:
            yield from self._facts_beside(self.facts, notes, ids, finished)

    def _notes(self, finished: Finished) -> Iterator[StatedFact]:
        asked, last_texts = "", dict[str, str]()
        messages = finished.messages or finished.transcript
        not_kept = taken_back(messages)
        for turn, message in enumerate(messages):
            speaker, text = str(message.get("role", "user")), message.get("content")
            if speaker in _NOT_SPEAKERS or not isinstance(text, str) or not text.strip():
                continue
            given, of_agent = message.get("asked"), speaker == "assistant"
            question = ends_in_question(given) if isinstance(given, str) else asked
            if not of_agent or self.assistant:
                at = timestamp(message.get("said_at"))
                name = _name(message, speaker)
                before = message.get("before", last_texts.get(name))
                last_texts[name] = text
                if isinstance(before, str) and not of_agent:
                    text = corrected(text, before, question) or text
                stated = statements(text, question=question, of_agent=of_agent)
                if isinstance(before, str) and not of_agent:
                    stated = [claim for claim in stated if claim.asked_to_keep or not _asks_again(claim.text, before)]
                if not (of_agent or question or isinstance(before, str)) and only_corrects(text):
                    stated = [StatedSentence(clean(text).strip())]  # of a note that is looked for when it is stored
                stated = [] if turn in not_kept else stated
                for note in _texts(stated, at or finished.said_at, OF_ASSISTANTS if of_agent else 0):
                    teller = name.removesuffix(": ") or speaker
                    yield StatedFact(OperationKind.ADD, (), f"{name}{note}", turn, teller, said_at=at)
            asked = ends_in_question(text) if of_agent or _name(message, speaker) else ""

    def _facts_beside(
        self, writer: Facts, notes: Sequence[StatedFact], ids: Mapping[int, Sequence[str]], finished: Finished
    ) -> Iterator[Operation]:
        """Yields the facts that another writer finds and that say more than the notes, each with its links."""
        try:
            facts = list(replace(writer, updates=False)(finished))
        except Exception as error:
            _LOG.warning(
                "The notes of what was said are kept without facts, because %s: %s", type(error).__name__, error
            )
            return
        words: dict[int, frozenset[str]] = {}
        for note in notes:
            words[note.turn] = words.get(note.turn, frozenset()) | stems(note.text)
        whole = frozenset().union(*words.values())
        new = [
            fact
            for fact in facts
            if isinstance(fact, StatedFact) and stems(fact.text) - words.get(fact.turn, whole) - _OF_THE_SPEAKER
        ]
        of_this_call = {id for made in ids.values() for id in made}
        by_text = {operation.text: operation for operation in new}
        for operation in replace(writer, extract=lambda _: list(by_text.values()), updates=self.updates)(finished):
            operation = replace(operation, targets=tuple(id for id in operation.targets if id not in of_this_call))
            if not operation.targets:
                operation = replace(operation, kind=OperationKind.ADD)
            yield operation
            source = ids.get(operation.turn, ()) if isinstance(operation, StatedFact) else ()
            fact = _written_last(finished)
            nearest = max(source, key=lambda id: len(_words_of(finished, id) & stems(operation.text)), default="")
            if fact and nearest and fact != nearest:
                yield Operation(OperationKind.LINK, (fact, nearest), DERIVED)


LONGEST_LEAD = 60
"""The most characters before a colon behind which a request is repeated."""
_OF_THE_SPEAKER = stems("user speaker person they")


def _asks_again(statement: str, before: str) -> bool:
    """Returns whether a statement only repeats a request that the message before it made: in its own words, or behind a colon,
    as in "once more: build the docs". Words with a digit before the colon may be news."""
    lead, _, request = statement.rpartition(":")
    words, asked = (re.findall(r"\w+", text.lower()) for text in (request, before))
    repeated = any(asked[start : start + len(words)] == words for start in range(len(asked)))
    if len(words) < 2 or not repeated or len(lead) > LONGEST_LEAD or any(letter.isdigit() for letter in lead):
        return False
    return not any(True for _ in statements(before))


def _texts(utterances: Iterable[StatedSentence], at: str, size: int) -> list[str]:
    """Returns the notes of what a message states: each statement with those that lean on it, and with the date of a relative
    day. Neighbouring notes are put together up to `size` characters, and up to `LONGEST` where there are more than `MOST`."""
    notes: list[str] = []
    for statement in utterances:
        text = with_dates(statement.text, at, LONGEST)
        if notes and statement.leans and len(notes[-1]) + len(text) < LONGEST:
            notes[-1] = f"{notes[-1]} {text}"
        else:
            notes.append(text)
    size = LONGEST if len(notes) > MOST else size
    joined: list[str] = []
    for text in notes:
        if joined and len(joined[-1]) + len(text) < size:
            joined[-1] = f"{joined[-1]} {text}"
        else:
            joined.append(text)
    return joined


def _name(message: Mapping[str, Any], speaker: str) -> str:
    """Returns how a note begins that somebody by name says: "Ana: "; "" for the user and the assistant of a conversation."""
    name = message.get("name")
    name = name if isinstance(name, str) and name.strip() else speaker
    if name in (*_PEOPLE, "assistant") or len(name) > 60 or not legible(name):
        return ""
    return f"{clean(name).strip()}: "


def _written_last(finished: Finished) -> str:
    """Returns the id of the item that the operation before this wrote, or found; "" for none."""
    journal = finished.bank().journal if finished.bank is not None else []
    return journal[-1].outcome.item if journal else ""


def _words_of(finished: Finished, id: str) -> frozenset[str]:
    item: Item | None = finished.bank().find(id) if finished.bank is not None else None
    return stems(item.text) if item is not None else frozenset()


METHOD = Method(
    kind="writer",
    name="statements",
    title="Notes of what people state",
    about="Keeps every statement of a person word for word, with date, speaker and the question it answers (ours)",
    tags=("token", "factual", "formation", "evolution"),
    claim="Our aim: evidence is found at 5 as often as with whole messages, in .7 of the tokens.",
    differs="Not published: this project's own.",
    make=Statements,
)
