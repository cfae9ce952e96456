"""A conversation with the Claude Code that the Claude Agent SDK brings along, whose answers come from a server of the test."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

PACKAGE = "claude-agent-sdk"
SLOT = "keepworth.adapters.claude_agent"
MODEL = "ClaudeAgentOptions"
OPEN: dict[str, Answers] = {}
"""Who answers at the server of this process, by the first name in the path."""


class Answers:
    """Anthropic's interface at `url`, with answers of a test. `calls` are tools that Claude uses first, as (name, input)."""

    def __init__(self) -> None:
        self.answer, self.prompts, self.calls = "Noted.", [], []
        name = uuid4().hex
        OPEN[name] = self
        self.url = f"http://127.0.0.1:{server().server_port}/{name}"

    def stream(self, asked: dict[str, Any]) -> bytes:
        self.prompts.append("\n".join(_texts(asked["messages"])))
        usage = {"input_tokens": 1, "output_tokens": 1}
        name, model = f"msg_{len(self.prompts)}", asked["model"]
        message = {"id": name, "type": "message", "role": "assistant", "model": model, "content": []}
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": self.answer}
        if self.calls:
            name, arguments = self.calls.pop(0)
            block = {"type": "tool_use", "id": f"toolu_{len(self.prompts)}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        reason = {"stop_reason": "end_turn" if block["type"] == "text" else "tool_use", "stop_sequence": None}
        events = [
            {
                "type": "message_start",
                "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
            },
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": reason, "usage": usage},
            {"type": "message_stop"},
        ]
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()

    def options(self, **options: Any) -> Any:
        """Return options for a Claude Code that reads no settings of this machine, and reaches this server alone."""
        from claude_agent_sdk import ClaudeAgentOptions

        home = tempfile.mkdtemp(prefix="keepworth-claude-")
        environment = {
            "HOME": home,
            "CLAUDE_CONFIG_DIR": home,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        return ClaudeAgentOptions(cwd=home, setting_sources=[], env=environment, model="claude-sonnet-5-5", **options)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        stream = OPEN[self.path.split("/")[1]].stream(json.loads(self.rfile.read(size)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(stream)))
        self.end_headers()
        self.wfile.write(stream)

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()


@cache
def server() -> ThreadingHTTPServer:
    """The one server of the process, which lives as long as it."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    Thread(target=made.serve_forever, daemon=True).start()
    return made


def talk_class() -> Any:
    from claude_agent_sdk import ResultMessage, query

    from keepworth.adapters.claude_agent import KeepworthHooks

    class ClaudeAgentTalk:
        @staticmethod
        def model(**options: Any) -> Any:
            return Answers().options(**options)

        def __init__(self, memory: Any, reward: Any = None, *, user_id: str = "", top_k: int = 5) -> None:
            self.answers = Answers()
            self.keepworth = KeepworthHooks(memory, reward, user_id=user_id, top_k=top_k)
            self.options = self.answers.options(
                hooks=self.keepworth.hooks,
                mcp_servers={"keepworth": self.keepworth.server},
                allowed_tools=["mcp__keepworth", "Bash"],
            )

        @property
        def prompts(self) -> list[str]:
            return self.answers.prompts

        def say(self, message: str, answer: str) -> str:
            return asyncio.run(self.say_async(message, answer))

        async def say_async(self, message: str, answer: str) -> str:
            self.answers.answer = answer
            async for event in query(prompt=message, options=self.options):
                if isinstance(event, ResultMessage):
                    self.options.resume, answered = event.session_id, event.result
            return str(answered)

    return ClaudeAgentTalk


def _texts(messages: Any) -> Any:
    """Yield what stands in the messages since the answer before."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    for message in messages[last + 1 :]:
        content = message["content"]
        yield from [content] if isinstance(content, str) else (str(part.get("text") or part) for part in content)
