"""Portable AI Memory (PAM) 1.0, an interchange format: one JSON document, which the package portable-ai-memory checks.

What PAM has no field for stands in each memory's `metadata.keepworth`, from which it is read back.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field, StrictStr, ValidationError

from keepworth import __version__
from keepworth.adapters.formats.elements import elements_of, parsed_whole
from keepworth.adapters.formats.taking import FoundRecord, Record, Sayings, record_of
from keepworth.base.json_values import as_object
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import Item, ItemKind, one_spelling, with_zone

SCHEMA, VERSION = "portable-ai-memory", "1.0"
NAME = "keepworth"
_TYPES = {ItemKind.SKILL: "skill", ItemKind.LESSON: "instruction", ItemKind.CORE: "instruction"}
_NOT_TAKEN = {"retracted": "it was retracted"}
_ARCHIVED = frozenset({"superseded", "deprecated", "archived"})


def write_pam(items: Iterable[Item], *, owner: str, now: str) -> str:
    """Return items as a PAM document.

    Args:
        items: The items; what they supersede is not in it.
        owner: Whose memories they are.
        now: The time of the export, as canonical text.
    """
    memories, sayings = [], Sayings()
    for item in items:
        memories.append(_memory(item))
        if sayings.count(item):  # it was stored with `repeat`
            memories[-1]["metadata"][NAME]["repeat"] = True
        sayings.add(item)
    version = re.match(r"\d+\.\d+\.\d+", __version__)
    document = {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "export_id": str(uuid.uuid4()),
        "exported_by": f"{NAME}/{version[0] if version else '0.0.0'}",
        "export_date": with_zone(now),
        "owner": {"id": owner},
        "memories": memories,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _memory(item: Item) -> dict[str, Any]:
    record = record_of(item)
    times = {"valid_from": item.valid_from, "valid_until": item.valid_to}
    rest = {name: value for name, value in record.items() if name not in ("text", "trust", "valid_from", "valid_to")}
    return {
        "id": item.id,
        "type": _TYPES.get(item.kind, "fact" if item.kind is ItemKind.FACT else "context"),
        "status": "active",
        "content": item.text,
        "content_hash": content_hash(item.text),
        "confidence": {"current": item.trust},
        "temporal": {
            "created_at": with_zone(item.written_at),
            **{name: with_zone(time) for name, time in times.items() if time},
        },
        "provenance": {"platform": NAME, "extraction_method": "api_export"},
        "metadata": {NAME: rest},
    }


def content_hash(text: str) -> str:
    """Return the hash of a memory's content, by the rules of PAM 1.0, section 9.4."""
    plain = re.sub(r"\s+", " ", one_spelling(text.strip().lower()))
    return f"sha256:{hashlib.sha256(plain.encode()).hexdigest()}"


def read_pam(text: str) -> Iterator[FoundRecord]:
    """Read a PAM document of memories. Retracted memories are passed over, and superseded ones come into the archive."""
    whole = parsed_whole(text, "Give the document as it was exported")
    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        schema = whole.get("schema") if isinstance(whole, dict) else None
        raise MemoryProblem(
            f"This is no PAM document of memories: its schema is {schema!r:.60}.",
            f"Give one whose schema is {SCHEMA!r}.",
        )
    version = str(whole.get("schema_version", ""))
    if not version.startswith("1."):
        raise MemoryProblem(
            f"This PAM document has version {version!r:.20}, and this program reads 1.", "Export it as version 1.0."
        )
    if not isinstance(whole.get("memories"), list):
        raise MemoryProblem("This PAM document has no list of memories.", "Give the document as it was exported.")
    for line, memory in elements_of(text, "memories"):
        place = f"line {line}"
        status = str(as_object(memory).get("status", "active"))
        if status in _NOT_TAKEN:
            yield FoundRecord(place, {}, passed_over=_NOT_TAKEN[status])
        elif problem := _problem_of(memory):
            yield FoundRecord(place, {"problem": f"it is no memory of PAM ({problem})"})
        else:
            yield FoundRecord(place, _record(memory, status))


class _Temporal(BaseModel):
    created_at: StrictStr


class _Provenance(BaseModel):
    platform: StrictStr


class _Memory(BaseModel):
    """What PAM 1.0 asks for of a memory, as far as it is read here."""

    content: StrictStr = Field(min_length=1)
    type: StrictStr
    temporal: _Temporal
    provenance: _Provenance
    confidence: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


def _problem_of(memory: object) -> str:
    """Return which field of a memory is missing or has another form than PAM's, "" if all have theirs."""
    try:
        _Memory.model_validate(memory)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else "it is no object"
    return ""


def _record(memory: Mapping[str, Any], status: str) -> Record:
    """Return a memory that has the form of PAM as a record."""
    text, temporal = memory["content"], memory["temporal"]
    if memory.get("content_hash") != content_hash(text):
        return {"problem": "its content_hash is not that of its content: one of the two was changed"}
    exact = (memory.get("metadata") or {}).get(NAME)
    record: Record = {"text": text}
    if isinstance(exact, Mapping):
        record |= dict(exact)
    else:
        record |= _foreign(memory)
    record["text"] = text
    trust = (memory.get("confidence") or {}).get("current")
    if trust not in (None, 1.0):
        record["trust"] = trust
    for theirs, ours in (("valid_from", "valid_from"), ("valid_until", "valid_to")):
        if temporal.get(theirs):
            record[ours] = temporal[theirs]
    if status in _ARCHIVED:
        record["status"] = "archived"
    return record


def _foreign(memory: Mapping[str, Any]) -> Record:
    """Return what a record takes over of a memory that another program exported."""
    provenance, kind = memory["provenance"], str(memory.get("custom_type") or memory["type"])
    metadata = {name: value for name, value in (memory.get("metadata") or {}).items() if value is not None}
    metadata |= {name: memory[name] for name in ("tags", "summary") if memory.get(name)}
    record: Record = {"event_time": memory["temporal"]["created_at"]}
    if kind == "skill":
        record["kind"] = kind
    elif kind != "fact":
        metadata["type"] = kind
    record["provenance"] = {
        "source": f"pam:{provenance['platform']}",
        "session": str(provenance.get("conversation_ref") or ""),
        "date": memory["temporal"]["created_at"],
    }
    return {**record, "metadata": metadata} if metadata else record
