"""What is wrong with the fields of a request or the arguments of a tool, in words: the name, the value and what to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from keepworth.episodes.errors import UnknownName
from keepworth.serving.calls import NotServed, brief

_KINDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def first_mistake(error: ValidationError, kind: type[BaseModel], noun: str = "field", place: str = "here") -> NotServed:
    """The first thing that a model found wrong, as a refusal. noun: what a field is called; place: where it stands."""
    first = error.errors(include_url=False)[0]
    schema = kind.model_json_schema()
    path, wanted = _at(schema, first["loc"])
    about, known = ".".join(path) or "body", sorted(kind.model_fields)
    if first["type"] == "extra_forbidden":
        about = ".".join(map(str, first["loc"]))
        inside = sorted(wanted.get("properties", {})) if path else known
        fix = (
            UnknownName(noun, about.rpartition(".")[2], inside).fix
            if inside
            else "Leave it out: nothing is said there."
        )
        return _refused(about, first["input"], f"There is no {noun} {about!r:.80} {place}.", fix)
    expected = described_value(wanted, schema)
    if first["type"] == "missing":
        return _refused(about, None, f"{about} is missing {place}.", f"Send {about}: {expected}.")
    value = first["input"]
    return _refused(
        about,
        value,
        f"{about} must be {expected}, got {brief(value)}.",
        f"Send {expected}, or correct its place." if not path else f"Send {about} as {expected}.",
    )


def described_value(wanted: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a JSON schema takes, in words. schema: the whole that it is part of."""
    options = [_resolved(each, schema) for each in wanted.get("anyOf", [wanted])]
    said = [_one(each, schema) for each in options if each.get("type") != "null" or len(options) == 1]
    return " or ".join(dict.fromkeys(said))


def _one(wanted: dict[str, Any], schema: dict[str, Any]) -> str:
    words = _KINDS.get(str(wanted.get("type", "")), "a value")
    low, high, above = wanted.get("minimum"), wanted.get("maximum"), wanted.get("exclusiveMinimum")
    if above is not None:
        words += f" above {above}" + (f", {high} at most" if high is not None else "")
    elif low is not None or high is not None:
        words += (
            f" from {low} to {high}"
            if None not in (low, high)
            else f" of {low} or more"
            if high is None
            else f" of {high} or less"
        )
    if "items" in wanted:
        words += f" of {_plural(described_value(wanted['items'], schema))}"
    few, most = (wanted.get(name) for name in ("minItems", "maxItems"))
    if few or most:
        words += f" ({few or 0} to {most} of them)" if most else f" ({few} or more)"
    longest = wanted.get("maxLength")
    return f"{words} of at most {longest} characters" if longest else words


def _plural(words: str) -> str:
    return {"a text": "texts", "an object": "objects", "a number": "numbers", "a whole number": "whole numbers"}.get(
        words, words
    )


def _at(schema: dict[str, Any], place: Sequence[str | int]) -> tuple[list[str], dict[str, Any]]:
    """(the names that lead to a place, what is wanted there). Parts that name an option of several are left out."""
    path: list[str] = []
    here = schema
    for part in place:
        options = [_resolved(each, schema) for each in here.get("anyOf", [here])]
        for option in options:
            below = option.get("items") if isinstance(part, int) else option.get("properties", {}).get(part)
            if below is not None:
                here = _resolved(below, schema)
                path.append(str(part))
                break
    return path, here


def _resolved(wanted: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = str(wanted.get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] = schema["$defs"][name] if name else wanted
    return found


def _refused(about: str, value: object, message: str, fix: str) -> NotServed:
    return NotServed(message, fix, status=422, about=about, value=value)
