"""What passes between HTTP and what answers it: a request, an answer that is no JSON object, and a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from keepworth.episodes.errors import KeepworthError, UnknownName


class NotServed(KeepworthError):
    """A request that the server understands and refuses. status: the HTTP status to answer; hang_up: close the connection.
    code: the kind of mistake, the name of an error where there is one; about, value: the field that is wrong, and what it was."""

    def __init__(
        self,
        message: str,
        fix: str = "",
        *,
        status: int = 400,
        hang_up: bool = False,
        code: str = "",
        about: str = "",
        value: object = None,
    ) -> None:
        super().__init__(message, fix)
        self.status = status
        self.hang_up = hang_up
        self.code, self.about, self.value = code, about, value


@dataclass(frozen=True, slots=True)
class ServedCall:
    """One request: its JSON and the parameters of its URL.

    path: what its path names; access: what its credential allows, as whoever checked it says; raw: the body's bytes."""

    body: dict[str, Any]
    query: Mapping[str, str]
    path: Mapping[str, str] = field(default_factory=dict)
    access: Any = None
    raw: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadyAnswer:
    """An answer whose bytes are made already."""

    content: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def brief(value: object) -> str:
    """As JSON would say it, in at most 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=True, default=str)
    except (ValueError, RecursionError):
        text = repr(type(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def json_object(raw: bytes) -> dict[str, Any]:
    """What a body says. What goes upstream is read here first: an upstream may read more than this does. Raises NotServed."""
    try:
        body = from_json(raw, cache_strings="none")  # unlike the standard library's, it bounds the depth
    except ValueError as error:
        raise NotServed(
            f"The body is not JSON in UTF-8 that can be used: {error}.",
            "Send UTF-8 without a byte order mark, nested at most 200 deep, without halves of surrogate pairs.",
        ) from error
    if not isinstance(body, dict):
        raise NotServed(
            f"A body must be a JSON object, got {brief(body)}.",
            'Send names and values, such as {"query": "tea"}.',
            about="body",
        )
    return body


def first_mistake(error: ValidationError, kind: type[BaseModel], noun: str = "field", where: str = "here") -> NotServed:
    """The first thing that a model found wrong, as a refusal in one line.

    Args:
        kind: The model.
        noun: What a field is called.
        where: Where it stands.
    """
    first = error.errors(include_url=False)[0]
    # Parts that name an option of a union, such as "str" or "list[dict]", are no names of fields.
    parts = [str(part) for part in first["loc"] if part not in ("str", "int", "float") and "[" not in str(part)]
    about, value = ".".join(parts) or "body", first["input"]
    if first["type"] == "extra_forbidden":
        fields = sorted(kind.model_fields) if len(parts) == 1 else []
        fix = UnknownName(noun, about, fields).fix if fields else "Leave it out: nothing is read there."
        message = f"There is no {noun} {about!r:.80} {where}."
    elif first["type"] == "missing":
        message, fix, value = f"{about} is missing {where}.", f"Send {about}.", None
    else:
        should = first["msg"].partition(" should ")[2] or f"be another value ({first['msg']})"
        message, fix = f"{about} should {should}, got {brief(value)}.", f"Change {about}: it should {should}."
    return NotServed(message, fix, status=422, about=about, value=value)


RouteAnswers = Callable[[ServedCall], Any]
"""A request -> the answer: JSON, a plain sentence, None for an empty one, or `ReadyAnswer`."""


ErrorShape = Callable[[int, str, str], dict[str, Any]]
"""(status, message, kind) -> the body of an error, as callers of a route read it."""


def openai_error(status: int, message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": status}}


_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(status: int, message: str, kind: str) -> dict[str, Any]:
    """kind: not said; Anthropic's own names go by the status."""
    error_type = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": error_type, "message": message}}
