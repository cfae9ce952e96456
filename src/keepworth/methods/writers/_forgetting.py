"""Carries out what people ask to forget: a note of theirs that a request names is deleted, which undo brings back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.memory.choose.slots import Finished
from keepworth.memory.forget_requests import LONGEST, ForgetRequest, forget_requests, takes_back
from keepworth.memory.item import timestamp
from keepworth.memory.relative_days import without_dates
from keepworth.memory.speech import spoken_sentences, statements
from keepworth.methods.writers._fact_writer import is_shortly_before, may_correct
from keepworth.records.episode import Operation, OperationKind

if TYPE_CHECKING:
    from keepworth.memory.item import Item
    from keepworth.memory.overlay import Bank

MOST = 50
"""The most notes that are looked at for a request."""


def forgotten(finished: Finished) -> Iterator[Operation]:
    """Yields a deletion for each note that people ask to forget in a conversation."""
    last_texts: dict[str, str] = {}
    for message in finished.messages or finished.transcript:
        speaker, text = str(message.get("role", "user")), message.get("content")
        if speaker in ("assistant", "system", "tool", "developer", "function") or not isinstance(text, str):
            continue
        name = str(message.get("name", ""))
        before = message.get("before", last_texts.get(name))
        last_texts[name] = text
        if len(text) > 4 * LONGEST or finished.bank is None:
            continue
        sentences = spoken_sentences(text)
        requests = forget_requests(sentences)
        if takes_back(sentences):
            requests.append(ForgetRequest(frozenset(), "last"))
        at, bank = timestamp(message.get("said_at")) or finished.said_at, finished.bank()
        ids = {item.id for request in requests for item in _find_named(request, text, before, bank, message, at)}
        for id in sorted(ids):
            yield Operation(OperationKind.DELETE, (id,))


def taken_back(messages: Sequence[Mapping[str, Any]]) -> set[int]:
    """Returns the places of the messages of a conversation whose speaker says next not to keep them: "Don't save this."."""
    last: dict[str, int] = {}
    places: set[int] = set()
    for place, message in enumerate(messages):
        text, role = message.get("content"), str(message.get("role", "user"))
        name = str(message.get("name") or role)
        if isinstance(text, str) and role not in ("assistant", "system", "tool", "developer", "function"):
            sentences = spoken_sentences(text) if len(text) <= 4 * LONGEST else []
            asks = takes_back(sentences) or any(one.kind == "last" for one in forget_requests(sentences))
            places |= {last[name]} if asks and name in last else set()
            last[name] = place
    return places


def _find_named(
    request: ForgetRequest, text: str, before: object, bank: Bank, message: Mapping[str, Any], said_at: str
) -> list[Item]:
    """Returns the open notes of the same person, agent and session that a request asks to forget.

    Args:
        request: The request.
        text: The message in which it is.
        before: What the same person said before it, None if that is not known.
        bank: Where the notes are.
        message: The message with its speaker.
        said_at: When it was said.
    """
    speaker = str(message.get("name") or message.get("role", "user"))
    if not len(bank):
        return []
    if request.kind == "last" and not isinstance(before, str):
        return _left_last(bank, speaker, said_at)
    if request.kind != "last":
        wanted: Sequence[str] = [text]
    else:
        wanted = [statement.text for statement in statements(str(before))]
    items = {hit.id: hit.item for hits in bank.hits_nearest_to(wanted, MOST) for hit in hits} if wanted else {}
    return [
        item
        for item in items.values()
        if item.open
        and item.scope == bank.scope
        and may_correct(speaker, item.provenance.speaker)
        and (
            without_dates(item.text).removeprefix(f"{speaker}: ") in wanted
            if request.kind == "last"
            else request.names(item.text)
        )
    ]


def _left_last(bank: Bank, speaker: str, said_at: str) -> list[Item]:
    """Returns the open notes that the last message of a speaker left, in a call of its own shortly before."""
    notes = [
        item
        for item in bank.items()
        if item.open
        and item.scope == bank.scope
        and item.provenance.turn >= 0  # what was imported, or added as it stands, is of no message
        and may_correct(speaker, item.provenance.speaker)
    ]
    last = max(notes, key=lambda item: item.written_at, default=None)
    if last is None or not is_shortly_before(last, said_at):
        return []
    return [item for item in notes if item.provenance == last.provenance]
