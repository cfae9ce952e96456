"""One line of the journal: an act, when and for whom it was done, and what became of it. To and from plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from json.encoder import encode_basestring
from typing import Any

from keepworth.episodes.operation import Operation, OperationKind
from keepworth.memory.item import UNKNOWN, ItemKind, Provenance, Status
from keepworth.memory.operations import Act, Assignment, Credit, Draft
from keepworth.memory.scope import Scope
from keepworth.memory.store.rows import readable

ASSIGN = "ASSIGN"
REWARD = "REWARD"
ROLLBACK = "ROLLBACK"
PURGE = "PURGE"
PARAMETERS = "PARAMETERS"
_PROVENANCE = tuple(part.name for part in fields(Provenance))


@dataclass(frozen=True, slots=True)
class Entry:
    """seq: position in the journal; at: when; scope: through which it was done; payload: None once it was purged."""

    seq: int
    at: str
    kind: str
    scope: Scope
    episode: str
    source: str
    payload: str | None
    applied: bool
    reason: str

    def act(self) -> tuple[Act, Draft] | None:
        """What to do again on replay; None for entries that are about the journal itself, or purged."""
        if self.payload is None or self.kind in (ROLLBACK, PURGE, PARAMETERS):
            return None
        with readable(f"journal entry {self.seq}"):
            return decoded(self.kind, self.payload, self.scope)


_COMPARED = '"compared":"all"'
"""In entries whose duplicates agree in more than their words; see `operations.nothing_new`."""


def encoded(act: Act, draft: Draft) -> tuple[str, str]:
    """(kind, payload) of an act. Fields with their usual values are left out."""
    if isinstance(act, Assignment):
        return ASSIGN, _json({"target": act.target, "fields": dict(act.fields)})
    if isinstance(act, Credit):
        return REWARD, _json({"value": act.value, "items": act.items, "source": act.source, "decision": act.decision})
    parts = []
    if act.targets:
        parts.append(f'"targets":{_json(act.targets)}')
    if act.text:
        parts.append(f'"text":{_text(act.text)}')
    global _last_draft
    known, rest = _last_draft  # one read: another thread may put its own there meanwhile
    if known is not draft or draft.metadata:
        fields = _fields(draft)
        rest = _json(fields)[1:-1] if fields else ""
        # A batch is nearly always of one draft. Metadata are the caller's and may change.
        if not draft.metadata:
            _last_draft = (draft, rest)
    if rest:
        parts.append(rest)
    if not draft.words_alone:
        parts.append(_COMPARED)
    return act.kind.value, "{" + ",".join(parts) + "}"


_last_draft: tuple[Draft | None, str] = (None, "")


def drop_memos() -> None:
    """As `item.drop_memos`: a draft may hold a key text."""
    global _last_draft
    _last_draft = (None, "")


def _fields(draft: Draft) -> dict[str, Any]:
    """What of a draft is not as usual."""
    body: dict[str, Any] = {}
    for name in ("key", "event_time", "valid_from", "valid_to", "expires_at"):
        value = getattr(draft, name)
        if value:
            body[name] = value
    if draft.kind is not ItemKind.FACT:
        body["kind"] = draft.kind.value
    if draft.status is not Status.ACTIVE:
        body["status"] = draft.status.value
    if draft.trust != 1.0:
        body["trust"] = draft.trust
    if draft.metadata:
        body["metadata"] = dict(draft.metadata)
    if not draft.deduplicate:
        body["deduplicate"] = False
    if draft.provenance != UNKNOWN:
        listed = ((name, getattr(draft.provenance, name)) for name in _PROVENANCE)
        body["provenance"] = {name: value for name, value in listed if value not in ("", -1)}
    return body


def decoded(kind: str, payload: str, scope: Scope) -> tuple[Act, Draft]:
    """The inverse of `encoded`."""
    body: Mapping[str, Any] = json.loads(payload)
    if kind == ASSIGN:
        return Assignment(body["target"], body["fields"]), Draft(scope=scope)
    if kind == REWARD:
        items = tuple((id, propensity) for id, propensity in body["items"])
        return Credit(body["value"], items, body["source"], body["decision"]), Draft(scope=scope)
    draft = Draft(
        kind=ItemKind(body.get("kind", "fact")),
        key=body.get("key", ""),
        scope=scope,
        event_time=body.get("event_time", ""),
        valid_from=body.get("valid_from", ""),
        valid_to=body.get("valid_to", ""),
        expires_at=body.get("expires_at", ""),
        provenance=Provenance(**body.get("provenance", {})),
        trust=body.get("trust", 1.0),
        status=Status(body.get("status", "active")),
        metadata=body.get("metadata", {}),
        deduplicate=body.get("deduplicate", True),
        words_alone="compared" not in body,
    )
    return Operation(OperationKind(kind), tuple(body.get("targets", ())), body.get("text", "")), draft


def targets_of(act: Act) -> tuple[str, ...]:
    """Ids the act speaks of."""
    if isinstance(act, Assignment):
        return (act.target,)
    if isinstance(act, Credit):
        return tuple(id for id, _ in act.items)
    # Whatever a program hands in is a legal act that may do nothing.
    targets = act.targets if isinstance(act, Operation) else ()
    return tuple(target for target in targets if isinstance(target, str))


def _text(text: object) -> str:
    # What a program hands in may be anything.
    return encode_basestring(text) if isinstance(text, str) and text.isascii() else _json(text)


def _json(body: object) -> str:
    text = _ENCODER.encode(body)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # What a model asked for is kept as it was, also where it is not valid Unicode and so was not done.
            return json.dumps(body, separators=(",", ":"))
    return text


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
