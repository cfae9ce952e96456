"""The ASGI application: it checks who may send a request and how large it may be, and computes the answer in a thread.

Before a byte of the body is read, the headers are checked: the host, the page that the request comes from, the token, and the
announced length.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar

from keepworth.base.needs import needs_serve

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keepworth.base.errors import KeepworthError, nearest
from keepworth.memory.telemetry import take_over
from keepworth.serving.calls import (
    ErrorShape,
    NotServed,
    ReadyAnswer,
    RouteAnswers,
    ServedCall,
    brief,
    json_object,
)
from keepworth.serving.http_server import CROWDED, MOST

_LOG = logging.getLogger("keepworth.serving")
BODY_SECONDS = 60.0
"""Seconds within which the body of a request must arrive."""
MOST_HEADERS = 200
"""The most headers of a request."""
WAIT_SECONDS = 120.0
"""The most seconds that a request waits, before its body is read, until others are answered and there is room for it."""
RETRY_AFTER = 5
"""The seconds after which a caller that was refused for lack of room should ask again."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")

Kind = TypeVar("Kind")
HUNG_UP = 499
"""The status of a request whose caller has hung up, so that nobody reads the answer. It is none of HTTP's own."""
Guard = Callable[[str, str], Any]
"""A function from a path and an Authorization header to what the token allows. Raises NotServed if it allows nothing."""
Streamed = Callable[[ServedCall, Request], Awaitable[Response]]
"""Answers in the event loop with a response of its own, such as one that streams. Body and query are not parsed."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits in bytes. What has no room waits. One token may take half of what the others leave free, and always one body.

    Args:
        body: The body of one request.
        bodies: The bodies of all requests that are being answered.
        call: The body of one call that goes to an upstream. Providers take pictures of so many bytes.
    """

    body: int = 16 * 2**20
    bodies: int = 128 * 2**20
    call: int = 50 * 2**20


def in_thread(workers: Executor, function: Callable[..., Kind], *arguments: Any) -> asyncio.Future[Kind]:
    """Call a function in a thread, where the trace is current in which the caller is.

    Args:
        workers: The threads.
        function: What is called there.
        *arguments: The arguments of the call.
    """
    return asyncio.get_running_loop().run_in_executor(workers, partial(copy_context().run, function), *arguments)


def application(
    table: Mapping[tuple[str, str], RouteAnswers],
    guard: Guard,
    workers: Executor,
    limits: ServerLimits,
    *,
    unparsed: Mapping[tuple[str, str], RouteAnswers] = MappingProxyType({}),
    streamed: Mapping[tuple[str, str], Streamed] = MappingProxyType({}),
    mounted: Mapping[str, ASGIApp] = MappingProxyType({}),
    error_shapes: Mapping[str, ErrorShape] = MappingProxyType({}),
    hints: Mapping[str, str] = MappingProxyType({}),
    hosts: tuple[str, ...] | None = LOCAL_HOSTS,
    public: Collection[str] = (),
) -> Starlette:
    """Make the application.

    Args:
        table: By method and path, functions that answer in a thread of `workers`.
        guard: Checks the token of a request.
        workers: The threads in which answers are computed.
        limits: How large a body may be.
        unparsed: The same for functions that read the body themselves.
        streamed: By method and path, functions that answer in the event loop, to calls of up to `limits.call` bytes.
        mounted: Applications, by path.
        error_shapes: The form of error bodies, by the beginning of a path; others are problem details (RFC 9457).
        hints: What to do about a missing route, by the beginning of its path.
        hosts: Names in the Host header that are accepted; None for all, if others than this machine reach the server.
        public: Paths that may be read without a token.
    """
    bodies = _Bodies(limits)
    errors = _Errors(error_shapes, hints)

    def route(method: str, path: str, answer: Streamed, most: int) -> Route:
        async def endpoint(request: Request) -> Response:
            async with bodies.read(request, most) as raw:
                access = request.scope.get("access")
                return await answer(ServedCall({}, {}, request.path_params, access, raw, request.headers), request)

        return Route(path, endpoint, methods=[method], include_in_schema=False)

    def compute(answers: RouteAnswers, parse: Callable[[ServedCall], dict[str, Any]]) -> Streamed:
        def computed(call: ServedCall, request: Request) -> Response:
            """Parse the request and answer, both in a thread, as parsing a large body takes a while too."""
            try:
                return _response(answers(replace(call, body=parse(call), query=dict(request.query_params))))
            except Exception as error:
                return errors.of(error, request.url.path)

        return lambda call, request: in_thread(workers, computed, call, request)

    computing = [(place, compute(answers, _body)) for place, answers in table.items()]
    computing += [(place, compute(answers, lambda call: {})) for place, answers in unparsed.items()]
    calls = [route(method, path, answers, limits.call) for (method, path), answers in streamed.items()]

    def most_of(path: str) -> int:
        return limits.call if any(call.path_regex.match(path) for call in calls) else limits.body

    return Starlette(
        routes=[
            *(route(method, path, answers, limits.body) for (method, path), answers in computing),
            *calls,
            *(Route(path, _Mounted(app, bodies), include_in_schema=False) for path, app in mounted.items()),
        ],
        middleware=[Middleware(_Door, guard, most_of, hosts, errors, frozenset(public))],
        exception_handlers={
            HTTPException: errors.no_route,
            NotServed: errors.not_served,
            ClientDisconnect: _nobody_left,
        },
    )


@dataclass(slots=True)
class _Door:
    """Middleware that refuses requests by their headers alone."""

    app: ASGIApp
    guard: Guard
    most_of: Callable[[str], int]
    hosts: tuple[str, ...] | None
    errors: _Errors
    public: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            if scope.get(CROWDED):
                raise NotServed(
                    f"There are more than {MOST} connections.", "Close some, or try again.", status=503, hang_up=True
                )
            scope["access"] = self._check(scope["method"], scope["path"], Headers(scope=scope))
        except NotServed as error:
            await self.errors.refusal(error, scope["path"])(scope, receive, send)
            return
        started = False

        async def pass_on(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            with take_over(Headers(scope=scope)):
                await self.app(scope, receive, pass_on)
        except asyncio.CancelledError:  # the server closes, and its patience is over
            if not started:
                closing = NotServed("The server is closing.", "Ask again once it runs.", status=503, hang_up=True)
                await self.errors.refusal(closing, scope["path"])(scope, receive, send)

    def _check(self, method: str, path: str, headers: Headers) -> Any:
        if len(headers) > MOST_HEADERS:
            raise NotServed(
                f"The request has {len(headers):,} headers, the limit is {MOST_HEADERS}.",
                "Leave out those that the server does not need.",
                status=431,
                hang_up=True,
            )
        host = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if self.hosts is not None and host not in self.hosts:
            raise NotServed(
                f"This server answers to 127.0.0.1 only, not to {host!r}.",
                "Call it as 127.0.0.1, or start it with --host.",
                status=403,
                about="Host",
                value=host,
            )
        empty = "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"
        if path in self.public and method in ("GET", "HEAD") and empty:
            return None
        # A page of another site can make a browser send requests here.
        site = headers.get("sec-fetch-site", "none")
        origin = headers.get("origin")
        ours = {f"http://{name}:{headers['host'].rsplit(':', 1)[-1]}" for name in LOCAL_HOSTS if "host" in headers}
        # The server's own page, under the name by which it is called.
        ours |= {f"{scheme}://{headers['host']}" for scheme in ("http", "https") if "host" in headers}
        if site not in ("none", "same-origin") or (origin is not None and origin not in ours):
            raise NotServed(
                "This server answers programs, not pages of other sites.",
                "Call it from a program, without the header Origin.",
                status=403,
                about="Origin",
                value=origin,
            )
        # Anthropic's clients send their key in a header of its own.
        key = headers.get("x-api-key")
        access = self.guard(path, headers.get("authorization") or (f"Bearer {key}" if key else ""))
        if "transfer-encoding" in headers and "content-length" in headers:
            raise NotServed(
                "A body has one length: Transfer-Encoding and Content-Length contradict each other.",
                "Send one of the two headers.",
                about="Content-Length",
            )
        length = int(headers.get("content-length", "0"))  # digits: h11 refused anything else
        if length > (most := self.most_of(path)):
            raise _too_long(most)
        return access


@dataclass(slots=True)
class _Mounted:
    """Wraps an application so that it gets whole bodies, which count towards the limits. It is an object because Starlette would
    call a function with a request."""

    app: ASGIApp
    bodies: _Bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.bodies.read(Request(scope, receive), self.bodies.limits.body) as raw:
            await self.app(scope, _with_body(raw, receive), send)


def _with_body(raw: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read already, and then what comes."""
    waiting = [raw]

    async def received() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return received


class _Bodies:
    """Reads the bodies of requests. One for which the limits leave no room waits until others are answered."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.bytes = 0
        self.taken: Counter[str | None] = Counter()  # bytes by token
        self._waiting: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def read(self, request: Request, most: int) -> Any:
        """Read a body of at most `most` bytes, which count until the `async with` block ends: then the request is answered.

        Its place is taken before it is read: by its announced length, or `most` where none is announced. So no two bodies that
        were read in part wait for each other."""
        body, token = bytearray(), getattr(request.scope.get("access"), "id", None)
        size = most if "transfer-encoding" in request.headers else int(request.headers.get("content-length", "0"))
        await self._take(size, most, token)
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    async for part in request.stream():
                        if len(body) + len(part) > most:
                            raise _too_long(most)
                        body += part
            except TimeoutError:
                message = f"The request's body did not arrive within {BODY_SECONDS:g} s."
                raise NotServed(message, "Send it again.", status=408, hang_up=True) from None
            self._free(size - len(body), token)
            size = len(body)
            yield bytes(body)
        finally:
            self._free(size, token)

    async def _take(self, size: int, most: int, token: str | None) -> None:
        """Count `size` bytes, once there is room for them. Raises NotServed if there is none in time."""
        over = asyncio.get_running_loop().time() + WAIT_SECONDS
        while whose := self._find_excess(size, most, token):
            self._waiting.append(freed := asyncio.get_running_loop().create_future())
            try:
                async with asyncio.timeout_at(over):
                    await freed
            except TimeoutError:
                message = f"Too many bytes {whose}are being answered at once."
                raise NotServed(message, "Try again.", status=503, hang_up=True) from None
        self.bytes += size
        self.taken[token] += size

    def _find_excess(self, size: int, most: int, token: str | None) -> str:
        """Return "" if there is room for `size` bytes, else of whom there are too many, for a message."""
        if size and self.bytes and self.bytes + size > self.limits.bodies:
            return "of all callers "
        # A token may hold half of what the others leave free, so that nobody can take everything, and always one body.
        others = self.bytes - self.taken[token]
        if token is not None and self.taken[token] + size > max(most, (self.limits.bodies - others) // 2):
            return "of this token "
        return ""

    def _free(self, size: int, token: str | None) -> None:
        """Give back `size` bytes, and let those that wait look again."""
        self.bytes -= size
        self.taken[token] -= size
        self.taken += Counter()  # drops those that hold nothing
        for freed in self._waiting if size else ():
            if not freed.done():
                freed.set_result(None)
        if size:
            self._waiting.clear()


def _response(answer: Any) -> Response:
    if isinstance(answer, ReadyAnswer):
        return Response(answer.content, answer.status, dict(answer.headers), answer.kind)
    if answer is None or isinstance(answer, str):
        return Response(answer, media_type="text/plain")
    return Response(json.dumps(answer, allow_nan=False), media_type="application/json")


def _body(call: ServedCall) -> dict[str, Any]:
    kind = call.headers.get("content-type", "").split(";")[0].strip().lower()
    if not call.raw:
        return {}
    if kind != "application/json":
        raise NotServed(
            f"A body must be sent as application/json, not as {kind or 'nothing said'}.",
            "Send the header Content-Type: application/json.",
            status=415,
            about="Content-Type",
            value=kind,
        )
    return json_object(call.raw)


def _too_long(limit: int) -> NotServed:
    return NotServed(f"A body may have up to {limit} bytes.", "Send less at once.", status=413)


@dataclass(frozen=True, slots=True)
class _Errors:
    """Turns errors into responses. `shapes` and `hints` are the arguments `error_shapes` and `hints` of `application`."""

    shapes: Mapping[str, ErrorShape]
    hints: Mapping[str, str]

    def of(self, error: Exception, path: str) -> Response:
        """Return the response to any error that was raised while a request was answered."""
        if isinstance(error, NotServed):
            return self.refusal(error, path)
        if isinstance(error, (KeepworthError, ValueError)):
            message, fix = getattr(error, "message", str(error)), getattr(error, "fix", "")
            return self.refusal(NotServed(message, fix), path)
        _LOG.exception("%s failed", path, exc_info=error)
        # The message of an unexpected error may quote what another caller wrote, and is not shown.
        return self.refusal(NotServed("Something broke inside the server.", "Its log says what.", status=500), path)

    def refusal(self, error: NotServed, path: str) -> Response:
        phrase = HTTPStatus(error.status).phrase
        headers = {"Connection": "close"} if error.hang_up else {}
        if error.status == 503:
            headers["Retry-After"] = str(RETRY_AFTER)
        shape = _by_path(self.shapes, path)
        if shape is not None:
            body = error.shaped(shape, phrase.replace(" ", ""))
            return Response(json.dumps(body), error.status, headers, "application/json")
        code = error.code or phrase.title().replace(" ", "")
        _, says, tail = error.message.rpartition(": ")
        problem = {
            "type": f"urn:keepworth:{code}",
            "title": phrase,
            "status": error.status,
            "detail": error.message,
            "code": code,
            "field": error.about,
            "value": "" if error.value is None else brief(error.value),
            "fix": error.fix or (tail if says else "The log of the server says more."),
        }
        return Response(json.dumps(problem), error.status, headers, "application/problem+json")

    async def no_route(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        path = request.url.path
        fix = _by_path(self.hints, path) or ("" if _by_path(self.shapes, path) else self._instead(request))
        answer = self.refusal(NotServed(f"There is no route {request.method} {path}.", fix, status=status), path)
        if status == 405:
            answer.headers["Allow"] = ", ".join(_methods(request))
        return answer

    def _instead(self, request: Request) -> str:
        """Suggest what the caller of a missing route may have meant."""
        path, here = request.url.path, [method for method in _methods(request) if method != "HEAD"]
        if here:
            return f"{path} takes {' and '.join(here)}."
        near = nearest(path, {route.path for route in request.app.routes if isinstance(route, Route)})
        return f"{f'Did you mean {near}? ' if near else ''}GET /openapi.json lists the routes."

    async def not_served(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, NotServed)
        if error.status == HUNG_UP:
            return await _nobody_left(request, error)
        return self.refusal(error, request.url.path)


def _methods(request: Request) -> list[str]:
    """Return the methods that the path of a request has."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    return sorted({m for route in routes if route.path_regex.match(request.url.path) for m in route.methods or ()})


def _by_path(table: Mapping[str, Any], path: str) -> Any:
    return next((value for beginning, value in table.items() if path.startswith(beginning)), None)


async def hung_up(request: Request) -> None:
    """Wait until the caller has hung up. The body has to be read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _nobody_left(request: Request, error: Exception) -> Response:
    return Response(status_code=HUNG_UP)
