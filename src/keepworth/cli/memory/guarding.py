"""`keepworth memory quarantine`, `audit` and `token`: what is held back, and who may do what through a server."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from keepworth.cli.command import App, argument, option
from keepworth.cli.memory.group import (
    FILE,
    Agent,
    Line,
    Lines,
    NoteLine,
    TextLine,
    User,
    again,
    app,
    command,
    item_line,
)
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory
    from keepworth.serving.access import Tokens


@command(
    FILE,
    examples="""
    keepworth memory quarantine
    keepworth memory quarantine --release m17
    """,
)
def quarantine(
    memory: Memory,
    release: Annotated[str, option("--release ID", "Let this item out, for searches to find.")] = "",
) -> Lines:
    """List the items that are held for a secret in them, or release one."""
    if release:
        yield item_line(memory.release(release))
        return
    after = ""
    if not memory.quarantined(limit=1):
        yield NoteLine("Nothing is held back.")
    while page := memory.quarantined(after=after):
        yield from map(item_line, page)
        after = page[-1].id


@command(FILE, examples="keepworth memory audit --last 20 --json", opens=None)
def audit(
    file: MemoryPlace,
    last: Annotated[int, option("--last", "So many entries, the newest.", min=1)] = 100,
) -> Lines:
    """Show who did what through `keepworth serve --memory`, by the ids of tokens."""
    from collections import deque

    from keepworth.serving.audit import audit_of, entries

    _tokens(file)  # raises where there is no such memory
    noted = deque(entries(audit_of(file.beside)), last)
    if not noted:
        yield TextLine("Nothing is noted: `keepworth serve --memory` notes who changes what.")
    for entry in noted:
        who = " ".join(str(entry[name]) for name in ("tenant", "user", "agent") if entry.get(name))
        what = [str(entry.get(name, "")) for name in ("at", "token")] + [who, str(entry["what"])]
        if "tool" in entry:
            what.append(f"{entry['tool']}: {entry.get('outcome', '')}")
        more = f"{entry['times']} times" if "times" in entry else entry.get("status", "")
        ids = " ".join(entry.get("ids", []))
        yield Line(entry, one_line(f"{'  '.join(each for each in what if each)}  {more}  {ids}".rstrip()))


tokens_app = App(help="Give and take back the tokens of `keepworth serve --memory`.")
app.add_typer(tokens_app, name="token", rich_help_panel=FILE)


@command(tokens_app, "add", examples="keepworth memory token add --user ana --role read --days 30", opens=None)
def add_token(
    file: MemoryPlace,
    tenant: Annotated[str, option("--tenant", "Whose memory: each tenant has a file, or a schema, of its own.")] = "",
    user: User = "",
    agent: Agent = "",
    role: Annotated[
        list[str] | None, option("--role", "read, write, reward or admin; may be given several times.")
    ] = None,
    name: Annotated[str, option("--name", "What it is called in lists.")] = "",
    days: Annotated[float | None, option("--days", "Until it ends; never if not given.")] = None,
) -> Lines:
    """Make a token, and show it: the only time, as the file beside the memory holds its hash alone.

    Without --role it may read, write and reward. A server that runs knows it at once."""
    from keepworth.serving.access import new_access, tokens_of

    roles = role or ["read", "write", "reward"]
    access = new_access(tenant=tenant, user_id=user, agent_id=agent, roles=roles, name=name, days=days)
    token = _tokens(file).add(access)
    yield Line({"token": token, **asdict(access)}, token)
    yield NoteLine(
        f"{access.id}: {', '.join(access.roles)}. `{again(file, 'token', 'remove', access.id)}` takes it back."
    )
    if file.on_server:
        yield NoteLine(f"Noted in {tokens_of(file.beside)}: start the server in this folder.")


@command(tokens_app, "list", examples="keepworth memory token list --json", opens=None)
def list_tokens(file: MemoryPlace) -> Lines:
    """List tokens by their names, without the tokens."""
    listed = _tokens(file).all()
    if not listed:
        yield TextLine("There are no tokens but the one that a server prints: `keepworth memory token add` makes one.")
    for each in listed:
        bounds = {"tenant": each.tenant, "user": each.user_id, "agent": each.agent_id, "until": each.until}
        more = "".join(f"  {part} {one_line(value)}" for part, value in bounds.items() if value)
        name = f"  {one_line(each.name)}" if each.name else ""
        yield Line(asdict(each), f"{each.id}  {', '.join(each.roles)}{more}{name}")


@command(tokens_app, "remove", examples="keepworth memory token remove t3f2a", opens=None)
def remove_token(file: MemoryPlace, id: Annotated[str, argument("ID", "Of a token, as `list` gives it.")]) -> Lines:
    """Take a token back. A server that runs refuses it at once."""
    _tokens(file).remove(id)
    yield Line({"removed": id}, f"{id} opens nothing any more.")


def _tokens(file: MemoryPlace) -> Tokens:
    """Raises NotAMemoryFile: tokens beside a memory that is not there open nothing, and a mistyped name would not be seen."""
    from keepworth.memory.errors import NotAMemoryFile
    from keepworth.memory.store.opening import is_there
    from keepworth.serving.access import Tokens, tokens_of

    if not (is_there(file.given) if file.on_server else file.file.is_file()):
        serve = ["keepworth", "serve", "--memory", str(file)]
        raise NotAMemoryFile(
            f"There is no memory at {file}.",
            f"Name the memory that is served with --file, or make it: {shlex.join(serve)}.",
        )
    return Tokens(tokens_of(file.beside))
