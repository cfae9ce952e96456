"""Where a gateway sends calls: any endpoint that speaks as OpenAI or Anthropic do. Bytes pass as they are, in both directions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import httpx

from keepworth.episodes.errors import KeepworthError
from keepworth.serving.calls import NotServed

_ASKED = (
    *("content-type", "accept", "user-agent", "openai-organization", "openai-project", "openai-beta"),
    *("idempotency-key", "x-request-id", "anthropic-version", "anthropic-beta"),
)
"""Headers that go on; with those that begin with `x-stainless-`. The key is the gateway's own."""
_NOT_ANSWERED = {
    *("connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"),
    *("set-cookie", "date", "server"),
}
_IN_PATHS, _IN_QUERIES = "/:@!$&'()*+,;=-._~", "%/?:@!$&'()*+,;=-._~[]"


class Unreachable(KeepworthError):
    """The upstream gave no answer, or broke it off. kind: "timeout" or "unreachable"."""

    def __init__(self, url: str, error: BaseException) -> None:
        self.kind = "timeout" if isinstance(error, httpx.TimeoutException) else "unreachable"
        super().__init__(
            f"The upstream {url} gave no answer ({type(error).__name__}).",
            "The gateway and its memory are well: see whether the upstream is.",
        )


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """status and headers have come; the bytes come. close: hangs up where not all has come, so that nothing is computed for
    nobody. parts raises Unreachable where the answer breaks off."""

    status: int
    headers: Mapping[str, str]
    parts: Callable[[], AsyncIterator[bytes]]
    close: Callable[[], Awaitable[None]]

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").lower()


class Upstream:
    """Where a gateway sends calls.

    Args:
        url: With or without `/v1`.
        key: What the upstream wants as a bearer token, if it wants one.
        seconds: For the beginning of an answer, and between two parts of it.
        transport: What answers in the place of a network; such an upstream is called by `name` and keeps nothing.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        seconds: float = 600.0,
        transport: httpx.AsyncBaseTransport | None = None,
        name: str = "",
    ) -> None:
        try:
            parts = urlsplit(url)
            if parts.port == 0:
                raise ValueError
        except ValueError:  # what it quotes may be a part of a password
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
        """Whether what it keeps for one tenant is nothing that another can name."""
        self._timeout = httpx.Timeout(seconds, connect=10.0, pool=None).as_dict()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=15.0)
        # A transport alone: a client around it would follow redirects, keep cookies, and take time.
        self._http = transport or httpx.AsyncHTTPTransport(limits=limits, trust_env=False)

    async def send(
        self, method: str, path: str, query: str, headers: Mapping[str, str], content: bytes, *, episode: str
    ) -> UpstreamAnswer:
        """The beginning of an answer. The key goes where the caller's token stood: Anthropic's clients have their own header.

        Args:
            path: As the caller asked for it, with `/v1`.
            episode: Which the call is part of, "" where it is to pass as it is; otherwise the answer must not be compressed.

        Raises:
            Unreachable: There is no answer.
        """
        given = {name: value for name, value in headers.items() if name in _ASKED or name.startswith("x-stainless-")}
        given["accept-encoding"] = "identity" if episode else headers.get("accept-encoding", "identity")
        if self._key and "authorization" not in headers and "x-api-key" in headers:
            given["x-api-key"] = self._key
        elif self._key:
            given["authorization"] = f"Bearer {self._key}"
        # Made here, so that the client adds nothing of its own.
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
        return UpstreamAnswer(response.status_code, passed, lambda: self._parts(response), response.aclose)

    def _address(self, path: str, query: str) -> str:
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
