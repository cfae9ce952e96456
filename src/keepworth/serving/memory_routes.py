"""The HTTP routes of a memory and their OpenAPI description, made from the table in `keepworth.serving.verbs`."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

import keepworth
from keepworth.base.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.item import TIMES, Item
from keepworth.memory.store.notes import RequestUnderWay, keep_answer, noted_request, noting
from keepworth.serving.access import Access
from keepworth.serving.calls import NotServed, ReadyAnswer, RouteAnswers, ServedCall, first_mistake
from keepworth.serving.open_memories import OpenMemories, OpenMemory, under_way
from keepworth.serving.verb import Verb, verb
from keepworth.serving.verbs import VERBS, VerbCaller
from keepworth.serving.wire import plain

_LOG = logging.getLogger("keepworth.serving")
BASE = "/v1/memory"
_LONGEST_KEY = 255
_KEY = "idempotency-key"
_ANSWER_SECONDS = 5.0
"""The most seconds that a request which another process carries out is waited for; one that was killed gives no answer."""


@dataclass(frozen=True, slots=True)
class ServedCaller(VerbCaller):
    """A caller over HTTP, with what its token allows."""

    access: Access
    open: OpenMemory


@verb("GET /access", "read")
def who(caller: ServedCaller) -> Any:
    """Show what this token allows."""
    return caller.access.record()


def memory_table(memories: OpenMemories, more: tuple[Verb, ...] = ()) -> dict[tuple[str, str], RouteAnswers]:
    """Return the functions that answer, by method and path. `more` are verbs in addition to those of memory."""
    verbs = (*VERBS, who, *more)
    table: dict[tuple[str, str], RouteAnswers] = {
        (verb.method, BASE + verb.path): partial(_answer, verb, memories) for verb in verbs
    }
    document = json.dumps(describe_routes(verbs)).encode()
    table["GET", "/openapi.json"] = lambda call: ReadyAnswer(document)
    table["GET", "/health"] = lambda call: None
    return table


class _NoFields(BaseModel, extra="forbid"):
    pass


def _answer(verb: Verb, memories: OpenMemories, call: ServedCall) -> Any:
    access: Access = call.access
    access.require(verb.role)
    if call.raw and not (verb.in_body and verb.model.model_fields):
        raise NotServed(
            f"{verb.method} {BASE}{verb.path} takes no body.", "Send it without a body.", status=422, about="body"
        )
    body = _checked(verb.model if verb.in_body else _NoFields, call.body)
    query = _checked(_NoFields if verb.in_body else verb.model, dict(call.query))
    fields = body if verb.in_body else query
    given = fields.model_dump(exclude_unset=True)
    try:
        open = memories.of(access)

        def answered() -> Any:
            result = verb.function(ServedCaller(open.memory, access, open), **call.path, **given)
            if verb.lines:
                text = "".join(f"{json.dumps(plain(line), ensure_ascii=False)}\n" for line in result)
                return ReadyAnswer(text.encode(), "application/x-ndjson")
            answer = plain({verb.key: result} if verb.key else {} if result is None else result)
            if verb.pages:
                answer["next"] = getattr(result[-1], "id", result[-1]) if len(result) == fields.limit else ""
            return answer

        key = call.headers.get(_KEY)
        return answered() if key is None or not verb.writes else _once(verb, key, access, open, call, answered)
    except KeepworthError as error:
        raise problem(error, {**call.query, **call.body, **call.path}, memories.paths()) from error


def _once(verb: Verb, key: str, access: Access, open: OpenMemory, call: ServedCall, answered: Callable[[], Any]) -> Any:
    """Carry out a request with an idempotency key, or return the earlier answer if one with this key was carried out."""
    if not 0 < len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise _wrong(
            "Idempotency-Key",
            key,
            f"An idempotency key has 1 to {_LONGEST_KEY} printable ASCII characters.",
            "Send a UUID.",
        )
    store = open.memory.store
    name = _digest(access.user_id, access.agent_id, key)
    digest = _digest(verb.method, verb.path, *call.path.values(), *call.query, *call.query.values(), call.raw)
    with open.alone(name):
        before = noted_request(store, name)
        end = monotonic() + (_ANSWER_SECONDS if open.workers > 1 else 0.0)
        while before is not None and before.answer is None and monotonic() < end:  # another process is answering it
            sleep(0.02)
            before = noted_request(store, name)
        if before is not None:
            if before.digest != digest:
                raise _wrong(
                    "Idempotency-Key", key, "This key came with another request before.", "Use a new key for each."
                )
            if before.answer is None:
                raise NotServed(
                    "This request was carried out before, and its answer is not kept any more.",
                    "Read what is there; it is not done twice.",
                    status=409,
                    code="AnswerGone",
                    about="Idempotency-Key",
                    value=key,
                )
            return ReadyAnswer(before.answer.encode(), headers={"Idempotency-Replayed": "true"})
        try:
            with noting(store, name, digest):
                answer = answered()
        except RequestUnderWay as other:
            raise under_way() from other
        try:
            keep_answer(store, name, digest, json.dumps(answer))
        except (errors.Busy, errors.StorageFull, errors.StorageFailed) as refused:  # the request itself is carried out
            _LOG.warning("the answer to a request is not kept for whoever sends it again: %s", refused)
        return answer


def _digest(*parts: str | bytes) -> str:
    """Return a digest of several parts. Each is hashed before they are joined, so that the borders between them count."""
    digests = (hashlib.sha256(part if isinstance(part, bytes) else part.encode()).digest() for part in parts)
    return hashlib.sha256(b"".join(digests)).hexdigest()


# -- what is wrong ----------------------------------------------------------------------------------------------------

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.UnknownItem, 404),
    (errors.UnknownEpisode, 404),
    (errors.UnknownSnapshot, 404),
    (errors.ClosedEpisode, 409),
    (errors.Purged, 409),
    (errors.StorageFull, 507),
    (errors.StorageFailed, 507),
    (errors.Busy, 503),
    (errors.ReadOnly, 403),
    (errors.SharedReadOnly, 403),
    (errors.NotAMemoryFile, 500),
)


def problem(error: KeepworthError, given: Mapping[str, Any], paths: tuple[str, ...]) -> NotServed:
    """Turn an error of the memory into a refusal.

    Args:
        error: What the memory raised.
        given: The fields of the request, of which the message may name one.
        paths: Places of files, which are hidden in the message.
    """
    if isinstance(error, NotServed):
        return error
    message = error.message
    for path in paths:  # callers over a network must not learn where the file is
        message = message.replace(path, "this memory")
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 422)
    if isinstance(error, errors.InvalidScope) and " is already " in message:
        status = 403
    about = getattr(error, "field", "") or _field(message, given)
    fix = error.fix or message.rpartition(": ")[2]  # many messages have the form "problem: fix"
    return NotServed(message, fix, status=status, code=type(error).__name__, about=about, value=given.get(about))


def _field(message: str, given: Mapping[str, Any]) -> str:
    """Guess which field a message is about: one whose value it quotes, else the first that it names."""
    quoted = [
        name
        for name, value in given.items()
        if (isinstance(value, str) and value and repr(value)[:40] in message)
        or (isinstance(value, (int, float)) and re.search(rf"got {re.escape(repr(value))}(?![\w.])", message))
    ]
    if quoted:
        return quoted[-1]
    words = {name: re.search(rf"\b{re.escape(name.removesuffix('_id'))}\b", message) for name in given}
    named = {name: match.start() for name, match in words.items() if match}
    return min(named, key=lambda name: (named[name], name)) if named else ""


def _checked(kind: type[BaseModel], given: Mapping[str, Any]) -> Any:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise first_mistake(error, kind) from None


def _wrong(about: str, value: object, message: str, fix: str) -> NotServed:
    return NotServed(message, fix, status=422, about=about, value=value)


# -- the description --------------------------------------------------------------------------------------------------


def describe_routes(verbs: tuple[Verb, ...]) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document of the routes."""
    bodies = [verb.model for verb in verbs if verb.in_body and verb.model.model_fields]
    listed = sorted(bodies, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in listed], ref_template="#/components/schemas/{model}"
    )
    problem_schema = {
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "required": ["type", "title", "status", "detail", "code", "field", "value", "fix"],
        "properties": {
            **{name: {"type": "string"} for name in ("type", "title", "detail", "code", "field", "value", "fix")},
            "status": {"type": "integer"},
        },
    }
    paths: dict[str, dict[str, Any]] = {}
    for route in verbs:
        paths.setdefault(BASE + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "keepworth memory", "version": keepworth.__version__},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Item": ITEM, "Problem": problem_schema},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


ITEM: dict[str, Any] = {
    "type": "object",
    "description": "An item. Fields with their usual value are left out.",
    "required": ["id", "text", "kind"],
    "properties": {
        **{name: {"type": "string"} for name in ("id", "text", "kind", "key", "superseded_by", "status")},
        **{name: {"type": "string", "format": "date-time"} for name in TIMES},
    },
}
_ITEM = {"$ref": "#/components/schemas/Item"}


def _answer_schema(verb: Verb) -> dict[str, Any]:
    """Return the schema of an answer that is an item, or a list of items; anything for others."""
    result = get_type_hints(verb.function).get("return")
    if result is Item:
        return _ITEM
    if result != list[Item]:
        return {}
    listed = {verb.key: {"type": "array", "items": _ITEM}, **({"next": {"type": "string"}} if verb.pages else {})}
    return {"type": "object", "required": list(listed), "properties": listed}


def _operation(verb: Verb) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in verb.in_path
    ]
    fields = verb.model.model_json_schema()
    required = fields.get("required", ())
    if not verb.in_body:
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": field}
            for name, field in fields.get("properties", {}).items()
        ]
    if verb.writes:
        key = {"type": "string", "minLength": 1, "maxLength": _LONGEST_KEY, "pattern": "^[ -~]*$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    kind = "application/x-ndjson" if verb.lines else "application/json"
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation: dict[str, Any] = {
        "operationId": verb.name,
        "summary": verb.summary,
        "description": f"Role: {verb.role}.",
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {kind: {"schema": _answer_schema(verb)}}},
            "default": {"description": "Refused.", "content": content},
        },
    }
    if verb.in_body and verb.model.model_fields:
        schema = {"$ref": f"#/components/schemas/{verb.model.__name__}"}
        operation["requestBody"] = {"required": bool(required), "content": {"application/json": {"schema": schema}}}
    return operation
