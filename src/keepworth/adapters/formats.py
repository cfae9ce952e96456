"""Reads memories from other formats: mem0's lists, markdown, and lines of JSON, which are also written.

Each memory becomes one record, whose fields are the arguments of `Memory.add`. Markdown holds texts alone. History,
supersessions and what was learned are only in this package's own export (`keepworth.memory.store.transfer`). A mem0 list has
the form that `Memory.get_all` of mem0 2 returns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from keepworth.base.errors import nearest
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import (
    TIMES,
    Item,
    ItemKind,
    Provenance,
    checked_provenance,
    checked_text,
    to_record,
    with_zone,
)
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.records.episode import Operation, OperationKind

Record = dict[str, Any]
SCOPES = {"user_id": "user", "agent_id": "agent", "session_id": "session"}
KEPT = ("kind", "key", "event_time", "valid_from", "valid_to", "expires_at", "trust", "metadata")
"""The fields of an item that are written beside its text, scope and provenance."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record with the place where it stands in the file, such as "line 3", for messages."""

    place: str
    record: Record


# -- into a memory ----------------------------------------------------------------------------------------------------


def take(
    memory: Memory, records: Iterable[FoundRecord], *, where: str = "the file", skip_bad: bool = False, **bounds: str
) -> tuple[list[Item], list[str]]:
    """Import records in one transaction. What the memory holds already is not stored again. A record that the memory's scan
    refuses counts as bad. Raises MemoryProblem, InvalidScope, StorageFull.

    Args:
        memory: The memory that gets the items.
        records: What a reader found in the file, in its order.
        where: The name of the file in messages.
        skip_bad: Leave bad records out. Otherwise one bad record means that none is imported, and MemoryProblem is raised.
        bounds: user_id, agent_id and session_id of records that name none.

    Returns:
        The items, and a line for each record that was left out.
    """
    acts: list[tuple[Operation, Draft]] = []
    bad: list[str] = []
    copies = Counter[str]()
    for record in records:
        try:
            if "problem" in record.record:
                raise ValueError(record.record["problem"])
            operation, draft = _act(memory, record.record, bounds)
            copies[same := _without_repeat(record.record)] += 1
            if not draft.deduplicate:  # as often as the file has it, also if it is imported twice
                draft = replace(draft, deduplicate=True, copies=copies[same])
            if memory.store.scan is not None:
                memory.store.scan.screened(operation, draft)  # raises RefusedText
            acts.append((operation, draft))
        except (ValueError, TypeError) as error:  # every error about a value is one of the two
            bad.append(f"{record.place}: {error}")
    if bad and not skip_bad:
        more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise MemoryProblem(
            f"{where} has {len(bad)} {'entries' if len(bad) > 1 else 'entry'} that cannot be taken: {'; '.join(bad[:5])}{more}.",
            "Correct them, or take the others with --skip-bad; nothing was imported.",
        )
    vectors = memory.store.encode([draft.key or operation.text for operation, draft in acts]) if acts else {}
    done = memory.store.perform(memory.scope, acts, vectors=vectors) if acts else []
    return [item for _, item in done if item is not None], bad


def _without_repeat(record: Record) -> str:
    return json.dumps({name: value for name, value in record.items() if name != "repeat"}, sort_keys=True, default=str)


def _act(memory: Memory, record: Record, bounds: Mapping[str, str]) -> tuple[Operation, Draft]:
    options: Any = {**bounds, **{name: value for name, value in record.items() if value is not None}}
    for name in ("metadata", "provenance"):
        if not isinstance(options.get(name, {}), Mapping):
            raise ValueError(f"{name} must be an object, got {options[name]!r:.40}: give names and values")
    if "text" not in record:
        near = nearest("text", record)
        raise ValueError(f"it has no field 'text': {f'is it {near!r}? Rename it' if near else 'give it one'}")
    text = checked_text(options.pop("text", None))
    source = checked_provenance(Provenance(**options.pop("provenance", {})))
    return Operation(OperationKind.ADD, text=text), replace(memory._drafted(options), provenance=source)


# -- out of a memory --------------------------------------------------------------------------------------------------


def _record(item: Item) -> Record:
    """Return an item as a record without the fields that have their default values."""
    filed, record = to_record(item), Record(text=item.text)
    record |= {name: value for name, part in SCOPES.items() if (value := getattr(item.scope, part))}
    record |= {name: with_zone(filed[name]) if name in TIMES else filed[name] for name in KEPT if name in filed}
    if item.kind is ItemKind.FACT:
        del record["kind"]
    if "provenance" in filed:
        record["provenance"] = {name: value for name, value in filed["provenance"].items() if value not in ("", -1)}
    return record


# -- lines of JSON ----------------------------------------------------------------------------------------------------


def read_lines(text: str) -> Iterator[FoundRecord]:
    """Read lines that each hold a text, or an object with `text` (or `memory`, or `content`) and the fields of `Memory.add`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield FoundRecord(f"line {number}", _object(lambda line=line: json.loads(line)))  # type: ignore[misc]


def write_lines(items: Iterable[Item]) -> str:
    """Write items as lines. The second of two that say the same, which were stored with `repeat`, says so."""
    lines, seen = [], set[str]()
    for record in map(_record, items):
        line = json.dumps(record, ensure_ascii=False)
        lines.append(json.dumps({**record, "repeat": True}, ensure_ascii=False) if line in seen else line)
        seen.add(line)
    return "".join(f"{line}\n" for line in lines)


def _object(read: Callable[[], Any]) -> Record:
    try:
        value = read()
    except (ValueError, RecursionError) as error:
        return {"problem": f"it is no JSON ({error})"}
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        return {"problem": f"it is no object, but {type(value).__name__}"}
    record = dict(value)
    for name in ("memory", "content"):
        if name in record and "text" not in record:
            record["text"] = record.pop(name)
    if "source" in record and "provenance" not in record:
        record["provenance"] = {"source": record.pop("source")}
    return record


# -- mem0 -------------------------------------------------------------------------------------------------------------

_MEM0_SCOPES = {"user_id": "user_id", "agent_id": "agent_id", "run_id": "session_id"}


def read_mem0(text: str) -> Iterator[FoundRecord]:
    """Read what mem0's `get_all` returns, as JSON: {"results": [...]}, or the list alone."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MemoryProblem(f"This is no JSON ({error}).", "Give the file as mem0 wrote it.") from error
    listed = whole.get("results", whole.get("memories")) if isinstance(whole, dict) else whole
    if not isinstance(listed, list):
        raise MemoryProblem("This is no list of mem0's.", 'Give the JSON of its get_all: {"results": [...]}.')
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, dict) or "memory" not in entry:
            yield FoundRecord(f"entry {number}", {"problem": "it has no field 'memory'"})
            continue
        record: Record = {"text": entry["memory"], "event_time": entry.get("created_at") or ""}
        if entry.get("expiration_date"):
            record["expires_at"] = entry["expiration_date"]
        for theirs, ours in _MEM0_SCOPES.items():
            if entry.get(theirs):
                record[ours] = entry[theirs]
        if isinstance(entry.get("metadata"), dict):
            record["metadata"] = entry["metadata"]
        yield FoundRecord(f"entry {number}", record)


# -- markdown ---------------------------------------------------------------------------------------------------------

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_COMMENT_OR_TAG = re.compile(rf"<!--.*?-->|{_TAG.pattern}", re.S)


def read_markdown(text: str) -> Iterator[FoundRecord]:
    """Read markdown: each list entry, paragraph and code block is a memory, with the headings above it as its metadata."""
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    headings, parts, start, before = list[str](), list[str](), 0, ""
    # Markup inside lines is left as it is. Underlined headings and link references are read as text, so that no words are lost.
    reader = MarkdownIt("commonmark", {"maxNesting": 100}).disable(["inline", "text_join", "lheading", "reference"])
    tokens = reader.parse(text.removeprefix("\ufeff"))
    for token in (*tokens, Token("end", "", 0)):
        if parts and (token.level == 0 or token.type.startswith("list_item")):
            above = {"metadata": {"heading": " > ".join(headings)}} if headings else {}
            yield FoundRecord(f"line {start + 1}", {"text": "\n\n".join(parts), **above})
            parts = []
        if before.startswith("h") and token.type == "inline":
            headings = [*headings[: int(before[1:]) - 1], token.content]
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            start = start if parts or token.map is None else token.map[0]
            fenced = f"{token.markup}{token.info}\n{token.content}{token.markup}"
            plain = _without_tags(token.content) if token.type == "html_block" else token.content
            entry = fenced if token.type == "fence" else re.sub(r"\A\[[ xX]\]\s", "", plain).strip()
            parts += [entry] if entry else []
        before = token.tag if token.type == "heading_open" else ""


def _without_tags(html: str) -> str:
    """Remove comments and tags. A comment that never ends is text, so after the last "-->" only tags are removed."""
    ended, end, rest = html.rpartition("-->")
    return _COMMENT_OR_TAG.sub("", ended + end) + _TAG.sub("", rest)


FORMATS: dict[str, Callable[[str], Iterator[FoundRecord]]] = {
    "jsonl": read_lines,
    "mem0": read_mem0,
    "markdown": read_markdown,
}
