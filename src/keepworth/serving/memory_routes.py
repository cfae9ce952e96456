"""The verbs of `keepworth.Memory` over HTTP: one table of routes, from which also their description (OpenAPI) is made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

import keepworth
from keepworth.episodes.episode import episode_to_json
from keepworth.episodes.errors import KeepworthError
from keepworth.memory import errors
from keepworth.memory.item import Item, Provenance, Status, one_spelling
from keepworth.memory.search.where import Filter, from_text, parsed
from keepworth.memory.store import injections, log
from keepworth.memory.store.requests import keep_answer, noted_request, noting
from keepworth.serving import memory_requests as asks
from keepworth.serving.access import Access, Tokens, new_access
from keepworth.serving.audit import entries, may_see
from keepworth.serving.calls import NotServed, ReadyAnswer, RouteAnswers, ServedCall
from keepworth.serving.metrics import Metrics
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.wire import plain
from keepworth.serving.wrong_fields import first_mistake

BASE = "/v1/memory"
IN_QUARANTINE = "(held in quarantine)"
_LONGEST_KEY = 255
_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to a memory, checked. body, query: what its models made of it; path: what its path names."""

    open: OpenMemory
    access: Access
    body: Any
    query: Any
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MemoryRoute:
    """answers: makes JSON of what is wanted, and says in its first line what it does. role: that the token must have. writes:
    whether an idempotency key has a meaning."""

    method: str
    path: str
    role: str
    answers: Callable[[Wanted], Any]
    body: type[asks._RequestBody] | None = None
    query: type[asks._RequestQuery] | None = None
    writes: bool = False

    @property
    def name(self) -> str:
        return str(getattr(self.answers, "func", self.answers).__name__)

    @property
    def summary(self) -> str:
        return str(getattr(self.answers, "func", self.answers).__doc__).splitlines()[0]


# -- items ------------------------------------------------------------------------------------------------------------


def add_items(wanted: Wanted) -> Any:
    """Remember a text, messages, or several texts."""
    body, memory = wanted.body, wanted.open.memory
    if (body.content is None) == (body.texts is None):
        raise _wrong("content", None, "One of content and texts says what to remember.", "Give one of the two.")
    options = body.given("content", "texts", "infer", "provenances")
    if body.provenances is not None:
        options["provenances"] = [Provenance(**each.model_dump()) for each in body.provenances]
    wanted.open.touch(body.episode)
    if body.texts is not None:
        if body.infer:
            raise _wrong("infer", True, "infer is for messages, and texts are stored as they are.", "Give content.")
        return {"items": [_told(wanted, each) for each in memory.add_many(body.texts, **options)]}
    done = memory.add(body.content, infer=body.infer, **options)
    return {"items": [_told(wanted, each) for each in (done if isinstance(done, list) else [done])]}


def _told(wanted: Wanted, item: Item) -> Any:
    """What was made of what was said: in quarantine it may say what somebody else said before."""
    return plain(_masked(item) if _withheld(wanted, item) else item)


def list_items(wanted: Wanted) -> Any:
    """Items in order of writing, or the newest first, a page at a time."""
    options = wanted.query.given("kinds", "where")
    found = _checked_filter(wanted.query.where or None)
    if found is not None:
        # What is held back says nothing, not even whether it would be found.
        options["where"] = replace(found, function=lambda item: not _withheld(wanted, item))
    kinds = [each for each in wanted.query.kinds.split(",") if each]
    page = wanted.open.memory.get_all(kinds=kinds, **options, **of_nobody(wanted, wanted.query.user_id))
    return {
        "items": [_item(wanted, each) for each in page],
        "next": page[-1].id if len(page) == wanted.query.limit else "",
    }


def get_item(wanted: Wanted) -> Any:
    """An item in its latest state."""
    return _item(wanted, wanted.open.memory.get(wanted.path["id"]))


def _item(wanted: Wanted, item: Item | None) -> Any:
    """As it is; of one in quarantine, to whoever may not release it, that it is there; and to whoever may not read, no words."""
    if item is not None and _withheld(wanted, item):
        item = _masked(item)
    if item is not None and "read" not in wanted.access.roles:
        item = replace(item, text="", key="", metadata={}, provenance=Provenance())
    return plain(item)


def _masked(item: Item) -> Item:
    return replace(item, text=IN_QUARANTINE, key="", metadata={}, provenance=Provenance())


def _withheld(wanted: Wanted, item: Item) -> bool:
    return item.status is Status.QUARANTINED and "admin" not in wanted.access.roles


def list_quarantined(wanted: Wanted) -> Any:
    """Items in quarantine, which no search shows, a page at a time."""
    page = wanted.open.memory.quarantined(**wanted.query.given())
    return {"items": plain(page), "next": page[-1].id if len(page) == wanted.query.limit else ""}


def release_item(wanted: Wanted) -> Any:
    """Let an item out of quarantine."""
    return plain(wanted.open.memory.release(wanted.path["id"]))


def update_item(wanted: Wanted) -> Any:
    """Reword an item, or set its status, trust, end or metadata."""
    told = wanted.body.status is not None or wanted.body.metadata is not None
    if told and wanted.open.memory.get(wanted.path["id"]).status is Status.QUARANTINED:
        wanted.access.require("admin")
    return _item(wanted, wanted.open.memory.update(wanted.path["id"], **wanted.body.given()))


def supersede_item(wanted: Wanted) -> Any:
    """The fact changed: a new item takes the place of this one."""
    return _item(wanted, wanted.open.memory.supersede(wanted.path["id"], **wanted.body.given()))


def delete_item(wanted: Wanted) -> Any:
    """Hide an item; it can be brought back by a rollback."""
    wanted.open.memory.delete(wanted.path["id"], **wanted.query.given())
    return {"deleted": 1}


def delete_items(wanted: Wanted) -> Any:
    """Delete every item of a user, an agent or a session."""
    return {"deleted": wanted.open.memory.delete_all(**wanted.query.given())}


def item_history(wanted: Wanted) -> Any:
    """Everything that happened to an item."""
    listed = wanted.open.memory.history(wanted.path["id"])
    held = bool(listed) and listed[-1].after is not None and listed[-1].after.status is Status.QUARANTINED
    if held and "admin" not in wanted.access.roles:  # a former wording may hold the secret, too
        wanted.access.require("admin")
    return {"revisions": plain(listed)}


def item_worth(wanted: Wanted) -> Any:
    """What showing an item adds, as far as rewards say."""
    return plain(wanted.open.memory.worth(wanted.path["id"], wanted.query.query))


def forget_items(wanted: Wanted) -> Any:
    """Delete items, or erase them for good (role admin)."""
    if wanted.body.purge_history:
        wanted.access.require("admin")
    erased = wanted.open.memory.forget(*wanted.body.ids, purge_history=wanted.body.purge_history)
    return {"erased": plain(erased)}


# -- searches and outcomes --------------------------------------------------------------------------------------------


def search(wanted: Wanted) -> Any:
    """The items that fit a query, best first."""
    wanted.open.touch(wanted.body.episode)
    return plain(wanted.open.memory.search(**_searched(wanted, wanted.body.user_id)))


def search_many(wanted: Wanted) -> Any:
    """Several searches at once."""
    wanted.open.touch(wanted.body.episode)
    return {"results": plain(wanted.open.memory.search_many(**_searched(wanted, wanted.body.user_id)))}


def _searched(wanted: Wanted, person: str) -> dict[str, Any]:
    """What a search is told. Items in quarantine are for whoever may release them."""
    if Status.QUARANTINED.value in wanted.body.statuses:
        wanted.access.require("admin")
    where = _checked_filter(wanted.body.where)
    return {**wanted.body.given(), "where": where, **of_nobody(wanted, person)}


def _checked_filter(where: Mapping[str, Any] | str | None) -> Filter | None:
    """where: as it is, or as JSON. A mistake in it may quote what stands in other fields, too."""
    try:
        return parsed(from_text(where) if isinstance(where, str) else where)
    except errors.InvalidFilter as error:
        raise _wrong("where", where, error.message, error.fix) from None


def of_nobody(wanted: Wanted, person: str) -> dict[str, Any]:
    """What is about no person, and not about everybody: see `Access.everybody`. person: whom the request names."""
    return {} if person or wanted.access.everybody else {"nobody": True}


def begin_episode(wanted: Wanted) -> Any:
    """Begin an episode: one attempt at a task."""
    options = wanted.body.given()
    options["by"] = _person(wanted.access, wanted.body.by) or ""
    live = wanted.open.begin(**options)
    return {"id": live.id, "task": live.task, "number": live.number, "scope": plain(live.scope)}


def list_episodes(wanted: Wanted) -> Any:
    """Ids of episodes, oldest first, a page at a time."""
    page = wanted.open.memory.episodes(**wanted.query.given(), **of_nobody(wanted, wanted.query.user_id))
    return {"episodes": page, "next": page[-1] if len(page) == wanted.query.limit else ""}


def get_episode(wanted: Wanted) -> Any:
    """The record of an episode."""
    memory, id = wanted.open.memory, wanted.path["id"]
    record = memory.episode_record(id)
    if "admin" not in wanted.access.roles:  # what it wrote or saw may lie in quarantine
        concerned = log.concerned_by(memory.store, id)
        back = {each: _held_back(wanted, each) for ids in concerned for each in ids}
        back |= {each.item: _held_back(wanted, each.item) for each in record.shown}
        operations = [
            replace(event, operation=replace(event.operation, text=IN_QUARANTINE))
            if event.operation.text and any(back[each] for each in ids)
            else event
            for event, ids in zip(record.operations, concerned, strict=True)
        ]
        shown = [replace(each, text=IN_QUARANTINE) if back[each.item] else each for each in record.shown]
        record = replace(record, operations=tuple(operations), shown=tuple(shown))
        if memory.store.scan is not None:  # what a model of this process read and drew is kept as it was, for training
            segments = [
                replace(each, context=(), ids=(), logprobs=(), spans=(), text=memory._unsaid(each.text))
                for each in record.segments
            ]
            record = replace(record, segments=tuple(segments), answer=memory._unsaid(record.answer))
    return episode_to_json(record)


def _held_back(wanted: Wanted, id: str) -> bool:
    """Also of what is not there any more, or said what another said already, whose state nobody knows here."""
    try:
        return _withheld(wanted, wanted.open.memory.get(id))
    except KeepworthError:
        return True


def get_receipt(wanted: Wanted) -> Any:
    """Which items were recalled for a call through the gateway, and which are in the bytes that went upstream."""
    id = wanted.open.episode(wanted.path["id"]).id
    receipt = injections.receipt(wanted.open.memory.store, id)
    if receipt is None:
        raise NotServed(
            f"Episode {id!r:.40} has no receipt: it was no call through the gateway, or one of long ago.",
            "Calls through /v1/chat/completions have one.",
            status=404,
            code="UnknownEpisode",
            about="id",
            value=id,
        )
    return receipt


def episode_search(wanted: Wanted) -> Any:
    """Search as part of an episode."""
    live = wanted.open.episode(wanted.path["id"])
    return plain(live.search(**_searched(wanted, wanted.body.user_id or live.scope.user)))


def episode_act(wanted: Wanted) -> Any:
    """Say what was done after the last searches."""
    wanted.open.episode(wanted.path["id"]).act(wanted.body.action)
    return {}


def episode_step_reward(wanted: Wanted) -> Any:
    """The reward of the last act alone."""
    wanted.open.episode(wanted.path["id"]).step_reward(wanted.body.value)
    return {}


def episode_reward(wanted: Wanted) -> Any:
    """Credit everything an episode showed."""
    return plain(wanted.open.episode(wanted.path["id"]).reward(**_reward(wanted)))


def episode_end(wanted: Wanted) -> Any:
    """Note that an episode is over."""
    wanted.open.episode(wanted.path["id"]).end(wanted.body.outcome)
    return {}


def reward(wanted: Wanted) -> Any:
    """Credit an episode, or one search, at once or days later."""
    return plain(wanted.open.memory.reward(**_reward(wanted)))


def pending(wanted: Wanted) -> Any:
    """Episodes in which something was done and that have no reward."""
    return {"episodes": wanted.open.memory._pending(**of_nobody(wanted, ""))}


def ledger(wanted: Wanted) -> Any:
    """What showing each item added, from draws of chance."""
    memory, query = wanted.open.memory, wanted.query
    items = [each for each in query.items.split(",") if each] or None
    nobody = of_nobody(wanted, "")
    if items is None and (nobody or not wanted.access.whole):  # the ledger is of the whole tenant
        listed = memory.store.items(memory.scope, current=not query.everything)
        items = [each.id for each in listed if not (nobody and each.scope.user)]
    return plain(memory.ledger(items=items, source=query.source, everything=query.everything, exact=query.exact))


def _reward(wanted: Wanted) -> dict[str, Any]:
    options: dict[str, Any] = wanted.body.given()
    person = _person(wanted.access, options.get("by"))
    return options if person is None else {**options, "by": person}


def _person(access: Access, by: str | None) -> str | None:
    """Whose word it is: that of the token's person, where it has one, else as the program says."""
    if not access.user_id:
        return by
    if by and one_spelling(by) != access.user_id:
        raise NotServed(
            f"This token is of {access.user_id!r}, and gives nobody else's word.",
            "Leave by out.",
            status=403,
            about="by",
            value=by,
        )
    return access.user_id


# -- undo, and what belongs to a person -------------------------------------------------------------------------------


def snapshot(wanted: Wanted) -> Any:
    """A name for the present state."""
    return {"snapshot": wanted.open.memory.snapshot()}


def diff(wanted: Wanted) -> Any:
    """Items that differ between two snapshots."""
    return {"differences": plain(wanted.open.memory.diff(wanted.query.one, wanted.query.other))}


def rollback(wanted: Wanted) -> Any:
    """Undo an episode, a source, a person's rewards, one change, or all since a snapshot."""
    return plain(wanted.open.memory.rollback(**wanted.body.given()))


def export(wanted: Wanted) -> ReadyAnswer:
    """All items and episodes of a user, an agent or a session, as lines of JSON."""
    memory, bounds = wanted.open.memory, wanted.query.given()
    bounds["user_id"] = bounds.get("user_id", "") or wanted.access.user_id  # what is shared with it is not of it
    lines: list[Any] = []
    after = ""
    while page := memory.get_all(limit=asks.MOST, after=after, all_states=True, **bounds):
        lines += [{"item": plain(item)} for item in page]
        after = page[-1].id
    after = ""
    while ids := memory.episodes(limit=asks.MOST, after=after, **bounds):
        lines += [{"episode": episode_to_json(memory.episode_record(id))} for id in ids]
        after = ids[-1]
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    return ReadyAnswer(text.encode(), "application/x-ndjson")


def erase(wanted: Wanted) -> Any:
    """Erase a user, an agent or a session for good."""
    return plain(wanted.open.memory.erase(**wanted.body.given()))


# -- who may do what --------------------------------------------------------------------------------------------------


def who(wanted: Wanted) -> Any:
    """What this token opens."""
    return _token(wanted.access)


def list_tokens(wanted: Wanted, tokens: Tokens) -> Any:
    """Tokens at rest, without the tokens."""
    return {"tokens": [_token(each) for each in tokens.all() if _reaches(wanted.access, each)]}


def add_token(wanted: Wanted, tokens: Tokens) -> Any:
    """A new token; this answer is the only place it is seen."""
    body, own = wanted.body, wanted.access
    made = new_access(
        tenant=own.tenant if body.tenant is None else body.tenant,
        user_id=body.user_id or own.user_id,
        agent_id=body.agent_id or own.agent_id,
        roles=body.roles,
        name=body.name,
        days=body.days,
        shared=body.shared,
    )
    if not _reaches(own, made) or not set(made.roles) <= set(own.roles) or not _shares(own, made):
        raise NotServed(
            "A token gives what it has itself, and no more.",
            "Ask for the tenant, the bounds and the roles of this token, or for fewer.",
            status=403,
        )
    return {"token": tokens.add(made), **_token(made)}


def remove_token(wanted: Wanted, tokens: Tokens) -> Any:
    """Take a token back."""
    id = wanted.path["id"]
    if not any(each.id == id and _reaches(wanted.access, each) for each in tokens.all()):
        raise NotServed(
            f"There is no token {id!r:.40}.", f"GET {BASE}/tokens lists them.", status=404, about="id", value=id
        )
    tokens.remove(id)
    return {"removed": 1}


def _reaches(own: Access, other: Access) -> bool:
    if own.operates:
        return True
    return own.tenant == other.tenant and own.user_id in ("", other.user_id) and own.agent_id in ("", other.agent_id)


def _shares(own: Access, made: Access) -> bool:
    """Whether what is shared with a new token is open to the one that gives it."""
    return not own.user_id or all(set(each) <= set(own.shared.get(name, ())) for name, each in made.shared.items())


def _token(access: Access) -> dict[str, Any]:
    shared = {name: list(permissions) for name, permissions in access.shared.items()}
    return {**asdict(access), "roles": list(access.roles), "shared": shared}


ROUTES = (
    MemoryRoute("POST", "/items", "write", add_items, asks.NewItemsBody, writes=True),
    MemoryRoute("GET", "/items", "read", list_items, query=asks.ListQuery),
    MemoryRoute("DELETE", "/items", "write", delete_items, query=asks.ScopeQuery, writes=True),
    MemoryRoute("GET", "/items/{id}", "read", get_item),
    MemoryRoute("PATCH", "/items/{id}", "write", update_item, asks.UpdateBody, writes=True),
    MemoryRoute("DELETE", "/items/{id}", "write", delete_item, query=asks.DeleteQuery, writes=True),
    MemoryRoute("POST", "/items/{id}/supersede", "write", supersede_item, asks.SupersedeBody, writes=True),
    MemoryRoute("GET", "/items/{id}/history", "read", item_history),
    MemoryRoute("GET", "/items/{id}/worth", "read", item_worth, query=asks.WorthQuery),
    MemoryRoute("GET", "/quarantine", "admin", list_quarantined, query=asks.QuarantineQuery),
    MemoryRoute("POST", "/items/{id}/release", "admin", release_item, writes=True),
    MemoryRoute("POST", "/forget", "write", forget_items, asks.ForgetBody, writes=True),
    MemoryRoute("POST", "/search", "read", search, asks.SearchBody),
    MemoryRoute("POST", "/searches", "read", search_many, asks.SearchesBody),
    MemoryRoute("POST", "/episodes", "read", begin_episode, asks.EpisodeBody, writes=True),
    MemoryRoute("GET", "/episodes", "read", list_episodes, query=asks.EpisodesQuery),
    MemoryRoute("GET", "/episodes/{id}", "read", get_episode),
    MemoryRoute("GET", "/episodes/{id}/receipt", "read", get_receipt),
    MemoryRoute("POST", "/episodes/{id}/search", "read", episode_search, asks.EpisodeSearchBody),
    MemoryRoute("POST", "/episodes/{id}/act", "read", episode_act, asks.ActBody, writes=True),
    MemoryRoute("POST", "/episodes/{id}/step_reward", "reward", episode_step_reward, asks.StepRewardBody, writes=True),
    MemoryRoute("POST", "/episodes/{id}/reward", "reward", episode_reward, asks.EpisodeRewardBody, writes=True),
    MemoryRoute("POST", "/episodes/{id}/end", "read", episode_end, asks.EndBody, writes=True),
    MemoryRoute("POST", "/rewards", "reward", reward, asks.RewardBody, writes=True),
    MemoryRoute("GET", "/pending", "read", pending),
    MemoryRoute("GET", "/ledger", "read", ledger, query=asks.LedgerQuery),
    MemoryRoute("POST", "/snapshots", "admin", snapshot),
    MemoryRoute("GET", "/diff", "admin", diff, query=asks.DiffQuery),
    MemoryRoute("POST", "/rollbacks", "admin", rollback, asks.RollbackBody, writes=True),
    MemoryRoute("GET", "/export", "admin", export, query=asks.ScopeQuery),
    MemoryRoute("POST", "/erase", "admin", erase, asks.EraseBody, writes=True),
    MemoryRoute("GET", "/access", "read", who),
)  # fmt: skip


def list_audit(wanted: Wanted, file: Path) -> Any:
    """Who did what, oldest first, a page at a time."""
    # `next` counts what this token may see: a place in the file would tell how much others do.
    after, limit = wanted.query.after, wanted.query.limit
    seen = (entry for entry in entries(file) if may_see(wanted.access, entry))
    listed = list(islice(seen, after, after + limit))
    return {"entries": listed, "next": after + len(listed)}


def audit_routes(file: Path) -> tuple[MemoryRoute, ...]:
    return (MemoryRoute("GET", "/audit", "admin", partial(list_audit, file=file), query=asks.AuditQuery),)


def token_routes(tokens: Tokens) -> tuple[MemoryRoute, ...]:
    return (
        MemoryRoute("GET", "/tokens", "admin", partial(list_tokens, tokens=tokens)),
        MemoryRoute("POST", "/tokens", "admin", partial(add_token, tokens=tokens), asks.TokenBody),
        MemoryRoute("DELETE", "/tokens/{id}", "admin", partial(remove_token, tokens=tokens)),
    )  # fmt: skip


def memory_table(
    memories: OpenMemories, tokens: Tokens, metrics: Metrics, audit: Path, more: tuple[MemoryRoute, ...] = ()
) -> dict[tuple[str, str], RouteAnswers]:
    """(method, path) -> what answers it. audit: the file of the audit log. more: routes beside those of the verbs."""
    routes = (*ROUTES, *token_routes(tokens), *audit_routes(audit), *more)
    table: dict[tuple[str, str], RouteAnswers] = {
        (each.method, BASE + each.path): partial(_answer, each, memories) for each in routes
    }
    document = json.dumps(described(routes)).encode()
    table["GET", "/openapi.json"] = lambda call: ReadyAnswer(document)
    table["GET", "/health"] = lambda call: None
    table["GET", "/metrics"] = partial(_metrics, metrics)
    return table


def _metrics(metrics: Metrics, call: ServedCall) -> ReadyAnswer:
    if not call.access.operates:
        raise NotServed(
            "What the server counts is for whoever runs it.",
            "Use a token of the tenant '' with the role admin.",
            status=403,
            about="Authorization",
        )
    return ReadyAnswer(metrics.text().encode(), "text/plain; version=0.0.4; charset=utf-8")


def _answer(route: MemoryRoute, memories: OpenMemories, call: ServedCall) -> Any:
    access: Access = call.access
    access.require(route.role)
    if route.body is None and call.raw:
        raise NotServed(
            f"{route.method} {BASE}{route.path} takes no body.", "Send it without a body.", status=422, about="body"
        )
    body = _checked(route.body or asks.NoFields, call.body)
    query = _checked(route.query or asks.NoFields, dict(call.query))
    try:
        wanted = Wanted(memories.of(access), access, body, query, call.path)
        named = list(_named(body, query, call.path))
        if access.shared:
            named += [f"user_id={name}" for name in wanted.open.owners(named) if name != access.user_id]
        key = call.headers.get(_KEY)
        answer = route.answers(wanted) if key is None or not route.writes else _once(wanted, key, route, call)
        call.touched.extend(named)  # of what was carried out alone: what is refused may say any words
        if route.writes:
            call.touched.extend(_made(answer))
        return answer
    except KeepworthError as error:
        raise problem(error, {**call.query, **call.body, **call.path}, memories.paths()) from error


def _named(body: Any, query: Any, path: Mapping[str, str]) -> Iterator[str]:
    """Ids that a request names, and whose things it is about where it says so."""
    yield from path.values()
    for each in (body, query):
        yield from getattr(each, "ids", ())
        yield from (value for name in ("target", "episode") if (value := getattr(each, name, "")))
        yield from (f"{name}={value}" for name in ("user_id", "agent_id") if (value := getattr(each, name, "")))


def _made(answer: Any) -> Iterator[str]:
    """Ids of what was made for a request."""
    if isinstance(answer, Mapping):
        made = [answer, *(answer["items"] if isinstance(answer.get("items"), list) else [])]
        yield from (each["id"] for each in made if isinstance(each, Mapping) and isinstance(each.get("id"), str))


def _once(wanted: Wanted, key: str, route: MemoryRoute, call: ServedCall) -> Any:
    """Carried out unless it was already, under this key."""
    if not 0 < len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise _wrong(
            "Idempotency-Key",
            key,
            f"An idempotency key has 1 to {_LONGEST_KEY} printable ASCII characters.",
            "Send a UUID.",
        )
    access, store = wanted.access, wanted.open.memory.store
    name = _digest(access.user_id, access.agent_id, key)
    digest = _digest(route.method, route.path, *call.path.values(), *call.query, *call.query.values(), call.raw)
    with wanted.open.alone(name):
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
        with noting(store, name, digest):
            answer = route.answers(wanted)
        keep_answer(store, name, digest, json.dumps(answer))
        return answer


def _digest(*parts: str | bytes) -> str:
    """Unambiguous: each part is hashed before they are joined."""
    each = (hashlib.sha256(part if isinstance(part, bytes) else part.encode()).digest() for part in parts)
    return hashlib.sha256(b"".join(each)).hexdigest()


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
    """The refusal that an error of memory becomes. given: what the request said, by field."""
    if isinstance(error, NotServed):
        return error
    message = error.message
    for path in paths:  # where the file lies is nobody's business who calls over a network
        message = message.replace(path, "this memory")
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 422)
    if isinstance(error, errors.InvalidScope) and " is already " in message:
        status = 403
    about = _field(message, given)
    fix = error.fix or message.rpartition(": ")[2]  # one sentence of memory's says both
    return NotServed(message, fix, status=status, code=type(error).__name__, about=about, value=given.get(about))


def _field(message: str, given: Mapping[str, Any]) -> str:
    """Which field a message speaks of: one whose value it quotes, else the first that it names."""
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


def described(routes: tuple[MemoryRoute, ...]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    bodies = {each.body for each in routes if each.body is not None}
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
    for each in routes:
        paths.setdefault(BASE + each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "keepworth memory", "version": keepworth.__version__},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "Problem": problem_schema},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: MemoryRoute) -> dict[str, Any]:
    named = re.findall(r"{(\w+)}", route.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
    ]
    if route.query is not None:
        schema = route.query.model_json_schema()
        parameters += [
            {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": each}
            for name, each in schema["properties"].items()
        ]
    if route.writes:
        key = {"type": "string", "minLength": 1, "maxLength": _LONGEST_KEY, "pattern": "^[ -~]*$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    kind = "application/x-ndjson" if route.answers is export else "application/json"
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"Role: {route.role}.",
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {kind: {"schema": {}}}},
            "default": {"description": "Refused.", "content": content},
        },
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        required = bool(route.body.model_json_schema().get("required"))
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return operation
