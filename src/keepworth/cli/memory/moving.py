"""`keepworth memory backup`, `export`, `import` and `migrate`: a memory in and out of other files and servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.memory.group import FILE, app
from keepworth.cli.memory.opening import (
    DEFAULT,
    Agent,
    Encoder,
    File,
    FileAlone,
    Json,
    Session,
    Target,
    User,
    check_there,
    opened,
)
from keepworth.cli.output import say, say_json, working
from keepworth.memory.place import MemoryPlace, file_of, place_of

if TYPE_CHECKING:
    from keepworth.memory.adapters.formats import FileFormat
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.scan import Scan


@app.command(rich_help_panel=FILE, examples="keepworth memory backup copy.mem")
def backup(target: Target, file: FileAlone = DEFAULT, as_json: Json = False) -> None:
    """Copy a memory, also while it is in use."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.maintenance import backup as back_up

    if file.on_server:
        raise MemoryProblem(
            f"`backup` copies a file, and {file} is on a server.", "Use pg_dump, or `keepworth memory export`."
        )
    with opened(file, "none") as memory, working("copying"):
        copy = back_up(memory.store, target)
    if as_json:
        say_json({"file": str(copy)})
        return
    say(copy)


OWN = "keepworth"
"""The format that loses nothing."""


@app.command(
    "export",
    rich_help_panel=FILE,
    examples="""
    keepworth memory export all.jsonl
    keepworth memory export notes.md --to markdown --user ana
    """,
)
def export_(
    target: Annotated[Path, typer.Argument(parser=file_of, help="A new file; - writes to the terminal.")],
    file: File = DEFAULT,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="keepworth, with all history; or what is true now as jsonl, mem0, letta or markdown."
        ),
    ] = OWN,
    user: User = "",
    agent: Agent = "",
    session: Session = "",
    as_json: Json = False,
) -> None:
    """Write everything, history included, as lines of JSON; or what is true now, in the format of others."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.transfer import exported

    if as_json and str(target) == "-":
        raise MemoryProblem("- and --json both write to standard output.", "Name a file, or leave --json out.")
    foreign = _file_format(to)
    if foreign is None and (user or agent or session):
        raise MemoryProblem(
            f"--to {OWN} writes the whole memory, with its journal.",
            "Leave --user, --agent and --session out, or take --to jsonl.",
        )
    with opened(file, "none") as memory:
        if foreign is not None:
            count = _write_foreign(memory, target, foreign, user_id=user, agent_id=agent, session_id=session)
            if as_json:
                say_json({"file": str(target), "format": to, "items": count})
            elif str(target) != "-":
                say(f"{count} {'item' if count == 1 else 'items'}.", error=True)
            return
        with closing(exported(memory.store)) as lines, working("writing"):
            written = _write_lines(lines, target)
    if as_json:
        say_json({"file": str(target), "format": to, "lines": written})


def _readable(given: str) -> Path:
    path = file_of(given)
    if not path.is_file():
        raise typer.BadParameter(f"File {str(path)!r} {'is a directory' if path.is_dir() else 'does not exist'}.")
    return path


def _write_lines(lines: Iterator[str], target: Path) -> int:
    """How many."""
    from keepworth.learning.run_folder import check_writable, disk, replacing
    from keepworth.memory.errors import MemoryProblem

    count = 0
    if str(target) == "-":
        for line in lines:
            count += 1
            say_json(json.loads(line), separators=(",", ":"))  # escapes what a terminal obeys: nothing is lost
        return count
    if target.exists():
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path.")
    check_writable(target)
    # Half an export looks like a whole one.
    with disk(target), replacing(target) as part, open(part, "w", encoding="utf-8") as out:
        for line in lines:
            count += 1
            out.write(line + "\n")
        out.flush()
    return count


def _file_format(name: str) -> FileFormat | None:
    """None for our own. Raises UnknownName."""
    from keepworth.episodes.errors import require_known
    from keepworth.memory.adapters.formats import FORMATS

    return FORMATS.get(require_known("format", name, [OWN, *FORMATS]))


def _write_foreign(memory: Memory, target: Path, foreign: FileFormat, **bounds: Any) -> int:
    """How many items."""
    from keepworth.learning.run_folder import check_writable, disk, replacing
    from keepworth.memory.errors import MemoryProblem

    items, after = [], ""
    while page := memory.get_all(limit=1000, after=after, **bounds):
        items += page
        after = page[-1].id
    text = foreign.writes(items)
    if str(target) == "-":
        say(text, end="")
        return len(items)
    if target.exists():
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path.")
    check_writable(target)
    with disk(target), replacing(target) as part, open(part, "w", encoding="utf-8", newline="\n") as out:
        out.write(text)
    return len(items)


@app.command(
    "import",
    rich_help_panel=FILE,
    examples="""
    keepworth memory import all.jsonl --file new.mem
    keepworth memory import memories.json --from mem0 --user ana
    """,
)
def import_(
    source: Annotated[Path, typer.Argument(parser=_readable, help="A file that `export` or another program wrote.")],
    file: File = DEFAULT,
    format: Annotated[
        str, typer.Option("--from", help="keepworth, into a new file; or jsonl, mem0, letta or markdown, into any.")
    ] = OWN,
    user: Annotated[str, typer.Option("--user", "-u", help="Whose memory, where the file does not say.")] = "",
    agent: Annotated[str, typer.Option("--agent", help="Which agent's, where the file does not say.")] = "",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be taken, and say it.")] = False,
    encoder: Encoder = "default",
    secrets: Annotated[
        str,
        typer.Option(
            "--secrets", help="What becomes of texts with keys or passwords: quarantine, redact, refuse, allow."
        ),
    ] = "quarantine",
    personal: Annotated[
        str, typer.Option("--personal", help="The same for mail addresses, phone and account numbers.")
    ] = "allow",
    as_json: Json = False,
) -> None:
    """Fill a new memory from an export, with the encoder it had; or add what another program kept. All of it, or nothing.

    It is looked through for secrets, as what a server is given."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.item import Status
    from keepworth.memory.scan import HELD_FOR, scan_of
    from keepworth.memory.store.transfer import encoder_of, imported

    foreign = _file_format(format)
    if foreign is not None:
        scan = scan_of(secrets, personal)
        _take_foreign(source, file, foreign, encoder, skip_bad, scan, as_json, user_id=user, agent_id=agent)
        return
    if "redact" in (secrets, personal):
        raise MemoryProblem(
            f"--from {OWN} takes the whole journal as it was, and takes nothing out of it.",
            "Say --secrets quarantine, refuse or allow; or export as jsonl, which has no history.",
        )
    if user or agent or skip_bad:
        raise MemoryProblem(
            f"--from {OWN} takes a whole memory as it was.",
            "Leave --user, --agent and --skip-bad out, or say another --from.",
        )
    # What is not UTF-8 is refused by `imported`, with the place.
    with open(source, encoding="utf-8", errors="replace") as lines:
        identity = encoder_of(lines.readline()) if encoder == "default" else None
    with (
        opened(file, encoder, make=True, identity=identity) as memory,
        open(source, encoding="utf-8") as lines,
    ):
        memory.store.scan = scan_of(secrets, personal)
        with working("reading"):
            before = imported(memory.store, lines)
        held = [
            item for item in memory.store.with_status(memory.scope, Status.QUARANTINED) if HELD_FOR in item.metadata
        ]
        if as_json:
            say_json({"items": before, "quarantined": len(held)})
            return
        say(f"{before} items{_in_quarantine(held)}.")


@app.command(
    rich_help_panel=FILE,
    examples="""
    keepworth memory migrate keepworth.mem postgresql://ann@db.example/agents
    keepworth memory migrate postgresql://ann@db.example/agents back.mem
    """,
)
def migrate(
    source: Annotated[
        MemoryPlace, typer.Argument(parser=place_of, help="A memory file, or the address of a memory in Postgres.")
    ],
    target: Annotated[
        MemoryPlace, typer.Argument(parser=place_of, help="A new file, or an address where there is no memory yet.")
    ],
    encoder: Encoder = "default",
    as_json: Json = False,
) -> None:
    """Take a memory from a file to a server, or back: what `export` and `import` take. All of it, or nothing."""
    import keepworth
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.transfer import exported, imported

    check_there(source)
    file = None if target.on_server else target.file
    if file is not None and file.exists():
        raise MemoryProblem(f"{file} exists: a memory never goes over another; give another path.")
    old = keepworth.Memory(source.opens, encoder=None, policy=None, writer=None, log="off", read_only=True)
    with closing(old):
        identity = old.store.encoder_identity() if encoder == "default" else None
        none = encoder == "none" or (encoder == "default" and identity is None)
        chosen = None if none else keepworth.encoder(encoder, identity)
        try:
            with (
                closing(keepworth.Memory(target.opens, encoder=chosen, policy=None, writer=None, log="off")) as new,
                closing(exported(old.store)) as lines,
                working("reading"),
            ):
                items = imported(new.store, lines)
                head, place = new.store.head(), new.path
        except BaseException:
            if file is not None:
                file.unlink(missing_ok=True)
            raise
    if as_json:
        say_json({"items": items, "journal": head, "to": place})
        return
    say(f"{items} items and {head} journal entries are in {place}. {old.path} is as it was.")


def _in_quarantine(held: list[Item]) -> str:
    """How many, and for which kinds of secrets."""
    from collections import Counter

    from keepworth.memory.scan import HELD_FOR

    kinds = Counter(kind for item in held for kind in str(item.metadata.get(HELD_FOR, "")).split())
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f", {len(held)} of them in quarantine ({listed}; `keepworth memory quarantine` lists them)" if held else ""


def _take_foreign(
    source: Path,
    file: MemoryPlace,
    foreign: FileFormat,
    encoder: str,
    skip_bad: bool,
    scan: Scan | None,
    as_json: bool,
    **bounds: str,
) -> None:
    from keepworth.memory.adapters.formats import take
    from keepworth.memory.errors import InvalidText
    from keepworth.memory.item import Status

    try:
        text = source.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"{source} is not UTF-8 text ({error}).", "Convert it first, with iconv for example; nothing was imported."
        ) from error
    found = list(foreign.reads(text))
    with opened(file, encoder, make=True) as memory:
        memory.store.scan = scan
        head = memory.store.head()
        with working("reading"):
            items, bad = take(memory, found, where=str(source), skip_bad=skip_bad, **bounds)
        for line in bad:
            say(f"Left out: {line}", error=True)
        new = list({item.id: item for item in items if int(item.id[1:]) > head}.values())  # the file may say it twice
        quarantined = [item for item in new if item.status is Status.QUARANTINED]
        held = _in_quarantine(quarantined)
        texts = {str(each.record.get("text")) for each in found}
        taken = sum(item.text not in texts for item in new)
        if as_json:
            known = len(items) - len(new)
            counts = {"items": len(new), "known": known, "left_out": len(bad), "quarantined": len(quarantined)}
            say_json({**counts, "redacted": taken})
            return
        say(
            f"{len(new)} items, {len(items) - len(new)} that were there already{f', {len(bad)} left out' if bad else ''}{held}"
            f"{f', {taken} without what was taken out of them' if taken else ''}."
        )
