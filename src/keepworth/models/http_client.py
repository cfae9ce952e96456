"""JSON over HTTP with errors that name the URL and the fix. Calls are repeated only where repeating changes nothing."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from keepworth.models.errors import BadAnswer, EngineDied, EngineRefused, EngineTimeout, EngineUnreachable

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that may be gone at the next attempt
_LONGEST_WAIT = 20.0
_SPARE = 4
"""Connections besides those that may be busy for long: what is asked of a server shortly does not wait for them."""
_FIXES = {
    401: "The server wants a key: hand it over as api_key.",
    403: "The key that was handed over does not allow this.",
    404: "Look at the URL and the model's name; GET /v1/models lists the names that the server knows.",
    413: "Send fewer or shorter prompts at once.",
    429: "The server is asked too often: lower the concurrency.",
}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. connect: until the connection stands; answer: until a generation has ended."""

    connect: float = 5.0
    answer: float = 600.0


@dataclass(frozen=True, slots=True)
class Retries:
    """attempts: how often an idempotent call is made in all; first_wait: seconds before the second, doubled each time."""

    attempts: int = 3
    first_wait: float = 0.5


@dataclass(frozen=True, slots=True)
class Tried:
    """answer: the JSON, None where it was none; detail: what an error says."""

    status: int
    answer: Any
    detail: str

    @property
    def well(self) -> bool:
        return self.status < 400


@dataclass(slots=True)
class JsonClient:
    """Calls of one server. Keys travel in a header and appear in no message and no repr.

    connections:
    calls that may take long, at once."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeouts: Timeouts = Timeouts()
    retries: Retries = Retries()
    connections: int = 64
    _client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.url = checked(self.url)
        self._client = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(self.timeouts.answer, connect=self.timeouts.connect),
            limits=httpx.Limits(
                max_connections=self.connections + _SPARE, max_keepalive_connections=self.connections + _SPARE
            ),
            # Proxies set in the environment are for other machines.
            trust_env=httpx.URL(self.url).host not in _LOOPBACK,
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._call("GET", path, None, {}, idempotent=True)

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        idempotent: bool = False,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """The answer's JSON (None where the body is empty or a plain sentence).

        idempotent: made twice the call does what it does once, so that it is repeated after passing failures.
        Raises EngineUnreachable, EngineTimeout, EngineDied, EngineRefused or BadAnswer.
        """
        return self._call("POST", path, body, query or {}, idempotent=idempotent)

    def tried(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Tried:
        """What the server says to a call that changes nothing there, an error or not."""
        response = self._sent(method, path, body, {})
        try:
            answer = response.json()
        except ValueError:
            answer = None
        return Tried(response.status_code, answer, self._without_key(_detail(response)))

    def _call(self, method: str, path: str, body: Any, query: Mapping[str, str], *, idempotent: bool) -> Any:
        attempts = self.retries.attempts if idempotent else 1
        for attempt in range(1, attempts + 1):
            try:
                response = self._sent(method, path, body, query)
            except (EngineUnreachable, EngineTimeout, EngineDied):
                if attempt == attempts:
                    raise
                self._wait(attempt, None)
                continue
            if response.status_code not in _PASSING or attempt == attempts:
                break
            self._wait(attempt, response.headers.get("retry-after"))
        if response.status_code >= 400:
            raise self._refused(method, path, response)
        return self._parsed(path, response)

    def _sent(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> httpx.Response:
        key = self.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            return self._client.request(method, path, json=body, params=dict(query) or None, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise EngineUnreachable(
                f"Nothing answers at {self.url} ({error or type(error).__name__}).",
                "Start the server, or look at the host and the port.",
            ) from error
        except httpx.TimeoutException as error:
            raise EngineTimeout(
                f"{self.url}{path} did not answer within {self.timeouts.answer:g} s.",
                "Ask for fewer tokens at once, or raise the timeout; is the engine paused?",
            ) from error
        except httpx.TransportError as error:
            raise EngineDied(
                f"The connection to {self.url} broke during {method} {path} ({error or type(error).__name__}).",
                "Look at the server's log for why it ended, and start it again.",
            ) from error

    def _wait(self, attempt: int, retry_after: str | None) -> None:
        seconds = self.retries.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
        if retry_after and retry_after.isdigit():
            seconds = float(retry_after)
        time.sleep(min(seconds, _LONGEST_WAIT))

    def _refused(self, method: str, path: str, response: httpx.Response) -> EngineRefused:
        detail = self._without_key(_detail(response))
        return EngineRefused(
            f"{self.url} refused {method} {path} with status {response.status_code}: {detail}",
            _FIXES.get(response.status_code, ""),
            status=response.status_code,
            detail=detail,
        )

    def _parsed(self, path: str, response: httpx.Response) -> Any:
        if not response.content.strip():
            return None
        try:
            return response.json()
        except ValueError as error:
            kind = response.headers.get("content-type", "text/plain")
            if kind.startswith("text/plain") and not response.text.lstrip().startswith("<"):
                return None  # vLLM's control routes answer a sentence
            start = self._without_key(response.text[:80])
            raise BadAnswer(
                f"{self.url}{path} answered something that is not JSON: {start!r}.",
                "Look at the URL: is it the server itself, not a page or a proxy in front of it?",
            ) from error

    def _without_key(self, text: str) -> str:
        return text.replace(self.api_key, "***") if self.api_key else text


def checked(url: str) -> str:
    """`url` without a trailing slash. Raises ValueError where it is none."""
    parsed = httpx.URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is not the URL of a server: it starts with http:// or https:// and names a host")
    return url.rstrip("/")


def place_of(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path: equal for two ways to write one address."""
    parsed = httpx.URL(url)
    port = parsed.port or {"http": 80, "https": 443}.get(parsed.scheme, 0)
    return parsed.scheme, parsed.host, port, parsed.path.rstrip("/")


def _detail(response: httpx.Response) -> str:
    try:
        answer = response.json()
    except ValueError:
        return response.text[:300].strip() or response.reason_phrase
    for key in ("error", "detail", "message", "error_message"):
        found = answer.get(key) if isinstance(answer, dict) else None
        if isinstance(found, dict):
            found = found.get("message")
        if found:
            return found if isinstance(found, str) else json.dumps(found)[:300]
    return json.dumps(answer)[:300]
