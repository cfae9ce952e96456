"""The types that pass between HTTP and the functions that answer: a request, a ready answer, and a refusal."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from keepworth.base.errors import KeepworthError, UnknownName


class NotServed(KeepworthError):
    """A refusal of a request.

    Args:
        status: The HTTP status of the answer.
        hang_up: Whether to close the connection.
        code: The name of the error; "" for the name of the status.
        about, value: The field that is wrong, and its value.
        details: What a client's own code reads of the refusal, in the formats of models' providers.
    """

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
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, fix)
        self.status = status
        self.hang_up = hang_up
        self.code, self.about, self.value = code, about, value
        self.details = details

    def shaped(self, shape: ErrorShape, kind: str) -> dict[str, Any]:
        """Return the body of the response in a provider's form of errors."""
        body = shape(self.status, str(self), kind)
        if self.details is not None and isinstance(body.get("error"), dict):
            body["error"]["details"] = dict(self.details)
        return body


@dataclass(frozen=True, slots=True)
class ServedCall:
    """One request: its JSON body and the parameters of its URL.

    `path` holds the values in its path, `access` what its token allows, and `raw` the bytes of its body."""

    body: dict[str, Any]
    query: Mapping[str, str]
    path: Mapping[str, str] = field(default_factory=dict)
    access: Any = None
    raw: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadyAnswer:
    """An answer that is given as bytes, with its content type (`kind`)."""

    content: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def brief(value: object) -> str:
    """Return a value as JSON, cut to 80 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Raises NotServed, also for unusual JSON that an upstream might accept."""
    try:
        raw = whole_characters(raw)
        body = from_json(raw, cache_strings="none")  # unlike the standard library's, it bounds the depth
        json.loads(raw, object_pairs_hook=_refuse_repeated, parse_int=float)
    except ValueError as error:
        raise NotServed(
            f"The body is not JSON in UTF-8 that can be used: {error}.",
            "Send UTF-8 without a byte order mark, nested at most 200 deep.",
        ) from error
    if not isinstance(body, dict):
        raise NotServed(
            f"A body must be a JSON object, got {brief(body)}.",
            'Send names and values, such as {"query": "tea"}.',
            about="body",
        )
    return body


_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in JSON; the group is half of a surrogate pair without the other half."""


def whole_characters(raw: bytes) -> bytes:
    """Return JSON in which a half of an emoji that was cut is replaced by U+FFFD: that is no reason to refuse a call."""
    if _ESCAPED_HALF.search(raw) is None:
        return raw
    return _HALF.sub(lambda match: match[0] if match[1] is None else rb"\ufffd", raw)


def _refuse_repeated(pairs: Sequence[tuple[str, Any]]) -> None:
    """Raise NotServed if an object has a key twice, as a check here and the upstream might each read another of the two."""
    if len(dict(pairs)) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise NotServed(f"The key {repeated!r:.80} stands twice in one object.", "Send it once.", about=repeated[:80])


def first_mistake(error: ValidationError, kind: type[BaseModel], noun: str = "field", where: str = "here") -> NotServed:
    """Return the first error that the pydantic model `kind` found, as a refusal.

    Args:
        error: What pydantic raised; the first mistake in it is reported.
        kind: The model that the fields were read into.
        noun: What a field is called in the message.
        where: Where the field stands, for the message.
    """
    first = error.errors(include_url=False)[0]
    # Parts of the location that name a member of a union, such as "str" or "list[dict]", are no fields.
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
        message, fix = f"{about} should {should}, got {brief(value)}.", f"Change {about}."
    return NotServed(message, fix, status=422, about=about, value=value)


RouteAnswers = Callable[[ServedCall], Any]
"""A function from a request to its answer: data for JSON, a plain text, None for an empty answer, or a `ReadyAnswer`."""


ErrorShape = Callable[[int, str, str], dict[str, Any]]
"""A function from an HTTP status, a message and a kind of error to the body that callers of a route expect."""


def openai_error(status: int, message: str, kind: str) -> dict[str, Any]:
    """Return an error in OpenAI's form.

    Args:
        status: The status of the response.
        message: What is wrong and how to mend it.
        kind: The type of the error, such as "invalid_request_error".
    """
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
    """Return an error in Anthropic's form.

    Args:
        status: The status of the response, from which the type of the error follows.
        message: What is wrong and how to mend it.
        kind: Not used, as the type follows from the status.
    """
    error_type = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": error_type, "message": message}}
