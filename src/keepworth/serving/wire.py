"""Turns the results of a memory into JSON and back: the server sends them and `Client` reads them.

Numbers that JSON does not have, such as the infinite ends of an interval, are the texts "inf", "-inf" and "nan". Times leave with
their zone, "2026-01-01T07:00:00Z".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from keepworth.memory.item import Item, from_record, to_record, unzoned, with_zone, without_zone, zoned
from keepworth.memory.search.search import Hit, Hits
from keepworth.records.episode import Episode, episode_from_json


def plain(value: Any) -> Any:
    """Return a value as plain data, which `json.dumps` takes."""
    if isinstance(value, Item):
        return zoned(to_record(value))
    if isinstance(value, Hits):
        block = value.block
        return {
            "hits": [plain(hit) for hit in value],
            "decision": value.decision,
            "text": block.text,
            "lines": dict(block.lines),
            "cut": list(block.cut),
            "missing": list(block.missing),
            **{name: getattr(value, name) for name in _OF_HITS},
            "core": [plain(item) for item in value.core],
            "advice": plain(value.advice),
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if is_dataclass(value):
        plainly = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {**plainly, **{name: with_zone(plainly[name]) for name in MOMENTS if name in plainly}}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


MOMENTS = ("at", "began", "ended", "last")
"""Fields of other results that hold times."""
_OF_HITS = ("propensity", "policy", "query", "tokens", "wording", "last", "none")


def read(kind: Any, value: Any) -> Any:
    """Return the value that `plain` turned into plain data. `kind` is its type, as an annotation gives it."""
    inside = [arg for arg in get_args(kind) if arg is not NoneType]
    if kind is NoneType or value is None:
        return None
    if kind is Item:
        return from_record(unzoned(value))
    if kind is Episode:
        return episode_from_json(value)
    if kind is Hits:
        hits = [read(Hit, hit) for hit in value["hits"]]
        advice = read(tuple[tuple[str, float, float], ...], value["advice"])
        core = tuple(read(Item, item) for item in value["core"])
        values = {name: value[name] for name in _OF_HITS}
        return Hits(hits, value["decision"], advice=advice, core=core, **values)
    if is_dataclass(kind):
        made: Any = kind
        hints = _hints(made)
        values = {name: read(hints[name], part) for name, part in value.items()}
        return made(**{name: without_zone(part) if name in MOMENTS else part for name, part in values.items()})
    if get_origin(kind) is UnionType:
        return read(inside[0], value)
    if get_origin(kind) is list or (get_origin(kind) is tuple and inside[-1] is Ellipsis):
        return get_origin(kind)(read(inside[0], part) for part in value)
    if get_origin(kind) is tuple:
        return tuple(read(part, inner) for part, inner in zip(inside, value, strict=True))
    return float(value) if kind is float and isinstance(value, str) else value


def result_of(method: Callable[..., Any]) -> Any:
    """Return the type of a method's result, from its annotation."""
    return _hints(method)["return"]


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    from keepworth.memory.choose.ledger import Account, Balance

    return get_type_hints(annotated, localns={"Account": Account, "Balance": Balance, "LiveEpisode": Any})
