"""`keepworth memory quarantine`, `audit` and `token`: what is held back, and who may do what through a server."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.command import App
from keepworth.cli.memory.group import FILE, app
from keepworth.cli.memory.opening import DEFAULT, Agent, File, Json, User, named, opened, print_item
from keepworth.cli.output import say, say_json
from keepworth.episodes.text import one_line
from keepworth.memory.place import MemoryPlace

if TYPE_CHECKING:
    from keepworth.serving.access import Tokens


@app.command(
    rich_help_panel=FILE,
    examples="""
    keepworth memory quarantine
    keepworth memory quarantine --release m17
    """,
)
def quarantine(
    release: Annotated[
        str, typer.Option("--release", metavar="ID", help="Let this item out, for searches to find.")
    ] = "",
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """List the items that are held for a secret in them, or release one."""
    with opened(file, "none") as memory:
        if release:
            print_item(memory.release(release), as_json)
            return
        after = ""
        if not memory.quarantined(limit=1):
            say("Nothing is held back.", error=True)
        while page := memory.quarantined(after=after):
            for item in page:
                print_item(item, as_json)
            after = page[-1].id


@app.command(rich_help_panel=FILE, examples="keepworth memory audit --last 20 --json")
def audit(
    file: File = DEFAULT,
    last: Annotated[int, typer.Option("--last", min=1, help="So many entries, the newest.")] = 100,
    as_json: Json = False,
) -> None:
    """Show who did what through `keepworth serve --memory`, by the ids of tokens."""
    from collections import deque

    from keepworth.serving.audit import audit_of, entries

    _tokens(file)  # raises where there is no such memory
    found = deque(entries(audit_of(file.beside)), last)
    if not found and not as_json:
        say("Nothing is noted: `keepworth serve --memory` notes who changes what, and with --audit all who reads what.")
    for entry in found:
        if as_json:
            say_json(entry)
            continue
        who = " ".join(str(entry[name]) for name in ("tenant", "user", "agent") if entry.get(name))
        what = [str(entry.get(name, "")) for name in ("at", "token")] + [who, str(entry["what"])]
        if "tool" in entry:
            what.append(f"{entry['tool']}: {entry.get('outcome', '')}")
        more = f"{entry['times']} times" if "times" in entry else entry.get("status", "")
        say(one_line(f"{'  '.join(each for each in what if each)}  {more}  {' '.join(entry.get('ids', []))}".rstrip()))


tokens_app = App(help="Give and take back the tokens of `keepworth serve --memory`.")
app.add_typer(tokens_app, name="token", rich_help_panel=FILE)


@tokens_app.command("add", examples="keepworth memory token add --user ana --role read --days 30")
def add_token(
    file: File = DEFAULT,
    tenant: Annotated[
        str, typer.Option("--tenant", help="Whose memory: each tenant has a file, or a schema, of its own.")
    ] = "",
    user: User = "",
    agent: Agent = "",
    role: Annotated[
        list[str] | None, typer.Option("--role", help="read, write, reward or admin; may be given several times.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What it is called in lists.")] = "",
    days: Annotated[float | None, typer.Option("--days", help="Until it ends; never if not given.")] = None,
    shared: Annotated[
        list[str] | None,
        typer.Option(
            "--shared",
            metavar="NAME:read[,write]",
            help="What lies under a name that stands for a team is seen, too; with write it may be changed. May be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token, and show it: the only time, as the file beside the memory holds its hash alone.

    Without --role it may read, write and reward. A server that runs knows it at once."""
    from dataclasses import asdict

    from keepworth.serving.access import new_access, shared_of, tokens_of

    roles = role or ["read", "write", "reward"]
    access = new_access(
        tenant=tenant, user_id=user, agent_id=agent, roles=roles, name=name, days=days, shared=shared_of(shared or ())
    )
    token = _tokens(file).add(access)
    if as_json:
        say_json({"token": token, **asdict(access)})
        return
    say(token)
    remove = ["keepworth", "memory", "token", "remove", access.id, *named(file)]
    say(f"{access.id}: {', '.join(access.roles)}. `{shlex.join(remove)}` takes it back.", error=True)
    if file.on_server:
        say(f"Noted in {tokens_of(file.beside)}: start the server in this folder.", error=True)


@tokens_app.command("list", examples="keepworth memory token list --json")
def list_tokens(file: File = DEFAULT, as_json: Json = False) -> None:
    """List tokens by their names, without the tokens."""
    from dataclasses import asdict

    found = _tokens(file).all()
    if not found and not as_json:
        say("There are no tokens but the one that a server prints: `keepworth memory token add` makes one.")
    for each in found:
        if as_json:
            say_json(asdict(each))
            continue
        shared = " ".join(f"{name}:{','.join(permissions)}" for name, permissions in each.shared.items())
        bounds = {
            "tenant": each.tenant,
            "user": each.user_id,
            "agent": each.agent_id,
            "shared": shared,
            "until": each.until,
        }
        more = "".join(f"  {part} {one_line(value)}" for part, value in bounds.items() if value)
        say(f"{each.id}  {', '.join(each.roles)}{more}{f'  {one_line(each.name)}' if each.name else ''}")


@tokens_app.command("remove", examples="keepworth memory token remove t3f2a")
def remove_token(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of a token, as `list` gives it.")],
    file: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """Take a token back. A server that runs refuses it at once."""
    _tokens(file).remove(id)
    if as_json:
        say_json({"removed": id})
        return
    say(f"{id} opens nothing any more.")


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
