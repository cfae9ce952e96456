"""Where a gateway sends calls: any endpoint that speaks as OpenAI or Anthropic do. Bytes pass as they are, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote, urlsplit

from keepworth.episodes.needs import needs_gateway

import aiohttp
from yarl import URL

from keepworth.episodes.errors import KeepworthError
from keepworth.serving.calls import NotServed, UpstreamAnswer

_ASKED = (
    *("content-type", "accept", "user-agent", "openai-organization", "openai-project", "openai-beta"),
    *("idempotency-key", "x-request-id", "anthropic-version", "anthropic-beta"),
)
"""Headers that go on; with those that begin with `x-stainless-`. The key is the gateway's own."""
_NOT_ANSWERED = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "set-cookie",
    "date",
    "server",
}


_IN_PATHS, _IN_QUERIES = "/:@!$&'()*+,;=-._~", "%/?:@!$&'()*+,;=-._~[]"


WATCH_SECONDS = 1.0


class Unreachable(KeepworthError):
    """The upstream gave no answer, or broke it off. kind: "timeout" or "unreachable"."""

    def __init__(self, url: str, error: BaseException) -> None:
        self.kind = "timeout" if isinstance(error, asyncio.TimeoutError) else "unreachable"
        super().__init__(
            f"The upstream {url} gave no answer ({type(error).__name__}).",
            "The gateway and its memory are well: see whether the upstream is.",
        )


class Upstream:
    """url: with or without `/v1`. key: what the upstream wants as a bearer token, if it wants one. seconds: for the beginning of
    an answer, and between two parts of it."""

    tenants_apart = False

    def __init__(self, url: str, key: str = "", *, seconds: float = 600.0) -> None:
        parts = urlsplit(url)
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
        self.url = base if parts.path.strip("/") else f"{base}/v1"
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=seconds)
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        episode: str,
    ) -> UpstreamAnswer:
        """See `AnyUpstream`. The key goes where the caller's token stood: Anthropic's clients have a header of their own."""
        if self._session is None:  # it belongs to the loop that it is made in
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        given = {
            name: value
            for name, value in headers.items()
            if name.lower() in _ASKED or name.lower().startswith("x-stainless-")
        }
        given["Accept-Encoding"] = "identity" if episode else headers.get("accept-encoding", "identity")
        if self._key and "authorization" not in headers and "x-api-key" in headers:
            given["X-Api-Key"] = self._key
        elif self._key:
            given["Authorization"] = f"Bearer {self._key}"
        try:
            response = await self._session.request(
                method,
                self._address(path, query),
                data=content or None,
                headers=given,
                allow_redirects=False,
                skip_auto_headers=("User-Agent",),
            )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(self.url, error) from error
        passed = {name.lower(): value for name, value in response.headers.items() if name.lower() not in _NOT_ANSWERED}
        return UpstreamAnswer(response.status, passed, lambda: self._parts(response), lambda: _hung_up(response))

    def _address(self, path: str, query: str) -> URL:
        """path: as it was routed, without escapes. It is sent as it was checked: nothing may read it as another one, which the
        upstream's key would open too."""
        parts = path.removeprefix("/v1/").split("/")
        if any(
            part.partition(";")[0] in ("", ".", "..") or not set(part).isdisjoint("%\\?#") or not part.isprintable()
            for part in parts
        ):
            raise NotServed(
                f"The path {path!r:.80} is not passed on.", "Names in a path have no '..', '%', '?' or '#'.", status=404
            )
        wanted = f"{self.url}/{quote('/'.join(parts), safe=_IN_PATHS)}"
        return URL(f"{wanted}?{quote(query, safe=_IN_QUERIES)}" if query else wanted, encoded=True)

    async def _parts(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        watch = _Watch(response)
        try:
            async for part in response.content.iter_any():
                yield part
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(self.url, error) from error
        finally:
            watch.end()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Watch:
    """Ends the wait for an answer whose connection is gone. aiohttp hangs up on what is no HTTP in the middle of an answer, and
    does not tell who waits for the rest."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(WATCH_SECONDS, self._look)

    def _look(self) -> None:
        content, connection = self.response.content, self.response.connection
        there = connection is not None and connection.transport is not None and not connection.transport.is_closing()
        if there or content.is_eof():
            self._next = self._loop.call_later(WATCH_SECONDS, self._look)
        elif content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("what came is no HTTP"))

    def end(self) -> None:
        self._next.cancel()


def _hung_up(response: aiohttp.ClientResponse) -> None:
    if response.content.at_eof():
        response.release()
    else:
        response.close()
