"""`keepworth memory grant`, `revoke` and `rights`: which roles of a server read what a person has."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from keepworth.cli.memory.group import FILE, app
from keepworth.cli.memory.opening import DEFAULT, Agent, File, Json, Session, User, check_there, named
from keepworth.cli.output import say, say_json

Role = Annotated[str, typer.Argument(metavar="ROLE", help="A role of the Postgres server, which exists.")]


@app.command(
    rich_help_panel=FILE, examples="keepworth memory grant ann_app --user ann --file postgresql://db.example/agents"
)
def grant(
    role: Role, user: User = "", agent: Agent = "", session: Session = "", file: File = DEFAULT, as_json: Json = False
) -> None:
    """Let a role of the Postgres server read what a person has, and nothing else, whatever SQL it sends.

    The first right turns row-level security on. The owner of the memory gives rights; the role never writes."""
    from keepworth.memory.rights import grant as give

    check_there(file)
    give(file.given, role, user_id=user, agent_id=agent, session_id=session)
    if as_json:
        say_json({"role": role, "user": user, "agent": agent, "session": session})
        return
    bounds = [word for name, value in _parts(user, agent, session) for word in (f"--{name}", value)]
    say(f"{role} reads what is of {' '.join(bounds[1::2])}, and writes nothing.")
    say(f"`{shlex.join(['keepworth', 'memory', 'revoke', role, *bounds, *named(file)])}` takes it back.", error=True)


@app.command(rich_help_panel=FILE, examples="keepworth memory revoke ann_app --file postgresql://db.example/agents")
def revoke(
    role: Role, user: User = "", agent: Agent = "", session: Session = "", file: File = DEFAULT, as_json: Json = False
) -> None:
    """Take back a right of a role, or, without --user, all that it has. It holds from its next statement."""
    from keepworth.memory.rights import revoke as take_back

    check_there(file)
    take_back(file.given, role, user_id=user, agent_id=agent, session_id=session)
    if as_json:
        say_json({"role": role, "revoked": dict(_parts(user, agent, session)) or "all"})
        return
    say(f"{role} no longer reads {'what is of ' + user if user else 'anything here'}.")


@app.command(rich_help_panel=FILE, examples="keepworth memory rights --file postgresql://db.example/agents")
def rights(file: File = DEFAULT, as_json: Json = False) -> None:
    """List which roles read what, and which of them read more by now than they were granted. Exits with 2 if any does."""
    from keepworth.memory.rights import rights as listed

    check_there(file)
    found = listed(file.given)
    if not found and not as_json:
        say("No role has rights here: row-level security is off, or holds for everybody but the owner.", error=True)
    for each in found:
        if as_json:
            parts = {"user": each.scope.user, "agent": each.scope.agent, "session": each.scope.session}
            say_json({"role": each.role, **parts, "unsound": each.unsound})
            continue
        of = "  ".join(
            f"{name} {value}" for name, value in _parts(each.scope.user, each.scope.agent, each.scope.session)
        )
        say(f"{each.role}  {of}{f'  (reads everything: it {each.unsound})' if each.unsound else ''}")
    if any(each.unsound for each in found):
        raise typer.Exit(2)


def _parts(user: str, agent: str, session: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in (("user", user), ("agent", agent), ("session", session)) if value]
