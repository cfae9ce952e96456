"""What an upstream keeps for its callers, such as responses and conversations: an id opens it to whom it was given, and to nobody
else. The upstream knows the gateway's key alone, and would open it to whoever names it.

That an id was given is noted as a digest, in the file of the tenant, for 30 days from when it was last used. One that is not
known here, whether it is another's or nobody's, is refused in the same words, and the upstream is not asked.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from keepworth.episodes.errors import KeepworthError
from keepworth.memory.errors import InvalidScope
from keepworth.memory.item import Scope
from keepworth.memory.store import injections
from keepworth.memory.store.store import Store
from keepworth.serving.call_formats import EVENTS
from keepworth.serving.calls import NotServed, ServedCall
from keepworth.serving.open_memories import OpenMemories

_LOG = logging.getLogger("keepworth.serving")
ROUTES = ("/v1/responses", "/v1/conversations")
_VERBS = ("compact", "input_tokens")
"""What stands in the place of an id in the path of a POST, and is none."""
_TELLING = (b"response.created", b"response.output_item.", b"response.completed")
_LONGEST = 4 * 2**20


class KeptUpstream:
    """The ids of one call. Raises NotServed for one that names what was not given to its caller."""

    def __init__(self, memories: OpenMemories, call: ServedCall, method: str, path: str) -> None:
        memory = memories.of(call.access).memory
        try:
            self.scope: Scope = memory._narrowed(call.headers.get("x-keepworth-user", ""), "", "")
        except InvalidScope as error:
            raise NotServed(error.message, error.fix, status=403) from error
        self.store: Store = memory.store
        self._since = memory.store.head()
        self._rest = bytearray()
        self._known: set[str] = set()
        in_path = list(_in_path(method, path))
        named = [*in_path, *_in_body(_object(call.raw))]
        if named:
            try:
                owners = injections.given_to(self.store, [_digest(name) for name in named])
            except KeepworthError as error:
                raise NotServed(
                    "Memory fails, and knows alone to whom this was given.", "Try again; its log says more.", status=503
                ) from error
            for name in named:
                owner = owners.get(_digest(name))
                if owner is None or not self.scope.contains(owner):
                    raise NotServed(
                        f"What has the id {name!r:.80} was not found.",
                        "Name what this token was given in the last 30 days, by this server.",
                        status=404 if name in in_path else 400,  # as OpenAI's routes do
                    )
            self.keep(named)

    def note(self, content: bytes, kind: str) -> None:
        """Of a whole answer."""
        if not kind.startswith(EVENTS):
            self.keep(_given(_object(content)))

    def named_by(self, part: bytes) -> list[str]:
        """Ids in the events that this part of a stream completes, which were not in it before."""
        self._rest += part
        *events, rest = bytes(self._rest[-_LONGEST:]).replace(b"\r\n", b"\n").split(b"\n\n")
        self._rest = bytearray(rest)
        found: list[str] = []
        for event in events:
            if any(name in event for name in _TELLING):
                data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
                told = _object(data)
                item = told.get("item")
                found += _given(told.get("response"))
                found += [item["id"]] if isinstance(item, dict) and isinstance(item.get("id"), str) else []
        return [each for each in dict.fromkeys(found) if each not in self._known]

    def keep(self, names: Iterable[str]) -> None:
        """Whoever names them in this scope is their owner from now on, where nobody was before."""
        listed = [name for name in dict.fromkeys(names) if name not in self._known]
        if listed:
            self._known.update(listed)
            try:
                injections.keep_given(self.store, [_digest(name) for name in listed], self.scope, since=self._since)
            except KeepworthError as error:  # the answer is the caller's even so, and cannot be gone on from
                _LOG.warning("what the upstream keeps was not noted: %s", error)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _in_path(method: str, path: str) -> Iterator[str]:
    for route in ROUTES:
        if path.startswith(f"{route}/"):
            first, *below = path.removeprefix(f"{route}/").split("/")
            if not (method == "POST" and not below and first in _VERBS):
                yield first


def _in_body(body: Mapping[str, Any]) -> Iterator[str]:
    before, conversation = body.get("previous_response_id"), body.get("conversation")
    yield from (each for each in (before, conversation) if isinstance(each, str) and each)
    if isinstance(conversation, dict) and isinstance(conversation.get("id"), str):
        yield conversation["id"]
    for pieces in (body.get("input"), body.get("items")):
        for piece in pieces if isinstance(pieces, list) else ():
            # The type may be left out where there is nothing but an id.
            if isinstance(piece, dict) and isinstance(piece.get("id"), str) and _refers(piece):
                yield piece["id"]


def _refers(piece: Mapping[str, Any]) -> bool:
    return piece.get("type", "item_reference") == "item_reference" or set(piece) <= {"id", "type"}


def _given(body: Any) -> Iterator[str]:
    """Ids in an answer: its own, those of what it lists, and of the conversation that it is part of."""
    if not isinstance(body, dict):
        return
    listed = [body, body.get("conversation")]
    for name in ("output", "data"):
        listed += body[name] if isinstance(body.get(name), list) else []
    yield from (each["id"] for each in listed if isinstance(each, dict) and isinstance(each.get("id"), str))


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = from_json(content, cache_strings="none") if content else {}
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
