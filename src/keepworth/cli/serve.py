"""`keepworth serve`: a memory, for agents anywhere."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.extras import require
from keepworth.base.interruption import interruptible
from keepworth.base.text import one_line
from keepworth.cli.command import argument, bound, option
from keepworth.cli.output import ModelSignals, Personal, Runs, Secrets, say
from keepworth.memory.place import MemoryPlace, place_of

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.serving.memory_server import MemoryServer
    from keepworth.serving.workers import Workers

KEY = "KEEPWORTH_API_KEY"
UPSTREAM_KEY = "OPENAI_API_KEY"
LOCAL = "127.0.0.1"
TOKENS, ITEMS, MOST_ITEMS = 1500, "8", 100
"""The default limits of what a gateway adds to a prompt."""
CALL_MB = 50
"""The default size of a call, which is what providers take."""


def _items(number: str) -> str:
    """Return a number of items, or "auto". Raises BadParameter."""
    if number != "auto" and not (number.isdecimal() and 1 <= int(number) <= MOST_ITEMS):
        raise typer.BadParameter(f"it is {number!r:.20}: give a number from 1 to {MOST_ITEMS}, or auto")
    return number


def serve(
    what: Annotated[str, argument("MODEL|RUN", "What answers in a gateway, a model or a run.")] = "",
    role: Annotated[str, option("--role", "Which of the run's roles, where it trained several.")] = "",
    port: Annotated[int, option("--port", "Where to listen; 0 takes any that is free.", min=0, max=65535)] = 8000,
    runs: Runs = Path("runs"),
    memory: Annotated[
        MemoryPlace | None,
        option("--memory MEMORY", "A file, or an address in Postgres; made if not there.", parser=place_of),
    ] = None,
    host: Annotated[str, option("--host", "The address to listen on.")] = LOCAL,
    encoder: Annotated[str, option("--encoder", "minilm, hashing, a folder, or none to use words only.")] = "default",
    policy: Annotated[str, option("--policy", "What learns from rewards, or none.")] = "default",
    replaces: Annotated[
        str, option("--replaces", "The policy in force until rewards prove that --policy is better, or none.")
    ] = "",
    upstream: Annotated[str, option("--upstream URL", "OpenAI's routes lead to this API, and remember.")] = "",
    upstream_key: Annotated[
        str, option("--upstream-key", "The environment variable that holds the upstream's key; none to send none.")
    ] = UPSTREAM_KEY,
    mcp: Annotated[bool, option("--mcp", "Tools of the Model Context Protocol, too, at /mcp.")] = False,
    stdio: Annotated[bool, option("--stdio", "Those tools alone, over standard input and output.")] = False,
    user: Annotated[str, option("--user -u", "With --stdio: whose memory.", callback=bound)] = "",
    memory_tokens: Annotated[
        int, option("--memory-tokens", "Tokens of memory in one prompt, at most.", min=0)
    ] = TOKENS,
    memory_items: Annotated[
        str,
        option(
            "--memory-items N", "Items recalled for one turn, at most 100; auto for those that answer.", callback=_items
        ),
    ] = ITEMS,
    threshold: Annotated[
        float | None,
        option(
            "--threshold",
            "The least score, from 0 to 1, of an item that a gateway recalls; by default what fits the encoder.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    no_prompts: Annotated[
        bool,
        option(
            "--no-prompts",
            "Do not keep the calls of a gateway as they were sent; they are there to train a model on them.",
        ),
    ] = False,
    no_signals: Annotated[
        bool,
        option(
            "--no-signals", "Take nothing that is seen for the outcome of what was shown; only reported rewards count."
        ),
    ] = False,
    model_signals: ModelSignals = 0,
    call_mb: Annotated[
        int, option("--call-mb", "Megabytes of one call through a gateway, at most.", min=1, max=1024)
    ] = CALL_MB,
    workers: Annotated[
        int,
        option(
            "--workers", "Processes that serve at the same time; a memory in a file has many writers.", min=1, max=64
        ),
    ] = 1,
    secrets: Secrets = "quarantine",
    personal: Personal = "allow",
    durability: Annotated[str, option("--durability", "process, or power to survive a lost machine.")] = "process",
    writer: Annotated[
        str,
        option(
            "--writer",
            "What is kept of what is said: default (notes, and facts by OPENAI_MODEL if it is set), statements (notes), model "
            "or rules (facts alone), none (whole messages), or the folder of a run that trained a manager.",
        ),
    ] = "default",
) -> None:
    """Serve a memory to agents, with a page to look at it.

    Every verb of the memory is served over HTTP, and the page, to clients with a token; with --upstream, or a model or a run,
    also a gateway that adds memory to any program that uses OpenAI's interface. The token is that in KEEPWORTH_API_KEY, if it is
    set. Ctrl-C stops."""
    model, run = _model_or_run(what, runs)
    alone = "--stdio serves its host alone."
    gateway = (
        memory_tokens != TOKENS or memory_items != ITEMS or threshold is not None or call_mb != CALL_MB or no_prompts
    )
    _refuse(
        (memory is None, "There is no memory to serve.", "Name it: keepworth serve --memory agent.mem."),
        (bool(role and not run), "--role names a role of a run.", "Name the run, or leave --role out."),
        (bool(user and not stdio), "--user is for --stdio.", "Over HTTP, a token says whose memory it is."),
        (stdio and bool(upstream or mcp), alone, "Leave --upstream and --mcp out."),
        (stdio and bool(what), alone, f"Leave {what} out."),
        (
            gateway and not (what or upstream),
            "--memory-tokens, --memory-items, --threshold, --no-prompts and --call-mb are of a gateway.",
            "Name what answers in it, such as --upstream https://api.openai.com/v1.",
        ),
        (
            no_signals and model_signals > 0,
            "--no-signals takes no signal, also none of a model.",
            "Leave one of them out.",
        ),
        (bool(what and upstream), f"{what} is what answers, and so is --upstream.", f"Leave {what} out."),
        (stdio and workers > 1, alone, "Leave --workers out."),
        (
            bool(what) and workers > 1,
            f"Each of {workers} workers would load {what}.",
            "Leave --workers out, or serve the model by a server of its own and name it with --upstream.",
        ),
    )
    assert memory is not None
    from keepworth.memory.scan import scan_of

    require("serve", "keepworth serve --memory")
    options: dict[str, Any] = {
        "encoder": None if encoder == "none" else encoder,
        "policy": None if policy == "none" else policy,
        "durability": durability,
        "writer": None if writer == "none" else writer,
        "scan": scan_of(secrets, personal),
        **({"signals": ()} if no_signals else {}),
        **({"model_signals": model_signals} if model_signals else {}),
        **({"replaces": None if replaces == "none" else replaces} if replaces else {}),
    }
    if stdio:
        _serve_stdio(memory, user, **options)
        return
    from keepworth.serving.http_server import bind

    bind(host, port).close()  # said before a model is loaded or a memory made for nothing
    if writer != "none":
        from keepworth.memory import by_name

        by_name.writer(writer)  # raises, and loads what was trained, before anything is served
    if what:
        require("llm", "keepworth serve MODEL --memory")
        say(f"Loading {what} ...", error=True)
        from keepworth.training.model_server import upstream_of

        options["upstream"] = upstream_of(_answering(model, run, role, runs))
    elif upstream:
        options |= {"upstream": upstream, "upstream_key": upstream_key_in(upstream_key, upstream)}
    if what or upstream:
        from keepworth.serving.application import ServerLimits
        from keepworth.serving.gateway import GatewaySettings

        turn = min(500, memory_tokens)
        options["gateway"] = GatewaySettings(
            int(memory_items) if memory_items.isdecimal() else memory_items,
            memory_tokens,
            turn,
            threshold,
            not no_prompts,
        )
        options["limits"] = ServerLimits(call=call_mb * 2**20, bodies=max(ServerLimits().bodies, 2 * call_mb * 2**20))
    _serve_memory(memory, host=host, port=port, mcp=mcp, workers=workers, **options)


def _refuse(*mistakes: tuple[bool, str, str]) -> None:
    """Raises KeepworthError for the first mistake in the options, with its fix."""
    for made, message, fix in mistakes:
        if made:
            raise KeepworthError(message, fix)


def _serve_memory(memory: MemoryPlace, *, host: str, port: int, workers: int = 1, **options: Any) -> None:
    from keepworth.memory.telemetry import export_spans
    from keepworth.serving.memory_server import MemoryServer
    from keepworth.serving.workers import Workers

    spans = export_spans()
    options |= {"host": host, "port": port, "token": os.environ.get(KEY) or ""}
    server: MemoryServer | Workers
    if workers == 1:
        server = MemoryServer(memory.opens, **options)
    else:
        server = Workers(workers, memory.opens, say=partial(say, error=True), **options)
    with interruptible():
        try:
            with server:
                _say_memory(server, memory, host)
                if spans:
                    say(spans, error=True)
                server.wait()
        except KeyboardInterrupt:
            say("\nStopped.")
            raise typer.Exit(130) from None


def _serve_stdio(memory: MemoryPlace, user: str, **options: Any) -> None:
    """Serves until the host closes the connection. Only messages may be on standard output."""
    import asyncio

    from keepworth.serving.access import Access
    from keepworth.serving.mcp_tools import serve_stdio
    from keepworth.serving.open_memories import OpenMemories

    with closing(OpenMemories(memory.opens, options)) as memories, interruptible():
        asyncio.run(serve_stdio(memories, Access("stdio", user_id=str(user))))


def _say_memory(server: MemoryServer | Workers, memory: MemoryPlace, host: str) -> None:
    from keepworth.serving.http_server import reachable_here_alone

    local, token = reachable_here_alone(host), os.environ.get(KEY)
    to = "this machine" if local else f"whoever reaches {host}"
    say(f"{server.url}  serves {one_line(str(memory))} to {to}. Ctrl-C stops.")
    if processes := getattr(server, "processes", ()):
        say(f"{len(processes)} processes serve it ({', '.join(map(str, processes))}); one that ends is started again.")
    if memory.on_server:
        say(f"Its tokens lie in this folder, as {memory.base}.*")
    if token:
        say(f"The token is what {KEY} holds.")
    else:
        say(f"token: {server.token}  opens everything until this server stops.")
    say(f"page:  {server.url}/{'' if token else f'#token={server.token}'}  shows this memory in a browser.")
    if not local:
        say("Tokens and memories cross the network as they are: put a proxy with TLS in front.")
    body = json.dumps({"content": "Ana is allergic to peanuts", "user_id": "ana"})
    say(f"\nexport TOKEN={'...' if token else server.token}")
    say(f'curl {server.url}/v1/memory/items -H "Authorization: Bearer $TOKEN" \\')
    say(f"  -H 'Content-Type: application/json' -d {shlex.quote(body)}\n")
    if server.mcp:
        say(f"MCP (streamable HTTP): {server.url}/mcp, with the token as its bearer.\n")
    if server.leads_to:
        if server.keyless:
            say(f"No key is sent upstream, as {UPSTREAM_KEY} is not set.")
        say(f"OpenAI's routes: base_url={server.url}/v1, api_key=the token. They lead to {server.leads_to}.\n")


def upstream_key_in(variable: str, upstream: str) -> str:
    """Returns the value of an environment variable. Raises KeepworthError where it is not set and the upstream may need it."""
    from urllib.parse import urlsplit

    if variable == "none":
        return ""
    key, local = os.environ.get(variable, "").strip(), False
    with suppress(ValueError):  # of what is no address, which is said later
        local = urlsplit(upstream).hostname in ("127.0.0.1", "localhost", "::1")
    if not key and (variable != UPSTREAM_KEY or not local):
        raise KeepworthError(
            f"The upstream's key is read from the variable {variable}, which is not set.",
            f"Set it (export {variable}=...), name another with --upstream-key, or say --upstream-key none to send none.",
        )
    return key


def _model_or_run(what: str, runs: Path) -> tuple[str, str]:
    """Returns (model, run), one of which is "". A catalogued model comes before a run of its name, which can still be named by
    its folder. Raises UnknownName for a word that is neither."""
    from keepworth.base.model_files import KNOWN, MADE, ModelKind
    from keepworth.training.run_folder import is_run, list_runs

    if is_run(Path(what)) or (what not in (*KNOWN, *MADE) and what and is_run(runs / what)):
        return "", what
    if what and what not in (*KNOWN, *MADE) and "/" not in what and not Path(what).exists():
        models = (model.name for model in KNOWN.values() if model.kind is ModelKind.LANGUAGE)
        raise UnknownName("model or run", what, [*models, *MADE, *(path.name for path in list_runs(runs))])
    return what, ""


def _answering(model: str, run: str, role: str, runs: Path) -> InProcessModel:
    """Loads a model, or the weights of a run with the adapter merged. Raises KeepworthError where there is none."""
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel
    from keepworth.models.threads import settle_threads
    from keepworth.training.run_folder import find_run
    from keepworth.training.trained import find_trained

    if run:
        loaded = find_trained(find_run(run, runs), role).merged("bf16")
    else:
        loaded = InProcessModel.load(path_of(model, kind=ModelKind.LANGUAGE), name=model, precision="bf16")
    settle_threads(loaded)
    return loaded
