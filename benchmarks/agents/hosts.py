"""Coding assistants and libraries as they are, with memory by hooks, tools or the gateway, as docs/quickstarts.md says.

    npm install --prefix DIR @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai
    python -m venv DIR/venv; DIR/venv/bin/pip install langchain langchain-openai openai-agents litellm
    python -m benchmarks.agents.hosts --hosts DIR --json benchmarks/agents/hosts.json [--only codex] [--way hooks]

Each host that is installed runs without a network: its model is a stand-in on this machine, which answers at once, calls the
tools that it is told to call, and keeps the bytes that it was sent. A user states a fact in one session and asks for it in
another. What is compared is those bytes, and what lies in the memory afterwards. The blocks of the page are used as they stand,
but for the token and the port; a library runs the program that is here, with nothing of ours in it but the address, the token and
a header. What is not in DIR is said to be missing. This shows that memory gets in, and not that it helps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import keepworth
from keepworth import Client, Memory
from keepworth.memory.store import log
from keepworth.serving.hook import MARK
from tests.serving.memory_process import TOKEN, MemoryProcess
from tests.serving.scripted_upstream import Script, Sent, upstream

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstarts.md"
BLOCKS = re.compile(r"<!-- host: (\S+) (\w+) -->\n```(\w+)\n(.*?)```", re.S)
STATED = "I prefer pnpm over npm."
ASKED = "Which package manager do I prefer, npm or pnpm?"
NEXT = "Now say it again."
SAID = "I see what you mean."
GONE = "no-such-folder-of-anybody"
TOOLS = 11
MODEL = "http://model"
SECONDS = 180


@dataclass(frozen=True, slots=True)
class Host:
    """package: at npm. ask, go_on: its command, without somebody to ask, for a new session and for one more prompt of the last;
    hooked: what it needs to run hooks then. shell: the tool that runs a command, and its arguments. variables: of its
    environment, and files: in its home (~) or the project, where MODEL is what answers it; of these the first is the one that a
    block of the page belongs in. waits: what it needs to wait for tools that are still starting."""

    package: str
    ask: tuple[str, ...]
    go_on: tuple[str, ...]
    shell: tuple[str, Mapping[str, str]]
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    hooked: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


CODEX = ("codex", "exec", "--skip-git-repo-check")
GEMINI = ("gemini", "--yolo", "--model", "gemini-2.5-flash")
CLAUDE = ("claude", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash,mcp__keepworth")
HOSTS = {
    "claude-code": Host(
        "@anthropic-ai/claude-code",
        (*CLAUDE, "-p"),
        (*CLAUDE, "--continue", "-p"),
        ("Bash", {"command": f"ls {GONE}", "description": "List"}),
        {
            "ANTHROPIC_BASE_URL": MODEL, "ANTHROPIC_API_KEY": "none", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "MCP_CONNECTION_NONBLOCKING": "0", "MCP_TIMEOUT": "120000",
            "MCP_CONNECT_TIMEOUT_MS": "120000",
        },
    ),
    "codex": Host(
        "@openai/codex",
        CODEX,
        (*CODEX, "resume", "--last"),
        ("exec_command", {"cmd": f"ls {GONE}"}),
        {"NO_KEY": "none"},
        {
            "~/.codex/config.toml": 'model = "gpt-5"\nmodel_provider = "scripted"\n[analytics]\nenabled = false\n'
            '[model_providers.scripted]\nname = "scripted"\nbase_url = "http://model/v1"\nenv_key = "NO_KEY"\n'
        },
        hooked=("--trust", "--dangerously-bypass-hook-trust"),
        waits=("-c", "mcp_servers.keepworth.required=true", "-c", "mcp_servers.keepworth.startup_timeout_sec=120"),
    ),
    "gemini-cli": Host(
        "@google/gemini-cli",
        (*GEMINI, "-p"),
        (*GEMINI, "--resume", "latest", "-p"),
        ("run_shell_command", {"command": f"ls {GONE}"}),
        {"GOOGLE_GEMINI_BASE_URL": MODEL, "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        {
            "~/.gemini/settings.json": json.dumps(
                {
                    "privacy": {"usageStatisticsEnabled": False},
                    "general": {"enableAutoUpdate": False},
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                }
            )
        },
    ),
    "opencode": Host(
        "opencode-ai",
        ("opencode", "run"),
        ("opencode", "run", "--continue"),
        ("bash", {"command": f"ls {GONE}", "description": "List"}),
        {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        {
            "opencode.json": json.dumps(
                {
                    "autoupdate": False,
                    "share": "disabled",
                    "model": "scripted/scripted",
                    "provider": {
                        "scripted": {
                            "npm": "@ai-sdk/openai-compatible",
                            "models": {"scripted": {}},
                            "options": {"baseURL": "http://model/v1", "apiKey": "none"},
                        }
                    },
                }
            )
        },
    ),
}  # fmt: skip
LIBRARIES = {
    "langchain-openai": """
from langchain_openai import ChatOpenAI
from langchain_core.messages import AIMessage, HumanMessage
model = ChatOpenAI(base_url=url, api_key=token, model="gpt-5", default_headers=ana)
print(model.invoke(stated).content)
heard = [HumanMessage(asked)]
heard.append(AIMessage(model.invoke(heard).content))
print(heard[-1].content)
print("".join(each.content for each in model.stream([*heard, HumanMessage(next)])))
""",
    "langgraph": """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
def weather(city: str) -> str:
    "The weather."
    return "sun in " + city
model = ChatOpenAI(base_url=url, api_key=token, model="gpt-5", default_headers=ana)
agent = create_agent(model, tools=[weather], checkpointer=InMemorySaver())
def said(text, thread):
    given, place = {"messages": [("user", text)]}, {"configurable": {"thread_id": thread}}
    return agent.invoke(given, place)["messages"][-1].content
print(said(stated, "1"))
print(said(asked, "2"))
given, place = {"messages": [("user", next)]}, {"configurable": {"thread_id": "2"}}
print("".join(each.content for each, _ in agent.stream(given, place, stream_mode="messages") if each.type != "tool"))
""",
    "openai-agents": """
import asyncio
from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)
set_default_openai_client(AsyncOpenAI(base_url=url, api_key=token, default_headers=ana))
@function_tool
def weather(city: str) -> str:
    "The weather."
    return "sun in " + city
agent = Agent(name="helper", instructions="Be brief.", model="gpt-5", tools=[weather])
async def main():
    print((await Runner.run(agent, stated)).final_output)
    session = SQLiteSession("2")
    print((await Runner.run(agent, asked, session=session)).final_output)
    run = Runner.run_streamed(agent, next, session=session)
    async for each in run.stream_events():
        pass
    print(run.final_output)
asyncio.run(main())
""",
    "litellm": """
import litellm
litellm.telemetry = False
def said(messages, **options):
    return litellm.completion("openai/gpt-5", messages, api_base=url, api_key=token, extra_headers=ana, **options)
def user(text):
    return {"role": "user", "content": text}
print(said([user(stated)]).choices[0].message.content)
answer = said([user(asked)]).choices[0].message.content
print(answer)
heard = [user(asked), {"role": "assistant", "content": answer}, user(next)]
print("".join(each.choices[0].delta.content or "" for each in said(heard, stream=True)))
""",
}
"""Each says the first thing, asks in a conversation of its own, and says the next thing there, streamed."""
SETTINGS = "import sys\nurl, token, stated, asked, next = sys.argv[1:]\nana = {'X-Keepworth-User': 'ana'}\n"


def blocks() -> dict[str, dict[str, tuple[str, str]]]:
    """host -> way -> (language, block), as the page has them."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for host, way, kind, block in BLOCKS.findall(PAGE.read_text(encoding="utf-8")):
        found.setdefault(host, {})[way] = (kind, block)
    return found


class Desk:
    """A home and a project of somebody who has one host, set up by a block of the page. model: the URL of what answers it.
    server: the URL of the memory."""

    def __init__(self, host: Host, hosts: Path, folder: Path, model: str, server: str, block: tuple[str, str]) -> None:
        self.host, self.home, self.project = host, folder / "home", folder / "website"
        kind, text = block
        text = text.replace("127.0.0.1:8000", server.removeprefix("http://")).replace("kw_...", TOKEN)
        programs = folder / "programs"
        for each in (self.home, self.project, programs):
            each.mkdir()
        ours = programs / "keepworth"
        ours.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} -m keepworth "$@"\n')
        ours.chmod(0o755)
        for name, content in host.files.items():
            self._write(name, content.replace(MODEL, model))
        if kind == "toml":  # the page's provider in the place of the stand-in
            (name, there), *_ = host.files.items()
            self._write(name, there.replace('model_provider = "scripted"\n', text).replace(MODEL, model))
        if kind == "json":
            (name, there), *_ = host.files.items()
            self._write(name, json.dumps({**json.loads(there.replace(MODEL, model)), **json.loads(text)}))
        exports = [line for line in text.splitlines() if kind == "sh" and line.startswith("export ")]
        self.environment = {
            "PATH": os.pathsep.join((str(programs), str(hosts / "node_modules" / ".bin"), os.environ["PATH"])),
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT / "src"),
            "KEEPWORTH_URL": server,
            "KEEPWORTH_TOKEN": TOKEN,
            "KEEPWORTH_HOOKS": str(folder / "hooks"),
            **{name: value.replace(MODEL, model) for name, value in host.variables.items()},
            **dict(pair.split("=", 1) for line in exports for pair in shlex.split(line)[1:]),
        }
        self.hooks = folder / "hooks"
        for line in text.splitlines():
            if kind == "sh" and line not in exports:
                self._run(shlex.split(line))

    def say(self, prompt: str, *words: str, goes_on: bool = False) -> str:
        """What the host prints."""
        return self._run([*(self.host.go_on if goes_on else self.host.ask), *words, prompt])

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout

    def _write(self, name: str, content: str) -> None:
        file = self.home / name[2:] if name.startswith("~/") else self.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


# -- what was sent ----------------------------------------------------------------------------------------------------


def pieces(body: Mapping[str, Any]) -> list[Any]:
    """The prompt, whatever the format, without marks for a cache, which hosts move."""
    listed = body.get("messages") or body.get("input") or body.get("contents") or []

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: bare(each) for name, each in value.items() if name != "cache_control"}
        return [bare(each) for each in value] if isinstance(value, list) else value

    def in_parts(piece: Any) -> Any:  # Claude Code says the same text either way
        text = piece.get("content")
        return {**piece, "content": [{"type": "text", "text": text}]} if isinstance(text, str) else piece

    return [in_parts(bare(each)) for each in listed]


def turns(sent: Sequence[Sent]) -> list[dict[str, Any]]:
    """Bodies of calls of the assistant itself; what it asks for a title has no tools."""
    bodies = [each.body for each in sent if each.content.startswith(b"{")]
    return [body for body in bodies if body.get("tools") and pieces(body)]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(each)


def remembers(body: Mapping[str, Any]) -> bool:
    """Whether the fact stands under our mark in what was sent."""
    found = (text.partition(MARK)[2] for text in texts(pieces(body)) if MARK in text)
    return any(f"\n- {STATED}" in text for text in found)


def has_results(body: Mapping[str, Any]) -> bool:
    said = json.dumps(pieces(body))
    return any(f'"{name}"' in said for name in ("tool_result", "function_call_output", "tool", "functionResponse"))


def tool_names(body: Mapping[str, Any]) -> list[str]:
    listed = list[str]()
    for tool in body.get("tools") or ():
        inside = tool.get("functionDeclarations") or tool.get("tools") or [tool.get("function") or tool]
        listed += [str(each.get("name", "")) for each in inside]
    return listed


def calls(script: Script, name: str, arguments: Mapping[str, Any]) -> None:
    """From now on each turn begins with a call of the tool whose name ends so."""

    def chosen(asked: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        if not pieces(asked) or has_results({"input": pieces(asked)[-1:]}):
            return None
        full = next((each for each in tool_names(asked) if re.search(rf"(?:^|_){name}$", each)), "")
        return (full, dict(arguments)) if full else None

    script.chooses = chosen


# -- the ways ---------------------------------------------------------------------------------------------------------


def by_hooks(desk: Desk, script: Script, server: MemoryProcess) -> dict[str, bool]:
    words = desk.host.hooked
    desk.say(STATED, *words)
    first = turns(script.sent)
    calls(script, *desk.host.shell)
    printed = desk.say(ASKED, *words)
    second = turns(script.sent)[len(first) :]
    with Client(server.url, TOKEN) as client:
        kept = [item.text for item in client.get_all(user_id="ana")]
        records = [client.episode_record(id) for id in client.episodes(user_id="ana")]
    sessions = list(desk.hooks.iterdir())
    server.stop()
    with Memory(server.file, encoder="hashing") as memory, memory.store.database.reading() as connection:
        acts = [log.done_in(connection, record.id)[2] or "" for record in records]
    return {
        "the fact is kept, and nothing else": kept == [STATED],
        "it was not in the first session's prompts": bool(first) and not any(remembers(body) for body in first),
        "it is in all of the second's": bool(second) and all(remembers(body) for body in second),
        "a failing tool is an act, and searched for": any("failed" in act and GONE in act for act in acts)
        and any(GONE in decision.query for record in records for decision in record.decisions),
        "all episodes have ended, and no session is left": {record.stop.value for record in records} == {"completed"}
        and not sessions,
        "the host says what the model said": SAID in printed,
    }


def by_tools(desk: Desk, script: Script, server: MemoryProcess) -> dict[str, bool]:
    words = desk.host.waits
    calls(script, "add_memory", {"text": STATED})
    desk.say("Remember it.", *words)
    listed = set(tool_names(turns(script.sent)[0]))
    before = len(script.sent)
    calls(script, "search_memories", {"query": ASKED})
    printed = desk.say(ASKED, *words)
    asked, answered = turns(script.sent[before:])[0], turns(script.sent[before:])[-1]
    ours = [name for name in listed if re.search(r"_memor(y|ies)$|_memory_history$|_episode$|_outcome$", f"_{name}")]
    return {
        "all tools are listed": len(ours) == TOOLS,
        "what one session adds, another finds": STATED in json.dumps(pieces(answered)[-1])
        and STATED not in json.dumps(pieces(asked)),
        "the host says what the model said": SAID in printed,
    }


def by_gateway(desk: Desk, script: Script, server: MemoryProcess) -> dict[str, bool]:
    first = desk.say(STATED)
    before = len(script.sent)
    calls(script, *desk.host.shell)
    second = desk.say(ASKED)
    third = desk.say(NEXT, goes_on=True)
    one, two = turns(script.sent[:before]), turns(script.sent[before:])
    with Client(server.url, TOKEN) as client:
        kept = [item.text for item in client.get_all(user_id="ana")]
        receipts = [client.receipt(id) for id in client.episodes(user_id="ana")]
    return {
        "the fact is kept, and nothing else": kept == [STATED],
        "it was not in the first call": bool(one) and not remembers(one[0]),
        "it is in all calls of the second session": len(two) >= 4 and all(remembers(body) for body in two),
        "each prompt begins with the whole prompt before it": all(begins(late, early) for early, late in pairwise(two)),
        "every receipt is of bytes that were sent": proven(receipts, script, 3),
        "answers are streamed, and the host says them": all(body.get("stream") for body in two)
        and all(SAID in printed for printed in (first, second, third)),
        "the token does not go upstream": not any(TOKEN in json.dumps(each.headers) for each in script.sent),
    }


def by_library(name: str, python: Path, script: Script, server: MemoryProcess, folder: Path) -> dict[str, bool]:
    if name in ("langgraph", "openai-agents"):
        calls(script, "weather", {"city": "Oslo"})
    done = subprocess.run(
        [python, "-c", SETTINGS + LIBRARIES[name], f"{server.url}/v1", TOKEN, STATED, ASKED, NEXT],
        cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    bodies = [each.body for each in script.sent]
    place = next(place for place, body in enumerate(bodies) if ASKED in json.dumps(pieces(body)))
    one, two = bodies[:place], bodies[place:]
    with Client(server.url, TOKEN) as client:
        kept = [item.text for item in client.get_all(user_id="ana")]
        receipts = [client.receipt(id) for id in client.episodes(user_id="ana")]
    return {
        "the fact is kept, and nothing else": kept == [STATED],
        "it was not in the first call": not remembers(one[0]),
        "it is in all calls of the second session": all(remembers(body) for body in two),
        "each prompt begins with the whole prompt before it": all(begins(late, early) for early, late in pairwise(two)),
        "every receipt is of bytes that were sent": proven(receipts, script, 3),
        "answers are the same, whole and streamed": [line.strip() for line in done.stdout.splitlines()] == [SAID] * 3
        and [bool(body.get("stream")) for body in two] == sorted(bool(body.get("stream")) for body in two)
        and bool(two[-1].get("stream")) and not two[0].get("stream"),
        "the token does not go upstream": not any(TOKEN in json.dumps(each.headers) for each in script.sent),
    }  # fmt: skip


def begins(late: Mapping[str, Any], early: Mapping[str, Any]) -> bool:
    """Whether one prompt begins with the whole of another."""
    same = all(late.get(name) == early.get(name) for name in ("system", "instructions", "tools"))
    return same and pieces(late)[: len(pieces(early))] == pieces(early)


def proven(receipts: Sequence[Mapping[str, Any]], script: Script, turns: int) -> bool:
    """Whether there are receipts of so many turns, all of bytes that were sent, and all but the first name an item in them."""
    sent = {hashlib.sha256(each.content).hexdigest() for each in script.sent}
    good = [receipt["sha256"] in sent and not receipt["missing"] for receipt in receipts]
    return (
        len(good) == turns
        and all(good)
        and [bool(receipt["injected"]) for receipt in receipts] == [False] + [True] * (turns - 1)
    )


WAYS = {"hooks": by_hooks, "http": by_tools, "stdio": by_tools, "gateway": by_gateway}


def tried(name: str, way: str, hosts: Path, folder: Path) -> dict[str, bool]:
    """What was seen of one host, with memory in one way."""
    script = Script(reply=lambda body: SAID)
    options = ["--mcp"] if way == "http" else []
    with upstream(script) as model:
        if way == "gateway":
            options = ["--upstream", f"{model.url}/v1", "--upstream-key", "none"]
        with MemoryProcess(folder / "agent.mem", options=options) as server:
            desk = Desk(HOSTS[name], hosts, folder, model.url, server.url, blocks()[name][way])
            return WAYS[way](desk, script, server)


def tried_library(name: str, hosts: Path, folder: Path) -> dict[str, bool]:
    script = Script(reply=lambda body: SAID)
    with upstream(script) as model:
        options = ["--upstream", f"{model.url}/v1", "--upstream-key", "none"]
        with MemoryProcess(folder / "agent.mem", options=options) as server:
            return by_library(name, hosts / "venv" / "bin" / "python", script, server, folder)


def version(name: str, hosts: Path) -> str:
    """As it is installed; nothing where it is not."""
    if name in HOSTS:
        file = hosts / "node_modules" / HOSTS[name].package / "package.json"
        return str(json.loads(file.read_text())["version"]) if file.exists() else ""
    python = hosts / "venv" / "bin" / "python"
    if not python.exists():
        return ""
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=Path, required=True, help="Where npm installed them.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=[*HOSTS, *LIBRARIES])
    parser.add_argument("--way", choices=list(WAYS))
    options = parser.parse_args()
    hosts, rows = options.hosts.resolve(), dict[str, Any]()
    for name in [options.only] if options.only else [*HOSTS, *LIBRARIES]:
        rows[name] = {"version": version(name, hosts), "seen": {}}
        if not rows[name]["version"]:
            package = HOSTS[name].package if name in HOSTS else name
            print(f"{name} is missing: {'npm' if name in HOSTS else 'pip'} install {package}, in {hosts}", flush=True)
            continue
        for way in blocks()[name] if name in HOSTS else ["gateway"]:
            if options.way in (None, way):
                with tempfile.TemporaryDirectory(dir=hosts) as folder:
                    place = Path(folder).resolve()
                    seen = tried(name, way, hosts, place) if name in HOSTS else tried_library(name, hosts, place)
                rows[name]["seen"][way] = seen
                print(name, way, seen, flush=True)
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    record = {
        "command": "python -m benchmarks.agents.hosts --hosts DIR --json benchmarks/agents/hosts.json",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"python": platform.python_version(), "node": node, "keepworth": keepworth.__version__},
        "hosts": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if not all(seen for row in rows.values() for checks in row["seen"].values() for seen in checks.values()):
        raise SystemExit("not all was seen")


if __name__ == "__main__":
    main()
