"""Lines of JSON, each a text or an object with the fields of `Memory.add`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keepworth.adapters.formats.taking import FoundRecord, Record, Sayings, record_of
from keepworth.base.json_values import parse
from keepworth.memory.item import Item


def read_lines(text: str) -> Iterator[FoundRecord]:
    """Read lines that each hold a text, or an object with `text` (or `memory`, or `content`) and the fields of `Memory.add`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield FoundRecord(f"line {number}", _object(lambda line=line: parse(line)))  # type: ignore[misc]


def write_lines(items: Iterable[Item]) -> str:
    """Write items as lines. The second of two that say the same, which were stored with `repeat`, says so."""
    lines, sayings = [], Sayings()
    for item in items:
        record = record_of(item)
        lines.append(json.dumps({**record, "repeat": True} if sayings.count(item) else record, ensure_ascii=False))
        sayings.add(item)
    return "".join(f"{line}\n" for line in lines)


def _object(read: Callable[[], Any]) -> Record:
    try:
        value = read()
    except ValueError as error:
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
