"""Plays the streams of `script` through verifiers and prints what it recorded: python -m ...with_verifiers [reader]."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import verifiers.v1 as vf

from keepworth.serving import verifiers_bank
from tests.serving.packages import script


class ScriptedStreams(verifiers_bank.BankTaskset):  # type: ignore[misc]
    def streams(self) -> Any:
        return script.STREAMS


# What a file of two lines does: a module of that name which exports an environment, a harness and a task set.
bank = ModuleType("bank")
bank.__dict__.update(
    {"BankEnv": verifiers_bank.BankEnv, "BankHarness": verifiers_bank.BankHarness, "BankTaskset": ScriptedStreams},
    __all__=["BankEnv", "BankHarness", "BankTaskset"],
)
bank.__spec__ = verifiers_bank.__spec__
sys.modules["bank"] = bank


class Endpoint(BaseHTTPRequestHandler):
    seen: list[list[dict[str, str]]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        self.seen.append(messages)
        text = messages[-1]["content"]
        said = script.answer(text) if "Question:" in text else script.operation(text)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None: ...


async def main(reader: str, max_turns: int | None) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["SCRIPTED_KEY"] = "none"
    endpoint = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_var="SCRIPTED_KEY")
    config: dict[str, Any] = {"taskset": {"id": "bank", "budget": script.BUDGET, "reader": reader}}
    if max_turns:
        config["writer"] = {"max_turns": max_turns}
    env = vf.load_environment(vf.env_config_type("bank").model_validate(config))
    context = vf.ModelContext(model="m", client=endpoint, sampling=vf.SamplingConfig())
    made = []
    async with env.serving():
        for task in env.taskset:
            Endpoint.seen.clear()
            episode = await env.run_episode(task, context)
            (trace,) = episode.traces
            made.append(
                {
                    "task": task.data.name,
                    "ok": episode.ok,
                    "errors": [error.message for error in episode.errors],
                    "reward": trace.reward,
                    "metrics": trace.metrics,
                    "turns": trace.num_turns,
                    "branches": len(trace.branches),
                    "messages": sorted({len(messages) for messages in Endpoint.seen}),
                }
            )
    print(json.dumps(made))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else None))
