"""Connections with deadlines: what uvicorn leaves open for as long as the caller likes is ended here.

uvicorn bounds how long an idle connection is kept, not how long a head or a body may take to arrive, and it counts connections
only when a request has arrived. A caller that says little, slowly, would hold a place for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, ClassVar

from keepworth.episodes.extras import needs_serve

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_LOG = logging.getLogger("keepworth.serving.connections")
_LOG.setLevel(
    logging.ERROR
)  # uvicorn warns of every caller that does not speak HTTP: anybody could fill a disk with that


class Connection(H11Protocol):
    """One caller's connection. Seconds: how long a head, a body, and the rest of a refused body may take in all."""

    head_seconds: ClassVar[float] = 5.0
    body_seconds: ClassVar[float] = 60.0
    rest_seconds: ClassVar[float] = 5.0
    most: ClassVar[int] = 256

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _LOG
        self.access_log = False
        self._waits_for = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(503, f"{self.most} connections are open, and no more may be. Try again.")
        else:
            self._expect("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        state = self.conn.their_state
        if not self.transport.is_closing() and not (state is h11.SEND_BODY and self._waits_for == "rest"):
            self._expect("head" if state is h11.IDLE else "body" if state is h11.SEND_BODY else "")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._expect("rest")  # answered before its body came; what still comes is thrown away

    def shutdown(self) -> None:
        """Called when the server closes: what has not been asked yet is not waited for."""
        if self._waits_for:
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.abort()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP. Called by uvicorn, also in the middle of a body that is already being waited for."""
        self._refuse(400, msg)

    def _expect(self, what: str) -> None:
        if what == self._waits_for:
            return  # the time for one thing runs from its beginning, however it trickles in
        if self._timer is not None:
            self._timer.cancel()
        self._waits_for, self._timer = what, None
        if what:
            seconds = {"head": self.head_seconds, "body": self.body_seconds, "rest": self.rest_seconds}[what]
            self._timer = self.loop.call_later(seconds, self._too_late, what, seconds)

    def _too_late(self, what: str, seconds: float) -> None:
        if what == "rest":
            self.transport.abort()
        elif what == "head" and not self.conn.trailing_data[0]:
            self.transport.close()  # it never began to ask
        else:
            self._refuse(408, f"The request's {what} did not arrive within {seconds:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer if nothing was answered yet, and hang up."""
        self._expect("")
        if self.cycle is not None and not self.cycle.response_complete:
            answered = self.cycle.response_started
            self.cycle.disconnected = True  # so that the application's own answer, if it still comes, goes nowhere
            self.cycle.message_event.set()
        else:
            answered = False
        if not answered and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": {"message": message, "type": "BadRequest", "code": status}}).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
