"""Anthropic's memory tool with its files in a memory: every version of a file stays, and can be had back.

With ANTHROPIC_API_KEY set Claude is asked; without it the calls of a model are played by a server in this file.
"""

import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from anthropic import Anthropic

from keepworth import Memory
from keepworth.memory.adapters.claude_tool import claude_memory_tool

CALLS = [
    {"command": "create", "path": "/memories/ana.md", "file_text": "Ana likes tea.\n"},
    {"command": "str_replace", "path": "/memories/ana.md", "old_str": "tea", "new_str": "coffee"},
]


@contextmanager
def claude():
    if os.environ.get("ANTHROPIC_API_KEY"):
        yield Anthropic(), "claude-sonnet-4-5"
        return
    calls = iter(CALLS)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            call = next(calls, None)
            content = {"type": "text", "text": "I noted it."}
            if call is not None:
                content = {"type": "tool_use", "id": f"toolu_{id(call)}", "name": "memory", "input": call}
            reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in", "content": [content]}
            reply |= {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
            sent = json.dumps(reply | {"usage": {"input_tokens": 1, "output_tokens": 1}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_):
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Anthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="no-key"), "stand-in"
    finally:
        server.shutdown()
        server.server_close()


with claude() as (client, model), Memory("files.mem", encoder="hashing") as memory:
    told = [{"role": "user", "content": "Write to ana.md that I like tea. No, wait: coffee."}]
    tool = claude_memory_tool(memory, user_id="ana")
    runner = client.beta.messages.tool_runner(model=model, max_tokens=1000, messages=told, tools=[tool])
    print("Claude:", runner.until_done().content[0].text)
    print(tool.call({"command": "view", "path": "/memories"}))
    (file,) = memory.get_all(user_id="ana")
    print("versions:", [each.after.text.strip() for each in memory.history(file.id)])
