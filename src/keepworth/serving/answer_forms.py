"""The form that a call requires of its answer, as a grammar: JSON by a schema, the call of a tool, or one of the two.

A grammar is a text in the form of Lark that llguidance reads. A schema that llguidance cannot follow is refused, with the place
in the call at which it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from keepworth.base.extras import require
from keepworth.base.json_values import as_object
from keepworth.serving.calls import NotServed

_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?", "lenient": False}
"""How JSON is laid out: on one line. Blanks without a bound would be most of what a model with little to say writes."""
_SCHEMAS = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ALONE = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames")
_SHORT = 2**14
"""The most characters of a schema that is remembered."""
_MOST_CHECKS = 200
"""How many parts of a schema are looked at to find the place that cannot be followed."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON schema, and its place in the call."""

    place: str
    schema: Any


def grammar_of(answer: Schema | None, called: Sequence[tuple[str, Schema]], free: bool) -> str:
    """Return the grammar of an answer; "" where it is free. Raises NotServed for a schema that cannot be followed, and
    MissingExtra where llguidance is not installed.

    Args:
        answer: What JSON an answer is; None where it may be any text.
        called: The names and the schemas of the tools one of which may be called instead.
        free: Whether an answer need not be a call.
    """
    if free and answer is None:
        return ""
    require("llm", "An answer of a required form", "llguidance")
    lines, ways = list[str](), list[str]()
    if free and answer is not None:
        _require_followed(answer)
        lines.append(f"answer: %json {_laid_out(answer.schema)}")
        ways.append("answer")
    for number, (name, parameters) in enumerate(called):
        _require_followed(parameters)
        lines.append(f"call_{number}: %json {_laid_out(_call_of(name, parameters.schema))}")
        ways.append(f'"<tool_call>" call_{number} "</tool_call>"')
    return "\n".join((f"start: {' | '.join(ways)}", *lines))


def _call_of(name: str, parameters: Any) -> dict[str, Any]:
    """Return the schema of a tool's call. Definitions stand at the top, where references look for them."""
    schema = as_object(parameters)
    shared: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    arguments = {key: value for key, value in schema.items() if key not in shared}
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"type": "object", **arguments}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        **shared,
    }


def _laid_out(schema: Any) -> str:
    return json.dumps({**schema, "x-guidance": _LAYOUT} if isinstance(schema, Mapping) else schema)


def _require_followed(schema: Schema) -> None:
    """Raises NotServed for a schema that llguidance cannot follow."""
    if not isinstance(schema.schema, Mapping):
        raise NotServed(f"{schema.place} must be a JSON schema, an object.", about=schema.place)
    text = json.dumps(schema.schema)
    if not (problem := _problem(text)):
        return
    place = ".".join((schema.place, *_place_of_problem(schema.schema)))
    raise NotServed(
        f"The schema at {place} cannot be followed: {problem}.",
        "Leave that keyword out, or ask for the form in words and check what comes.",
        about=place,
    )


def _problem(schema: str) -> str:
    """Return why a schema cannot be followed; "" where it can. An agent sends the same one again and again."""
    return _problem_of_short(schema) if len(schema) <= _SHORT else _find_problem(schema)


def _find_problem(schema: str) -> str:
    from llguidance import LLMatcher

    error = str(LLMatcher.validate_grammar(f"start: %json {schema}"))
    reason = error.partition("failed to compile JSON schema: ")[2] or error
    return " ".join(reason.partition("\n   1 |")[0].partition(" Enable ")[0].split()).rstrip(".")


_problem_of_short = lru_cache(maxsize=256)(_find_problem)


def _place_of_problem(schema: Mapping[str, Any]) -> list[str]:
    """Return the way from a schema to the deepest part of it that cannot be followed."""
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    way, inside, checks = list[str](), schema, 0
    while True:
        for names, part in _parts_of(inside):
            checks += 1
            if checks > _MOST_CHECKS:
                return way
            if isinstance(part, Mapping) and _problem(json.dumps({**shared, **part})):
                way, inside = [*way, *names], part
                break
        else:
            return way


def _parts_of(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the schemas directly inside a schema, each with the way to it."""
    for key in _SCHEMAS:
        for name, part in as_object(schema.get(key)).items():
            yield (key, name), part
    for key in _LISTS:
        listed = schema.get(key)
        for number, part in enumerate(listed if isinstance(listed, list) else ()):
            yield (key, str(number)), part
    for key in _ALONE:
        yield (key,), schema.get(key)
