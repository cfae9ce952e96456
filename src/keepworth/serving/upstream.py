"""Sends a gateway's calls to an endpoint with OpenAI's or Anthropic's interface. Bodies pass unchanged in both directions."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from keepworth.base.errors import KeepworthError
from keepworth.serving.call_formats import EVENTS
from keepworth.serving.calls import NotServed

LONGEST_ANSWER = 64 * 2**20
"""The most bytes of an answer that is not a stream of events."""

_ASKED = (
    *("content-type", "accept", "user-agent", "openai-organization", "openai-project", "openai-beta"),
    *("idempotency-key", "x-request-id", "anthropic-version", "anthropic-beta", "traceparent", "tracestate"),
)
"""Headers that are passed on, together with those that begin with `x-stainless-`. The key is the gateway's own."""
_NOT_ANSWERED = {
    *("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"),
    *("set-cookie", "date", "server"),
}
_IN_PATHS, _IN_QUERIES = "/:@!$&'()*+,;=-._~", "%/?:@!$&'()*+,;=-._~[]"


class Unreachable(KeepworthError):
    """The upstream gave no answer, or broke it off; `kind` is "timeout" or "unreachable"."""

    def __init__(self, url: str, error: BaseException) -> None:
        self.kind = "timeout" if isinstance(error, httpx.TimeoutException) else "unreachable"
        super().__init__(
            f"The upstream {url} gave no answer ({type(error).__name__}).",
            "The gateway and its memory are well: see whether the upstream is.",
        )


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """An answer of content type `kind`. `whole` is its body, or None for a stream of events, whose bytes are still to come:
    `parts` yields them, and raises Unreachable if it breaks off. `close` hangs up, so that the upstream stops computing."""

    status: int
    headers: Mapping[str, str]
    kind: str
    whole: bytes | None
    parts: Callable[[], AsyncIterator[bytes]]
    close: Callable[[], Awaitable[None]]


KEPT_SECONDS = 15.0
"""How long a connection to an upstream stays open without a call."""


class Connections(httpx.AsyncBaseTransport):
    """Connections to an endpoint, one for each call that is under way; the one that was used last is used next. A pool of httpx
    looks at each of its connections at every call, so that with fifty of them it takes longer than all the rest."""

    def __init__(self) -> None:
        self._trusted = httpx.create_ssl_context(trust_env=False)
        self._limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_SECONDS)
        self._all: set[httpx.AsyncHTTPTransport] = set()
        self._idle: deque[tuple[float, httpx.AsyncHTTPTransport]] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._idle:
            _, connection = self._idle.pop()
        else:
            connection = httpx.AsyncHTTPTransport(verify=self._trusted, limits=self._limits, trust_env=False)
            self._all.add(connection)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:  # it has closed what was open, and opens it anew
            self._idle.append((monotonic(), connection))
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Answering(response.stream, partial(self._free, connection))
        return response

    async def _free(self, connection: httpx.AsyncHTTPTransport) -> None:
        """Keep a connection for the next call, and close those that had none for long."""
        now = monotonic()
        self._idle.append((now, connection))
        while self._idle[0][0] < now - KEPT_SECONDS:
            _, unused = self._idle.popleft()
            self._all.discard(unused)
            await unused.aclose()

    async def aclose(self) -> None:
        for connection in list(self._all):
            await connection.aclose()


@dataclass(slots=True)
class _Answering(httpx.AsyncByteStream):
    """The body of an answer, after which its connection is free."""

    stream: httpx.AsyncByteStream
    free: Callable[[], Awaitable[None]]
    closed: bool = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self.stream:
            yield part

    async def aclose(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            await self.stream.aclose()
        finally:
            await self.free()


class Upstream:
    """The endpoint to which a gateway sends calls.

    Args:
        url: The address, with or without `/v1`.
        key: The bearer token for the upstream; "" for none.
        seconds: The time limit for the beginning of an answer, and between two parts of it.
        transport: Answers in place of a network. Messages call such an upstream by `name`, and it stores nothing.
        render: Returns the prompt that a model of this process reads, for a path and a body; None if it cannot say.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        seconds: float = 600.0,
        transport: httpx.AsyncBaseTransport | None = None,
        name: str = "",
        render: Callable[[str, Mapping[str, Any]], str | None] = lambda path, body: None,
    ) -> None:
        self.rendered = render
        try:
            parts = urlsplit(url)
            if parts.port == 0:
                raise ValueError
        except ValueError:  # not shown, as its message may quote a part of a password
            raise KeepworthError(
                "The upstream's address cannot be read.", "Give one such as https://api.openai.com/v1."
            ) from None
        if parts.username is not None or parts.password is not None:
            raise KeepworthError(
                "The upstream's address holds a name or a password, and addresses are shown.",
                "Leave them out, and give the key in the variable that --upstream-key names.",
            )
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
            raise KeepworthError(
                f"The upstream {url!r:.80} is no address.", "Give one such as https://api.openai.com/v1."
            )
        base = url.rstrip("/")
        self._base = base if parts.path.strip("/") else f"{base}/v1"
        self.url, self.transport, self._key = name or self._base, transport, key
        self.tenants_apart = transport is not None
        """Whether no tenant can reach anything that the upstream stores for another."""
        self._timeout = httpx.Timeout(seconds, connect=10.0, pool=None).as_dict()
        # Only a transport is used: a client around it would follow redirects, store cookies, and take time.
        self._http = transport or Connections()

    async def send(
        self, method: str, path: str, query: str, headers: Mapping[str, str], content: bytes, *, episode: str
    ) -> UpstreamAnswer:
        """Send a call and return the answer: a stream of events once its headers have come, any other once it is whole, so that
        one that breaks off still becomes an error. The upstream's key replaces the caller's token, in the same header. Raises
        Unreachable, and NotServed for an answer that is too long.

        Args:
            method: The HTTP method.
            path: The path that the caller asked for, with `/v1`.
            query: What stands after the question mark of the address, without it.
            headers: Those of the caller; only the ones that an upstream needs are passed on.
            content: The body, which is passed on as it is.
            episode: The episode that the call is part of, or "". For an episode the answer must not be compressed, as it is read.
        """
        given = {name: value for name, value in headers.items() if name in _ASKED or name.startswith("x-stainless-")}
        given["accept-encoding"] = "identity" if episode else headers.get("accept-encoding", "identity")
        if self._key and "authorization" not in headers and "x-api-key" in headers:
            given["x-api-key"] = self._key
        elif self._key:
            given["authorization"] = f"Bearer {self._key}"
        # The request is made here, so that httpx adds no headers.
        request = httpx.Request(
            method,
            self._address(path, query),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
            content=content or None,
            extensions={"timeout": self._timeout},
        )
        try:
            response = await self._http.handle_async_request(request)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(self.url, error) from error
        response.request = request
        passed = {name.lower(): value for name, value in response.headers.items() if name.lower() not in _NOT_ANSWERED}
        kind, length = passed.get("content-type", "").lower(), passed.get("content-length", "")
        answer = UpstreamAnswer(
            response.status_code, passed, kind, None, lambda: self._parts(response), response.aclose
        )
        if kind.startswith(EVENTS):
            return answer
        whole = bytearray()
        try:
            if not length.isdecimal() or int(length) <= LONGEST_ANSWER:
                async for part in answer.parts():
                    whole += part
                    if len(whole) > LONGEST_ANSWER:
                        break
                else:
                    return replace(answer, whole=bytes(whole))
        finally:
            await answer.close()
        raise NotServed(
            f"The upstream {self.url} answered with more than {LONGEST_ANSWER} bytes.",
            "Ask for less, or for a stream, which has no bound.",
            status=502,
        )

    def _address(self, path: str, query: str) -> str:
        """Return the address for a path, which is given without escapes. Raises NotServed for a path that the upstream could read
        as another one, which was not checked and which its key would open too."""
        parts = path.removeprefix("/v1/").split("/")
        if any(
            part.partition(";")[0] in ("", ".", "..") or not set(part).isdisjoint("%\\?#") or not part.isprintable()
            for part in parts
        ):
            raise NotServed(
                f"The path {path!r:.80} is not passed on.", "Names in a path have no '..', '%', '?' or '#'.", status=404
            )
        wanted = f"{self._base}/{quote('/'.join(parts), safe=_IN_PATHS)}"
        return f"{wanted}?{quote(query, safe=_IN_QUERIES)}" if query else wanted

    async def _parts(self, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for part in response.aiter_raw():
                yield part
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error

    async def close(self) -> None:
        await self._http.aclose()
