"""A memory that is served elsewhere, with the verbs of `keepworth.Memory`: the same arguments, the same answers, the same errors.

client = Client("http://127.0.0.1:8000", token)
client.add("Ana is allergic to peanuts", user_id="ana")
with client.episode(user_id="ana", task="plan dinner") as episode:
    hits = episode.search("dietary limits", top_k=5)
    episode.reward(1.0)

`AsyncClient` has the same verbs, awaitable. Every write has a key of its own, so that it may be sent again where no answer came,
and is done once.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from numbers import Real
from types import NoneType, TracebackType
from typing import Any, Generic, TypeVar, cast, overload
from urllib.parse import quote

import httpx

from keepworth.episodes.episode import Episode, episode_from_json
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.memory import errors
from keepworth.memory.errors import InvalidFilter, InvalidReward, InvalidText, MemoryProblem, check_keywords
from keepworth.memory.item import Item, Provenance, Scope
from keepworth.memory.operations import OperationOutcome
from keepworth.memory.policy.ledger import Balance
from keepworth.memory.search.search import Hits, Worth
from keepworth.memory.store.purge import Erased
from keepworth.memory.store.store import Difference, Revision
from keepworth.memory.store.undo import Rollback
from keepworth.serving import wire

Kind = TypeVar("Kind")
_BASE = "/v1/memory"
RETRIES = 3
PAUSE = 0.2
"""Seconds before a request is sent again; twice as many before the next time."""
AGAIN = (429, 502, 503, 504)


class ServerProblem(MemoryProblem):
    """The server could not be reached, refused the token, or answered something that is no answer of a memory. status: 0 where no
    answer came at all."""

    def __init__(self, message: str, fix: str = "", *, status: int = 0) -> None:
        super().__init__(message, fix)
        self.status = status


@dataclass(frozen=True, slots=True)
class RemoteCall(Generic[Kind]):
    """What is sent, and how the answer is read."""

    method: str
    path: str
    read: Callable[[Any], Kind]
    body: dict[str, Any] | None = None
    query: Mapping[str, Any] | None = None
    writes: bool = False
    key: str = field(default_factory=lambda: str(uuid.uuid4()))

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        headers = {"Idempotency-Key": self.key} if self.writes else {}
        content = None
        if self.body is not None:
            headers["Content-Type"] = "application/json"
            content = _encoded(self.body)
        return http.build_request(self.method, _BASE + self.path, params=self.query, content=content, headers=headers)

    @property
    def repeatable(self) -> bool:
        return self.writes or self.method == "GET"


@check_keywords
class Client:
    """url: of the server, as it says it at its start, with /v1 behind it or not. token: what it printed, or what
    `keepworth memory token add` made.

    timeout: seconds for one answer. What is not said here is as in `Memory`; functions, such as selector= or where=<function>,
    do not travel."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 30.0) -> None:
        self._http = httpx.Client(**_settings(url, token, timeout))

    def _send(self, call: RemoteCall[Kind]) -> Kind:
        pause = PAUSE
        for attempt in range(RETRIES + 1):
            try:
                response = self._http.send(call.request(self._http))
            except httpx.TransportError as error:
                if attempt == RETRIES or not call.repeatable:
                    raise _unreachable(str(self._http.base_url), error) from error
            else:
                if response.status_code not in AGAIN or attempt == RETRIES or not call.repeatable:
                    return call.read(_answer(response))
            time.sleep(pause)
            pause *= 2
        raise AssertionError

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading.

    def get(self, id: str) -> Item:
        """As `Memory.get`."""
        return self._send(RemoteCall("GET", f"/items/{_segment(id)}", wire.item_from))

    def get_all(self, *, kinds: Sequence[str] = (), limit: int = 100, after: str = "", **options: Any) -> list[Item]:
        """As `Memory.get_all`; more than a server gives at once come in several pages."""
        found: list[Item] = []
        while True:
            query = {"limit": min(limit - len(found), 1000), "after": after, **_query(kinds=kinds, **options)}
            page = self._send(RemoteCall("GET", "/items", _items, query=query))
            found += page
            if len(found) >= limit or len(page) < query["limit"]:
                return found
            after = page[-1].id

    def quarantined(self, *, limit: int = 100, after: str = "") -> list[Item]:
        """As `Memory.quarantined`; at most 1,000 at once. Needs the role admin."""
        query = {"limit": limit, "after": after}
        return self._send(RemoteCall("GET", "/quarantine", _items, query=query))

    def release(self, id: str) -> Item:
        """As `Memory.release`. Needs the role admin."""
        return self._send(RemoteCall("POST", f"/items/{_segment(id)}/release", wire.item_from, writes=True))

    def search(self, query: str, **options: Any) -> Hits:
        """As `Memory.search`."""
        return self._send(RemoteCall("POST", "/search", wire.hits_from, {"query": query, **_body(options)}))

    def search_many(self, queries: Sequence[str], **options: Any) -> list[Hits]:
        """As `Memory.search_many`."""
        if isinstance(queries, (str, bytes)) or not isinstance(queries, Iterable):
            raise InvalidText(f"search_many takes several queries, got {type(queries).__name__}: use search for one")
        body = {"queries": list(queries), **_body(options)}
        return self._send(
            RemoteCall("POST", "/searches", lambda found: [wire.hits_from(each) for each in found["results"]], body)
        )

    def history(self, id: str) -> list[Revision]:
        """As `Memory.history`."""
        return self._send(
            RemoteCall(
                "GET",
                f"/items/{_segment(id)}/history",
                lambda found: [wire.revision_from(each) for each in found["revisions"]],
            )
        )

    def worth(self, id: str, query: str) -> Worth:
        """As `Memory.worth`."""
        return self._send(RemoteCall("GET", f"/items/{_segment(id)}/worth", wire.worth_from, query={"query": query}))

    def ledger(self, *, items: Sequence[str] | None = None, **options: Any) -> Balance:
        """As `Memory.ledger`."""
        query = _query(**options) if items is None else _query(items=items, **options)
        return self._send(RemoteCall("GET", "/ledger", wire.balance_from, query=query))

    # Outcome.

    def episode(self, task: str = "", **options: Any) -> RemoteEpisode:
        """As `Memory.episode`."""
        body = {"task": task, **_body(options)}
        return self._send(RemoteCall("POST", "/episodes", lambda found: RemoteEpisode(self, found), body, writes=True))

    def reopen(self, id: str) -> RemoteEpisode:
        """An episode that was begun, to go on with. Whether there is one is seen at its next verb."""
        return RemoteEpisode(self, {"id": id, "task": "", "number": -1, "scope": {}})

    def episodes(self, **options: Any) -> list[str]:
        """As `Memory.episodes`, at most a thousand at a time."""
        return self._send(
            RemoteCall("GET", "/episodes", lambda found: list(found["episodes"]), query=_query(**options))
        )

    def reward(self, target: str, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """As `Memory.reward`."""
        body = {"target": target, "value": _number(value), "by": by, "source": source}
        return self._send(RemoteCall("POST", "/rewards", wire.outcome_from, body, writes=True))

    def receipt(self, id: str) -> dict[str, Any]:
        """Of a call through the gateway: which items were recalled, and which are in the bytes that went upstream. id: of its
        episode, the header `X-Keepworth-Episode` of its answer."""
        return self._send(RemoteCall("GET", f"/episodes/{_segment(id)}/receipt", dict))

    def pending(self) -> list[str]:
        """As `Memory.pending`."""
        return self._send(RemoteCall("GET", "/pending", lambda found: list(found["episodes"])))

    def episode_record(self, id: str) -> Episode:
        """As `Memory.episode_record`."""
        return self._send(RemoteCall("GET", f"/episodes/{_segment(id)}", episode_from_json))

    # Undo.

    def snapshot(self) -> str:
        """As `Memory.snapshot`."""
        return self._send(RemoteCall("POST", "/snapshots", lambda found: str(found["snapshot"])))

    def rollback(
        self, target: str = "", *, source: str = "", since: str = "", rewarder: str = "", entry: int = 0
    ) -> Rollback:
        """As `Memory.rollback`."""
        body = {"target": target, "source": source, "since": since, "rewarder": rewarder, "entry": entry}
        return self._send(RemoteCall("POST", "/rollbacks", wire.rollback_from, body, writes=True))

    def restore(self, snapshot: str) -> Rollback:
        """As `Memory.restore`."""
        return self.rollback(since=snapshot)

    def diff(self, one: str, other: str = "") -> list[Difference]:
        """As `Memory.diff`."""
        query = {"one": one, "other": other}
        return self._send(
            RemoteCall(
                "GET", "/diff", lambda found: [wire.difference_from(each) for each in found["differences"]], query=query
            )
        )

    # Writing.

    @overload
    def add(self, content: str, **options: Any) -> Item: ...

    @overload
    def add(self, content: Sequence[Mapping[str, Any]], **options: Any) -> list[Item]: ...

    def add(self, content: str | Sequence[Mapping[str, Any]], *, infer: bool = False, **options: Any) -> Any:
        """As `Memory.add`."""
        single = isinstance(content, str) and not infer
        if isinstance(content, Mapping):
            content = [content]
        body = {"content": content, "infer": infer, **_body(options)}

        def read(answer: Any) -> Any:
            items = _items(answer)
            return items[0] if single else items

        return self._send(RemoteCall("POST", "/items", read, body, writes=True))

    def add_many(self, texts: Sequence[str], **options: Any) -> list[Item]:
        """As `Memory.add_many`, at most a thousand at a time."""
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InvalidText(
                f"add_many takes several texts, got {type(texts).__name__}: give a list, or use add for one"
            )
        body = {"texts": list(texts), **_body(options)}
        return self._send(RemoteCall("POST", "/items", _items, body, writes=True))

    def update(self, id: str, text: str | None = None, **options: Any) -> Item:
        """As `Memory.update`."""
        body = {"text": text, **_body(options)}
        return self._send(RemoteCall("PATCH", f"/items/{_segment(id)}", wire.item_from, body, writes=True))

    def supersede(self, id: str, text: str, **options: Any) -> Item:
        """As `Memory.supersede`."""
        body = {"text": text, **_body(options)}
        return self._send(RemoteCall("POST", f"/items/{_segment(id)}/supersede", wire.item_from, body, writes=True))

    def delete(self, id: str, *, episode: str = "") -> None:
        """As `Memory.delete`."""
        query = {"episode": episode}
        return self._send(RemoteCall("DELETE", f"/items/{_segment(id)}", _nothing, query=query, writes=True))

    def delete_all(self, **options: Any) -> int:
        """As `Memory.delete_all`."""
        query = _query(**options)
        return self._send(RemoteCall("DELETE", "/items", lambda found: int(found["deleted"]), query=query, writes=True))

    def forget(self, *ids: str, purge_history: bool = False) -> Erased | None:
        """As `Memory.forget`."""
        if not ids:
            raise InvalidFilter("forget was given nothing to forget: pass the ids of items")

        def read(answer: Any) -> Erased | None:
            return None if answer["erased"] is None else wire.erased_from(answer["erased"])

        body = {"ids": list(ids), "purge_history": purge_history}
        return self._send(RemoteCall("POST", "/forget", read, body, writes=True))

    def erase(self, **options: Any) -> Erased:
        """As `Memory.erase`."""
        return self._send(RemoteCall("POST", "/erase", wire.erased_from, _body(options), writes=True))


@check_keywords
class RemoteEpisode:
    """The verbs of `LiveEpisode`, of an episode that is served elsewhere."""

    def __init__(self, client: Client, record: Mapping[str, Any]) -> None:
        self._client = client
        self.id = str(record["id"])
        self.task = str(record["task"])
        self.number = int(record["number"])
        self.scope = Scope(**record["scope"])

    def search(self, query: str = "", **options: Any) -> Hits:
        """As `LiveEpisode.search`."""
        if "episode" in options or "step" in options:
            raise InvalidFilter(
                f"a search of episode {self.id!r} says itself which episode and step it is: leave that out"
            )
        return self._post("search", wire.hits_from, {"query": query, **_body(options)}, writes=False)

    def act(self, action: str) -> None:
        """As `LiveEpisode.act`."""
        return self._post("act", _nothing, {"action": action})

    def step_reward(self, value: float) -> None:
        """As `LiveEpisode.step_reward`."""
        return self._post("step_reward", _nothing, {"value": _number(value)})

    def remember(self, text: str, **options: Any) -> Item:
        """As `LiveEpisode.remember`."""
        scope = {"user_id": self.scope.user, "agent_id": self.scope.agent, "session_id": self.scope.session}
        bounds = {name: value for name, value in scope.items() if value}
        return self._client.add(text, **{"source": "episode", "episode": self.id, **bounds, **options})

    add = remember

    def reward(self, value: float, *, by: str | None = None, source: str = "user") -> OperationOutcome:
        """As `LiveEpisode.reward`."""
        return self._post("reward", wire.outcome_from, {"value": _number(value), "by": by, "source": source})

    def end(self, outcome: str = "") -> None:
        """As `LiveEpisode.end`."""
        return self._post("end", _nothing, {"outcome": outcome})

    def record(self) -> Episode:
        """As `LiveEpisode.record`."""
        return self._client.episode_record(self.id)

    def __enter__(self) -> RemoteEpisode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end("completed" if kind is None else f"stopped by {kind.__name__}")

    def _post(self, verb: str, read: Callable[[Any], Kind], body: dict[str, Any], *, writes: bool = True) -> Kind:
        return self._client._send(
            RemoteCall("POST", f"/episodes/{_segment(self.id)}/{verb}", read, body, writes=writes)
        )


class AsyncClient:
    """Every verb of `Client`, awaitable. `async with client.episode(...) as episode` as in `AsyncMemory`."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 30.0) -> None:
        self._http = httpx.AsyncClient(**_settings(url, token, timeout))
        self._verbs = _Verbs()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in _CLIENT_VERBS:
            raise AttributeError(
                f"AsyncClient has no {name!r}: it has the verbs of Client ({', '.join(_CLIENT_VERBS)})"
            )
        return self._awaitable(getattr(self._verbs, name))

    @asynccontextmanager
    async def episode(self, task: str = "", **options: Any) -> AsyncIterator[AsyncRemoteEpisode]:
        """As `Memory.episode`."""
        live = await self._perform(cast(Any, self._verbs.episode(task, **options)))
        episode = AsyncRemoteEpisode(self, live)
        try:
            yield episode
        except BaseException as error:
            await episode.end(f"stopped by {type(error).__name__}")
            raise
        await episode.end("completed")

    async def get_all(self, *, limit: int = 100, after: str = "", **options: Any) -> list[Item]:
        """As `Memory.get_all`."""
        found: list[Item] = []
        while True:
            size = min(limit - len(found), 1000)
            query = {"limit": size, "after": after, **_query(**options)}
            page = await self._perform(RemoteCall("GET", "/items", _items, query=query))
            found += page
            if len(found) >= limit or len(page) < size:
                return found
            after = page[-1].id

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _awaitable(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*arguments: Any, **options: Any) -> Any:
            return await self._perform(verb(*arguments, **options))

        awaited.__name__, awaited.__doc__ = verb.__name__, verb.__doc__
        return awaited

    async def _perform(self, call: RemoteCall[Kind]) -> Kind:
        pause = PAUSE
        for attempt in range(RETRIES + 1):
            try:
                response = await self._http.send(call.request(self._http))
            except httpx.TransportError as error:
                if attempt == RETRIES or not call.repeatable:
                    raise _unreachable(str(self._http.base_url), error) from error
            else:
                if response.status_code not in AGAIN or attempt == RETRIES or not call.repeatable:
                    return call.read(_answer(response))
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError


class AsyncRemoteEpisode:
    """Every verb of `RemoteEpisode`, awaitable. What is no verb, such as `id`, is read as it is."""

    def __init__(self, client: AsyncClient, live: RemoteEpisode) -> None:
        self._client, self._live = client, live

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._live, name)
        return self._client._awaitable(there) if callable(there) else there


class _Verbs(Client):
    """Says what would be sent, and sends nothing."""

    def __init__(self) -> None:
        pass

    def _send(self, call: RemoteCall[Kind]) -> Kind:
        return cast(Kind, call)


_CLIENT_VERBS = (
    *(
        "get",
        "search",
        "search_many",
        "history",
        "worth",
        "ledger",
        "reopen",
        "episodes",
        "reward",
        "pending",
        "receipt",
    ),
    *("episode_record", "snapshot", "rollback", "restore", "diff", "add", "add_many", "update", "supersede", "delete"),
    *("quarantined", "release"),
    *("delete_all", "forget", "erase"),
)


def _settings(url: str, token: str, timeout: float) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        address = httpx.URL(url)
        if address.scheme not in ("http", "https") or not address.host:
            raise ValueError
    except (TypeError, ValueError, httpx.InvalidURL) as error:
        raise ServerProblem(
            f"{url!r:.80} is no address of a server.", "Give it as it was printed, such as http://127.0.0.1:8000."
        ) from error
    # An agent that uses the gateway knows the address with what OpenAI's SDK wants behind it.
    base = str(address).rstrip("/").removesuffix("/memory").removesuffix("/v1")
    # Where the server is on this machine no proxy of the environment should see what is remembered.
    local = address.host in ("127.0.0.1", "localhost", "::1")
    return {"base_url": base, "headers": headers, "timeout": timeout, "trust_env": not local}


def _answer(response: httpx.Response) -> Any:
    """What the server said. Raises the error that memory raised there, or ServerProblem."""
    try:
        said = response.json()
    except ValueError:
        said = None
    if response.is_success and said is not None:
        return said
    if not isinstance(said, dict) or "code" not in said:
        raise ServerProblem(
            f"{response.request.url} answered {response.status_code}, and not as a memory does.",
            "Is it the address of `keepworth serve --memory`?",
            status=response.status_code,
        )
    message, fix = str(said.get("detail", "")), str(said.get("fix", ""))
    kind = getattr(errors, str(said["code"]), None)
    if isinstance(kind, type) and issubclass(kind, KeepworthError) and kind is not errors.CannotEvaluate:
        if issubclass(kind, UnknownName):  # which is made of names, and not of a message
            kind = errors.InvalidPolicy
        raise kind(message, "" if fix in message else fix)
    if said["code"] == "UnprocessableEntity":  # what the models of requests refuse is of no class of memory's
        raise InvalidFilter(message, fix)
    raise ServerProblem(message, fix, status=response.status_code)


def _unreachable(url: str, error: Exception) -> ServerProblem:
    return ServerProblem(
        f"{url} gave no answer ({type(error).__name__}: {error}).", "Is `keepworth serve --memory` running there?"
    )


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"what is sent is not valid Unicode ({error.reason}): decode it with errors='replace'; nothing was stored"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidText(f"what is sent must be plain data, of which JSON can be made: {error}") from error


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _sent(name, value) for name, value in options.items()}


def _sent(name: str, value: Any) -> Any:
    if callable(value):
        raise InvalidFilter(
            f"{name}= is a function, and functions do not travel: use keepworth.Memory where the file is"
        )
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Provenance):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return [_sent(name, each) for each in value]
    return value


def _query(**options: Any) -> dict[str, Any]:
    """As text of a URL."""
    sent: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            sent[name] = json.dumps(dict(value))
            continue
        if not isinstance(value, (str, bool, int, float, list, tuple, NoneType)):
            raise InvalidFilter(f"{name} cannot be {value!r:.40}: give text, a number or a list")
        sent[name] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return sent


def _number(value: Any) -> Any:
    if isinstance(value, Real) and not isinstance(value, bool) and not math.isfinite(value):
        raise InvalidReward(f"a reward must be a finite number, got {value!r}: give 1 for success and 0 for failure")
    return value


def _segment(id: Any) -> str:
    """As one part of a path. What is no text cannot name anything; nor can "", which would name the list, or what has slashes."""
    named = id if isinstance(id, str) and id not in ("", ".", "..") else repr(id)
    return quote(named.replace("/", "\u2215"), safe="", errors="replace")


def _items(found: Any) -> list[Item]:
    return [wire.item_from(each) for each in found["items"]]


def _nothing(found: Any) -> None:
    return None
