"""Carries out what people ask to forget: a note of theirs that a request names is deleted, which undo brings back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepworth.memory.choose.slots import Finished
from keepworth.memory.forget_requests import LONGEST, ForgetRequest, forget_requests, takes_back
from keepworth.memory.speech import spoken_sentences, statements
from keepworth.methods.writers._fact_writer import may_correct
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
        ids = {item.id for request in requests for item in _named(request, text, before, finished.bank(), message)}
        for id in sorted(ids):
            yield Operation(OperationKind.DELETE, (id,))


def _named(request: ForgetRequest, text: str, before: object, bank: Bank, message: Mapping[str, Any]) -> list[Item]:
    """Returns the open notes of the same person, agent and session that a request asks to forget."""
    if request.kind != "last":
        wanted: Sequence[str] = [text]
    else:
        wanted = [statement.text for statement in statements(before)] if isinstance(before, str) else []
    if not wanted or not len(bank):
        return []
    items = {hit.id: hit.item for hits in bank.hits_nearest_to(wanted, MOST) for hit in hits}
    speaker = str(message.get("role", "user"))
    return [
        item
        for item in items.values()
        if item.open
        and item.scope == bank.scope
        and may_correct(speaker, item.provenance.speaker)
        and (item.text.partition(" (")[0] in wanted if request.kind == "last" else request.names(item.text))
    ]
