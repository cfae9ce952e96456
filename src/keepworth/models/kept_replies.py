"""What a chat model said, kept in a file, so that a run that goes on pays for no answer twice.

A line of JSON for each answer, appended as it comes. The key is a hash of the model's name, its settings and the prompt, so
another model or another prompt is asked anew. A last line that was cut short by a kill is asked again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from keepworth.models.chat import ChatModel, Reply

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Spent:
    """answers: how many prompts; asked: how many of them were sent now, the others were on file; prompt_tokens, reply_tokens:
    of all, as the server counted; uncounted: answers of which the server did not say; cut: answers that ended at the limit or
    were empty."""

    answers: int = 0
    asked: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    uncounted: int = 0
    cut: int = 0

    def after(self, reply: Reply, asked: bool) -> Spent:
        counted = reply.prompt_tokens is not None and reply.reply_tokens is not None
        return Spent(
            self.answers + 1,
            self.asked + asked,
            self.prompt_tokens + (reply.prompt_tokens or 0),
            self.reply_tokens + (reply.reply_tokens or 0),
            self.uncounted + (not counted),
            self.cut + (not reply.whole),
        )


class KeptReplies:
    """`chat` with a memory of its answers in the file `path`. Thread-safe; one process at a time writes a file."""

    def __init__(self, chat: ChatModel, path: Path) -> None:
        self.chat, self.path = chat, path
        self.spent = Spent()
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._replies = self._on_file()

    def __call__(self, prompt: str) -> str:
        """What the model says to one message; a part of it, or "", where it was cut. Raises what `ChatModel.reply` raises:
        nothing is kept then, and the next call asks again."""
        key = self._key(prompt)
        with self._lock:
            reply = self._replies.get(key)
        fresh = reply is None
        if reply is None:
            reply = self.chat.reply([{"role": "user", "content": prompt}])
        with self._lock:
            if fresh and key not in self._replies:
                self._replies[key] = reply
                line = json.dumps({"key": key, **asdict(reply)}, ensure_ascii=True)
                with open(self.path, "a", encoding="ascii") as file:
                    file.write(line + "\n")
            self.spent = self.spent.after(reply, fresh)
        return reply.text

    def _key(self, prompt: str) -> str:
        chat = self.chat
        said = json.dumps([chat.model, chat.temperature, chat.max_tokens, chat.seed, prompt])
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def _on_file(self) -> dict[str, Reply]:
        if not self.path.exists():
            return {}
        known = {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self.path.write_bytes(whole)  # the next line must not be joined to half of one
        for line in whole.splitlines():
            body = json.loads(line)
            key = body.pop("key")
            known[key] = Reply(**body)
        return known


def side_by_side(work: Callable[[T], R], things: list[T], at_once: int) -> list[R]:
    """`work` on several things at once, in their order. The first error ends it: what is under way is waited for, and what
    waits is not begun."""
    with ThreadPoolExecutor(at_once, thread_name_prefix="replies") as pool:
        futures = [pool.submit(work, thing) for thing in things]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
