"""The ASGI application: who may ask, how much, and what becomes of an answer that nobody waits for any more.

A request is refused by its head where it can be: before a byte of its body is read, the host, the page it comes from, the key and
the length it announces are checked. Computing happens in threads; a caller that hangs up takes its request along.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from keepworth.episodes.needs import needs_serve

from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from keepworth.episodes.errors import KeepworthError
from keepworth.serving.generation import ServedCall
from keepworth.serving.routes import RouteAnswers
from keepworth.serving.served_model import Client, NotServed, ServedModel

_LOG = logging.getLogger("keepworth.serving")
_OUR_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bytes. body: of one request; bodies: of all requests that are being answered."""

    body: int = 16 * 2**20
    bodies: int = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Keys:
    """What callers must send as a bearer token. control: for the routes in `controlled`, where it differs."""

    key: str | None = field(default=None, repr=False)
    control: str | None = field(default=None, repr=False)
    controlled: frozenset[str] = frozenset()

    def allows(self, path: str, authorization: str) -> bool:
        wanted = self.control if self.control is not None and path in self.controlled else self.key
        return wanted is None or hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {wanted}".encode())


def application(
    model: ServedModel,
    table: Mapping[tuple[str, str], RouteAnswers],
    keys: Keys,
    workers: Executor,
    limits: ServerLimits,
) -> Starlette:
    """table: (method, path) -> what answers it. workers: threads, one for each request that may be under way at once."""
    bodies = _Bodies(limits)

    def route(method: str, path: str, answers: RouteAnswers) -> Route:
        async def endpoint(request: Request) -> Response:
            async with bodies.read(request) as raw:
                return await _answered(request, raw, model, answers, workers)

        return Route(path, endpoint, methods=[method], include_in_schema=False)

    return Starlette(
        routes=[route(method, path, answers) for (method, path), answers in table.items()],
        middleware=[Middleware(_Door, keys=keys, limits=limits)],
        exception_handlers={HTTPException: _no_route, NotServed: _not_served, ClientDisconnect: _nobody_left},
    )


class _Door:
    """Refuses by the head alone."""

    def __init__(self, app: ASGIApp, keys: Keys, limits: ServerLimits) -> None:
        self.app, self.keys, self.limits = app, keys, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._check(scope["path"], Headers(scope=scope))
        except NotServed as error:
            await _refusal(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "").rsplit(":", 1)[0].lower()
        if host not in _OUR_HOSTS:
            raise NotServed(f"This server answers to 127.0.0.1 only, not to {host!r}.", status=403)
        # A page of another site may make a browser send requests here: without a body even unasked.
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin")
        ours = {f"http://{name}:{headers['host'].rsplit(':', 1)[-1]}" for name in _OUR_HOSTS}
        if site not in ("none", "same-origin") or (origin is not None and origin not in ours):
            raise NotServed("This server answers programs, not pages of other sites.", status=403)
        if not self.keys.allows(path, headers.get("authorization", "")):
            raise NotServed("The key is missing or wrong.", "Send it as: Authorization: Bearer KEY.", status=401)
        if "transfer-encoding" in headers and "content-length" in headers:
            raise NotServed("A body has one length: Transfer-Encoding and Content-Length contradict each other.")
        if int(headers.get("content-length", "0")) > self.limits.body:  # digits: h11 refused anything else
            raise _too_long(self.limits.body)


class _Bodies:
    """Reads bodies, as many as fit."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.bytes = 0

    @contextlib.asynccontextmanager
    async def read(self, request: Request) -> Any:
        """The body; its bytes count until the request is answered."""
        own = bytearray()
        try:
            async for part in request.stream():
                if len(own) + len(part) > self.limits.body:
                    raise _too_long(self.limits.body)
                if self.bytes + len(part) > self.limits.bodies:
                    raise NotServed("Too many bytes are being answered at once.", "Try again.", status=503)
                own += part
                self.bytes += len(part)
            yield bytes(own)
        finally:
            self.bytes -= len(own)


async def _answered(
    request: Request, raw: bytes, model: ServedModel, answers: RouteAnswers, workers: Executor
) -> Response:
    caller = Client()
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    query = dict(request.query_params)
    path = request.url.path
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(workers, lambda: _computed(model, answers, raw, kind, query, caller, path))
    left = asyncio.ensure_future(_left(request))
    try:
        both: set[asyncio.Future[Any]] = {work, left}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await loop.run_in_executor(None, model.leave, caller)
        return await work
    finally:
        left.cancel()


async def _left(request: Request) -> None:
    """Returns when the caller has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _computed(
    model: ServedModel,
    answers: RouteAnswers,
    raw: bytes,
    kind: str,
    query: Mapping[str, str],
    caller: Client,
    path: str,
) -> Response:
    """In a thread of its own: reading a large body takes a while, too."""
    try:
        answer = answers(model, ServedCall(_body(raw, kind), query, caller))
        if answer is None or isinstance(answer, str):
            return Response(answer, media_type="text/plain")
        return Response(json.dumps(answer, allow_nan=False), media_type="application/json")
    except NotServed as error:
        return _refusal(error)
    except (KeepworthError, ValueError) as error:
        return _refusal(NotServed(str(error)))
    except Exception as error:
        _LOG.exception("%s failed", path)
        return _refusal(NotServed(f"{type(error).__name__}: {error}", status=500))


def _body(raw: bytes, kind: str) -> dict[str, Any]:
    if not raw:
        return {}
    if kind != "application/json":
        raise NotServed("A body must be sent as application/json.", status=415)
    try:
        body = from_json(raw, cache_strings="none")  # unlike the standard library's, it bounds the depth
    except ValueError as error:
        raise NotServed(
            f"The body is not JSON that can be used: {error}.",
            "It must be UTF-8, nested at most 200 deep, without halves of surrogate pairs.",
        ) from error
    if not isinstance(body, dict):
        raise NotServed("A body must be a JSON object.")
    return body


def _too_long(limit: int) -> NotServed:
    return NotServed(f"A body may have up to {limit} bytes.", "Send fewer or shorter prompts at once.", status=413)


def _refusal(error: NotServed) -> Response:
    kind = HTTPStatus(error.status).phrase.replace(" ", "")
    body = {"error": {"message": str(error), "type": kind, "code": error.status}}
    headers = {"Connection": "close"} if error.hang_up else None
    return Response(json.dumps(body), error.status, headers, "application/json")


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _refusal(NotServed(f"There is no route {request.method} {request.url.path}.", status=status))


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, NotServed)
    return _refusal(error)


async def _nobody_left(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
