"""A stand-in for a model's endpoint, so that the examples run offline and without a key.

`endpoint()` gives (base_url, key, model): OpenAI's, or that of OPENAI_BASE_URL, if OPENAI_API_KEY is set; else a server on this
machine that answers `POST /v1/chat/completions` with what it finds in the prompt: the first note that shares a word with the
question.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMON = {"what", "where", "which", "who", "how", "when", "the", "and", "for", "you", "your", "does", "please"}


def text_of(content: str | list[dict[str, str]] | None) -> str:
    """A message's content as text: it may be a list of parts."""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or [])


def from_notes(messages: list[dict]) -> str:
    """The first line of the prompt that begins with "- " and shares a word with the last message."""
    texts = [text_of(message.get("content")) for message in messages]
    asked = set(re.findall(r"\w{3,}", texts[-1].lower())) - COMMON
    for line in "\n".join(texts).splitlines():
        if line.startswith("- ") and asked & set(re.findall(r"\w{3,}", line.lower())):
            return line[2:]
    return "I do not know."


@contextmanager
def endpoint(answer: Callable[[list[dict[str, str]]], str] = from_notes) -> Iterator[tuple[str, str, str]]:
    if key := os.environ.get("OPENAI_API_KEY"):
        url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        yield url, key, os.environ.get("OPENAI_MODEL", "gpt-5-mini")
        return

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": answer(asked["messages"])}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "stand-in", "choices": [choice]}
            sent = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", "no-key", "stand-in"
    finally:
        server.shutdown()
        server.server_close()
