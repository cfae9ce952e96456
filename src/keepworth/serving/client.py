"""A client for a served memory, with the methods of `keepworth.Memory`: the same arguments, results and errors.

client = Client("http://127.0.0.1:8000", token)
client.add("Ana is allergic to peanuts", user_id="ana")
with client.episode(user_id="ana", task="plan dinner") as episode:
    hits = episode.search("dietary limits", top_k=5)
    episode.reward(1.0)

`AsyncClient` has the same methods, awaitable. Every write carries an idempotency key, so that it can be sent again if no answer
came, and is still done only once.
"""

from __future__ import annotations

import inspect
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload
from urllib.parse import quote

import httpx

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.json_values import parse
from keepworth.memory import errors
from keepworth.memory.async_memory import AsyncMemory
from keepworth.memory.changing import ItemOptions
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem, check_keywords, unknown_option
from keepworth.memory.evaluations import EPISODE
from keepworth.memory.event_loop import warn_in_event_loop
from keepworth.memory.item import Item, LeftOut, Provenance, Scope
from keepworth.memory.memory import Memory
from keepworth.memory.operations import checked_reward
from keepworth.memory.telemetry import headers_of_trace, trace_operations
from keepworth.records.episode import Episode
from keepworth.serving import wire
from keepworth.serving.verb import Verb
from keepworth.serving.verbs import MOST, VERBS, add_items, get_receipt

Kind = TypeVar("Kind")
P = ParamSpec("P")
_BASE = "/v1/memory"
RETRIES = 3
PAUSE = 0.2
"""Seconds before a request is sent again the first time; they double each time."""
AGAIN = (429, 502, 503, 504)


class ServerProblem(MemoryProblem):
    """The server could not be reached, refused the token, or did not answer as a memory does. `status` is the HTTP status, or 0
    if there was no answer."""

    def __init__(self, message: str, fix: str = "", *, status: int = 0) -> None:
        super().__init__(message, fix)
        self.status = status


_VERBS = {verb.original: verb for verb in VERBS if verb.of} | {Memory.add_many: add_items}


def _served(method: Callable[Concatenate[Any, P], Kind]) -> Callable[Concatenate[Any, P], Kind]:
    """Make a method that sends a call, with the arguments, docstring and result of a method of `Memory` or `LiveEpisode`."""
    verb, signature = _VERBS[method], inspect.signature(method)
    names, free = [], False
    for parameter in list(signature.parameters.values())[1:]:
        free |= parameter.kind is parameter.VAR_KEYWORD
        names += [parameter.name] if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) else []

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Kind:
        for name in options:
            if name not in names and not free:
                raise unknown_option(method.__qualname__, name, names)
        given = dict(signature.bind(self, *arguments, **options).arguments)
        given.pop("self")
        given |= given.pop("options", {})
        if "id" not in names and verb.in_path:
            given["id"] = self.id
        answer: Kind = wire.read(wire.result_of(method), self._send(verb, given))
        return answer

    return call


def _like(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., Kind]], Callable[Concatenate[Any, P], Kind]]:
    """Give a method the signature of a method of `Memory`, for editors and type checkers."""

    def signed(of: Callable[..., Kind]) -> Callable[Concatenate[Any, P], Kind]:
        of.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return of

    return signed


@trace_operations
@check_keywords
class Client:
    """The methods of `Memory`, over HTTP. Arguments cannot be functions, such as where=<function>; all else is as in `Memory`.

    Args:
        url: The server's address, with or without /v1.
        token: The one that the server printed, or one that `keepworth memory token add` made.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, url: str, token: str = "", *, timeout: float = 30.0) -> None:
        self._http = httpx.Client(**_settings(url, token, timeout))

    def _send(self, verb: Verb, given: dict[str, Any]) -> Any:
        """Call a verb and return its result as JSON holds it. A call that may be repeated is sent again if no answer came."""
        warn_in_event_loop("Client")
        given = {name: value for name, value in given.items() if not isinstance(value, LeftOut)}
        path = _BASE + verb.path.format(**{name: _segment(given.pop(name)) for name in verb.in_path})
        headers = headers_of_trace()
        if verb.writes:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        query, content = None if verb.in_body else _query(**given), None
        if verb.in_body and verb.model.model_fields:
            headers["Content-Type"] = "application/json"
            content = _encoded({name: _sent(name, value) for name, value in given.items()})
        request = self._http.build_request(verb.method, path, params=query, content=content, headers=headers)
        again = RETRIES if verb.writes or verb.method == "GET" else 0
        for pause in (*(PAUSE * 2**number for number in range(again)), None):
            try:
                response = self._http.send(request)
            except httpx.TransportError as error:
                if pause is None:
                    raise ServerProblem(
                        f"{self._http.base_url} gave no answer ({type(error).__name__}: {error}).",
                        "Is `keepworth serve --memory` running there?",
                    ) from error
            else:
                if pause is None or response.status_code not in AGAIN:
                    answer = _answer(response)
                    return answer[verb.key] if verb.key else answer
            time.sleep(pause)
        raise AssertionError

    @property
    def _span_attributes(self) -> dict[str, Any]:
        """What the spans of this client say of its server."""
        url = self._http.base_url
        port = url.port or (443 if url.scheme == "https" else 80)
        return {"gen_ai.provider.name": "keepworth", "server.address": url.host, "server.port": port}

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    get = _served(Memory.get)
    quarantined = _served(Memory.quarantined)
    release = _served(Memory.release)
    search = _served(Memory.search)
    history = _served(Memory.history)
    worth = _served(Memory.worth)
    ledger = _served(Memory.ledger)
    review = _served(Memory.review)
    settle = _served(Memory.settle)
    outcomes = _served(Memory.outcomes)
    promotion = _served(Memory.promotion)
    episodes = _served(Memory.episodes)
    reward = _served(Memory.reward)
    pending = _served(Memory.pending)
    episode_record = _served(Memory.episode_record)
    snapshot = _served(Memory.snapshot)
    rollback = _served(Memory.rollback)
    diff = _served(Memory.diff)
    add_many = _served(Memory.add_many)
    put = _served(Memory.put)
    update = _served(Memory.update)
    supersede = _served(Memory.supersede)
    delete = _served(Memory.delete)
    delete_all = _served(Memory.delete_all)
    forget = _served(Memory.forget)
    erase = _served(Memory.erase)

    @overload
    def add(self, content: str, *, infer: bool = False, **options: Unpack[ItemOptions]) -> Item: ...

    @overload
    def add(
        self, content: Sequence[Mapping[str, Any]], *, infer: bool = False, **options: Unpack[ItemOptions]
    ) -> list[Item]: ...

    def add(
        self, content: str | Sequence[Mapping[str, Any]], *, infer: bool = False, **options: Unpack[ItemOptions]
    ) -> Any:
        """Remember a text or messages, as `Memory.add` does.

        Args:
            content: A text, a message, or a list of messages with "role" and "content".
            infer: Whether the server's writer takes facts out of it.
            **options: Those of `Memory.add`, such as `user_id` and `metadata`.
        """
        if isinstance(content, Mapping):
            content = [content]
        fields = {"content": content, "infer": infer, **options}
        items = wire.read(list[Item], self._send(_VERBS[Memory.add], fields))
        return items[0] if isinstance(content, str) and not infer else items

    @_like(Memory.get_all)
    def get_all(self, *, limit: int = 100, after: str = "", **options: Any) -> list[Item]:
        """Return items as `Memory.get_all` does, in several requests if the server limits a page to fewer.

        Args:
            limit: The most items; a server's page holds fewer, so that several may be fetched.
            after: The id after which the list goes on; "" from the beginning.
            **options: The other filters of `Memory.get_all`.
        """
        items: list[Item] = []
        while True:
            size = min(limit - len(items), MOST)
            fields = {"limit": size, "after": after, **options}
            page = wire.read(list[Item], self._send(_VERBS[Memory.get_all], fields))
            items += page
            if len(items) >= limit or len(page) < size:
                return items
            after = page[-1].id

    @_like(Memory.episode)
    def episode(self, task: str = "", **options: Any) -> RemoteEpisode:
        """Begin an episode as `Memory.episode` does."""
        return RemoteEpisode(self, self._send(_VERBS[Memory.episode], {"task": task, **options}))

    def reopen(self, id: str) -> RemoteEpisode:
        """Continue an episode that was begun before. Whether there is one with this id is only checked by the next call."""
        return RemoteEpisode(self, {"id": id, "task": "", "number": -1, "scope": {}})

    def receipt(self, id: str) -> dict[str, Any]:
        """Return which items were recalled for a call through the gateway, which of them are in the bytes that went upstream, and
        their `text` there. `id` is the call's episode, which its answer names in the header `X-Keepworth-Episode`."""
        return dict(self._send(get_receipt, {"id": id}))


for _verb in VERBS:  # a verb without a line above is there as well; type checkers alone do not know it
    if _verb.original is not None and "." not in _verb.of and not hasattr(Client, _verb.of):
        setattr(Client, _verb.of, _served(_verb.original))


@trace_operations
@check_keywords
class RemoteEpisode:
    """The methods of `LiveEpisode`, for an episode of a served memory."""

    def __init__(self, client: Client, record: Mapping[str, Any]) -> None:
        self._client, self._send = client, client._send
        self.id = str(record["id"])
        self.task = str(record["task"])
        self.number = int(record["number"])
        self.scope = Scope(**record["scope"])

    @property
    def _span_attributes(self) -> dict[str, Any]:
        """What the spans of this episode say of its server, and the episode."""
        return {**self._client._span_attributes, EPISODE: self.id}

    search = _served(LiveEpisode.search)
    act = _served(LiveEpisode.act)
    step_reward = _served(LiveEpisode.step_reward)
    signal = _served(LiveEpisode.signal)
    reward = _served(LiveEpisode.reward)
    end = _served(LiveEpisode.end)

    def remember(self, text: str, **options: Unpack[ItemOptions]) -> Item:
        """Remember a text as `LiveEpisode.remember` does."""
        scope = {"user_id": self.scope.user, "agent_id": self.scope.agent, "session_id": self.scope.session}
        bounds = cast(ItemOptions, {name: value for name, value in scope.items() if value})
        item: Item = self._client.add(text, **ItemOptions(source="episode", episode=self.id) | bounds | options)
        return item

    add = remember

    def record(self) -> Episode:
        """Return the record of this episode, as `LiveEpisode.record` does."""
        return self._client.episode_record(self.id)

    def __enter__(self) -> RemoteEpisode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end("completed" if kind is None else f"stopped by {kind.__name__}")


class AsyncClient(AsyncMemory):
    """Every method of `Client`, awaitable, as in `AsyncMemory`; also `async with client.episode(...) as episode`."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 30.0) -> None:
        self.memory = Client(url, token, timeout=timeout)  # type: ignore[assignment]


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
    # The address of a gateway is often written with the /v1 that OpenAI's SDK needs.
    base = str(address).rstrip("/").removesuffix("/memory").removesuffix("/v1")
    # Requests to this machine must not go through a proxy from the environment.
    local = address.host in ("127.0.0.1", "localhost", "::1")
    return {"base_url": base, "headers": headers, "timeout": timeout, "trust_env": not local}


def _answer(response: httpx.Response) -> Any:
    """Return the JSON of a response. Raises the error that the memory raised on the server, or ServerProblem."""
    try:
        answer = parse(response.content)
    except ValueError:
        answer = None
    if response.is_success and answer is not None:
        return answer
    if not isinstance(answer, dict) or "code" not in answer:
        raise ServerProblem(
            f"{response.request.url} answered {response.status_code}, and not as a memory does.",
            "Is it the address of `keepworth serve --memory`?",
            status=response.status_code,
        )
    message, fix = str(answer.get("detail", "")), str(answer.get("fix", ""))
    kind = getattr(errors, str(answer["code"]), None)
    if isinstance(kind, type) and issubclass(kind, KeepworthError):
        if issubclass(kind, UnknownName):  # its constructor takes names, and not a message
            kind = errors.InvalidPolicy
        raise kind(message, "" if fix in message else fix)
    if answer["code"] == "UnprocessableEntity":  # refused by the server's check of fields, not by the memory
        raise InvalidFilter(message, fix)
    raise ServerProblem(message, fix, status=response.status_code)


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"what is sent is not valid Unicode ({error.reason}): decode it with errors='replace'; nothing was stored"
        ) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidText(f"what is sent must be plain data, of which JSON can be made: {error}") from error


def _sent(name: str, value: Any) -> Any:
    """Return an argument as plain data."""
    if name in ("texts", "queries"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise InvalidText(f"{name} are several, got {type(value).__name__}: give a list, or use the verb for one")
        return list(value)
    if name == "value":
        return checked_reward(value)
    if callable(value):
        raise InvalidFilter(
            f"{name}= is a function, and functions do not travel: use keepworth.Memory where the file is"
        )
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, Provenance):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return [_sent(name, part) for part in value]
    return value


def _query(**options: Any) -> dict[str, Any]:
    """Return options as parameters of a URL."""
    sent: dict[str, Any] = {}
    for name, value in options.items():
        plain = _sent(name, value)
        if isinstance(plain, dict):
            sent[name] = json.dumps(plain)
        elif isinstance(plain, list):
            sent[name] = ",".join(map(str, plain))
        elif isinstance(plain, (str, bool, int, float)):
            sent[name] = plain
        elif plain is not None:
            raise InvalidFilter(f"{name} cannot be {value!r:.40}: give text, a number or a list")
    return sent


def _segment(id: Any) -> str:
    """Return an id as one segment of a path. What can be no id, such as "" or 3, is sent as its repr, which names nothing."""
    named = id if isinstance(id, str) and id not in ("", ".", "..") else repr(id)
    return quote(named.replace("/", "\u2215"), safe="", errors="replace")
