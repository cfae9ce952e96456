"""JSON over HTTP, with errors that name the URL and the fix. Calls are repeated only where that has no further effect."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from keepworth.base.json_values import parse
from keepworth.base.model_errors import BadAnswer, EngineDied, EngineRefused, EngineTimeout, EngineUnreachable

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that may be gone at the next attempt
CONNECT = 5.0
"""Seconds to wait for a connection."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
"""Seconds before the second attempt, doubled at each further one, and the most seconds."""
_SPARE = 4  # connections for short calls, which then do not wait for long ones
_FIXES = {
    401: "The server wants a key: hand it over as api_key.",
    403: "The key that was handed over does not allow this.",
    404: "Look at the URL and the model's name; GET /v1/models lists the names that the server knows.",
    413: "Send fewer or shorter prompts at once.",
    429: "The server is asked too often: lower the concurrency.",
}


@dataclass(slots=True)
class JsonClient:
    """Calls one server. The key is sent in a header and appears in no message and no repr.

    Attributes:
        seconds: Seconds to wait for a complete answer.
        attempts: How often an idempotent call is made in all.
        connections: How many long calls run at once.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    seconds: float = 600.0
    attempts: int = 3
    connections: int = 64
    _client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parsed = httpx.URL(self.url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(
                f"{self.url!r} is not the URL of a server: it starts with http:// or https:// and names a host"
            )
        self.url = self.url.rstrip("/")
        most = self.connections + _SPARE
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.api_key}"} if self.api_key else {},
            timeout=httpx.Timeout(self.seconds, connect=CONNECT),
            limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
            trust_env=parsed.host not in _LOOPBACK,  # proxies in the environment are for other machines
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._call("GET", path, None, idempotent=True)

    def post(self, path: str, body: Mapping[str, Any], *, idempotent: bool = False) -> Any:
        """Returns the answer's JSON, None where the body is empty or a plain sentence. Raises EngineUnreachable, EngineTimeout,
        EngineDied, EngineRefused or BadAnswer.

        Args:
            path: The path behind the client's base URL.
            body: What is sent, as JSON.
            idempotent: Whether making the call twice has the same effect as making it once. It is then repeated after transient
                failures.
        """
        return self._call("POST", path, body, idempotent=idempotent)

    def _call(self, method: str, path: str, body: Any, *, idempotent: bool) -> Any:
        attempts = self.attempts if idempotent else 1
        for attempt in count(1):
            after = ""
            try:
                response = self._send(method, path, body)
            except (EngineUnreachable, EngineTimeout, EngineDied):
                if attempt == attempts:
                    raise
            else:
                if response.status_code not in _PASSING or attempt == attempts:
                    return self._parse(method, path, response)
                after = response.headers.get("retry-after", "")
            seconds = FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
            time.sleep(min(float(after) if after.isdigit() else seconds, LONGEST_WAIT))
        raise AssertionError("the last attempt returns or raises")

    def _send(self, method: str, path: str, body: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise EngineUnreachable(
                f"Nothing answers at {self.url} ({error or type(error).__name__}).",
                "Start the server, or look at the host and the port.",
            ) from error
        except httpx.TimeoutException as error:
            raise EngineTimeout(
                f"{self.url}{path} did not answer within {self.seconds:g} s.",
                "Ask for fewer tokens at once; is the engine paused?",
            ) from error
        except httpx.TransportError as error:
            raise EngineDied(
                f"The connection to {self.url} broke during {method} {path} ({error or type(error).__name__}).",
                "Look at the server's log for why it ended, and start it again.",
            ) from error

    def _parse(self, method: str, path: str, response: httpx.Response) -> Any:
        status = response.status_code
        if status >= 400:
            detail = self._hide_key(_detail(response))
            raise EngineRefused(
                f"{self.url} refused {method} {path} with status {status}: {detail}",
                _FIXES.get(status, ""),
                status=status,
                detail=detail,
            )
        if not response.content.strip():
            return None
        try:
            return parse(response.content)
        except ValueError as error:
            kind = response.headers.get("content-type", "text/plain")
            if kind.startswith("text/plain") and not response.text.lstrip().startswith("<"):
                return None  # vLLM's control routes answer a sentence
            raise BadAnswer(
                f"{self.url}{path} answered something that is not JSON: {self._hide_key(response.text[:80])!r}.",
                "Look at the URL: is it the server itself, not a page or a proxy in front of it?",
            ) from error

    def _hide_key(self, text: str) -> str:
        return text.replace(self.api_key, "***") if self.api_key else text


def _detail(response: httpx.Response) -> str:
    try:
        answer = parse(response.content)
    except ValueError:
        return response.text[:300].strip() or response.reason_phrase
    for key in ("error", "detail", "message", "error_message"):
        words = answer.get(key) if isinstance(answer, dict) else None
        if isinstance(words, dict):
            words = words.get("message")
        if words:
            return words if isinstance(words, str) else json.dumps(words)[:300]
    return json.dumps(answer)[:300]
