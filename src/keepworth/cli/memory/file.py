"""`keepworth memory backup`, `export`, `import`; `stats`, `check`, `compact`, `reembed`; `quarantine` and `token`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from keepworth.base.errors import require_known
from keepworth.base.text import one_line, terminal
from keepworth.cli.command import App, argument, bound, option
from keepworth.cli.memory.group import (
    Agent,
    Line,
    Lines,
    NoteLine,
    User,
    Yes,
    again,
    app,
    check_there,
    command,
    every_page,
    item_line,
    opened,
)
from keepworth.cli.output import Personal, Secrets, confirm, say, say_json, stopping, working
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.place import MemoryPlace, file_of
from keepworth.serving.verb import FILE, OWN_ENCODER

if TYPE_CHECKING:
    from keepworth.adapters.formats import FoundRecord
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.scan import Scan
    from keepworth.serving.access import Tokens


@command(FILE, examples="keepworth memory backup copy.mem", opens=None)
def backup(file: MemoryPlace, target: Annotated[Path, argument("", "A new file.", parser=file_of)]) -> Lines:
    """Copy a memory, also while it is in use."""
    from keepworth.memory.store.maintenance import backup as back_up

    if file.on_server:
        raise MemoryProblem(
            f"`backup` copies a file, and {file} is on a server.", "Use pg_dump, or `keepworth memory export`."
        )
    with opened(file, "none") as memory, working("copying"):
        copy = str(back_up(memory.store, target))
    yield Line({"file": copy}, copy)


TO = ("keepworth", "jsonl", "pam", "folder", "markdown")


@command(
    FILE,
    "export",
    examples="""
    keepworth memory export all.jsonl
    keepworth memory export notes.jsonl --to jsonl --user ana
    keepworth memory export notes --to folder
    keepworth memory export CLAUDE.kept.md --to markdown --like CLAUDE.md
    """,
    bounds=True,
    opens=None,
)
def export_(
    file: MemoryPlace,
    bounds: dict[str, Any],
    as_json: bool,
    target: Annotated[Path, argument("", "A new file, or a folder; - writes to the terminal.", parser=file_of)],
    to: Annotated[
        str,
        option(
            "--to",
            "keepworth: everything, with its history. What is true now: jsonl, pam (Portable AI Memory), folder (markdown, a "
            "line an item, which `import` reads back as you edited it); markdown: a file that was imported without what is gone.",
        ),
    ] = "keepworth",
    like: Annotated[Path | None, option("--like FILE", "For --to markdown: the file that was imported.")] = None,
) -> Lines:
    """Write everything, history included, as lines of JSON; or what is true now, in one of several forms."""
    from keepworth.adapters.formats import OWN, write_folder, write_lines, write_pam
    from keepworth.memory.store.transfer import exported

    if as_json and str(target) == "-":
        raise MemoryProblem("- and --json both write to standard output.", "Name a file, or leave --json out.")
    whole = require_known("format", to, TO) == OWN
    if whole and any(bounds.values()):
        raise MemoryProblem(
            f"--to {OWN} writes the whole memory, with its journal.",
            "Leave --user, --agent and --session out, or take --to jsonl.",
        )
    if (to == "markdown") != (like is not None):
        raise MemoryProblem(
            "--to markdown writes a file again that was imported, and --like names it.",
            "Give both, or take --to folder for the whole memory.",
        )
    if to == "folder" and str(target) == "-":
        raise MemoryProblem("A folder cannot be written to the terminal.", "Name a new folder.")
    record = {"file": str(target), "format": to}
    with opened(file, "none") as memory:
        if whole:
            counted = count()
            with closing(exported(memory.store)) as lines, working("writing"):
                _write(target, (f"{line}\n" for line, _ in zip(lines, counted, strict=False)), is_json=True)
            yield Line({**record, "lines": next(counted)})
            return
        items = list(every_page(lambda after: memory.get_all(limit=1000, after=after, **bounds)))
        if like is not None:
            from keepworth.adapters.instructions import write_back

            text, changes = write_back(memory, like, **bounds)
            _write(target, [text])
            yield Line({**record, **asdict(changes)})
            yield NoteLine(f"{changes}.")
            return
        if to == "folder":
            _write_folder(target, write_folder(items))
        elif to == "pam":
            owner = str(bounds.get("user_id") or memory.scope.user or "keepworth")
            _write(target, [write_pam(items, owner=owner, now=memory.store.clock())])
        else:
            _write(target, [write_lines(items)])
        yield Line({**record, "items": len(items)})
        if str(target) != "-":
            yield NoteLine(f"{len(items)} {'item' if len(items) == 1 else 'items'}.")


def _write_folder(target: Path, files: Mapping[str, str]) -> None:
    """Writes files into a new folder, which appears once all of them are written."""
    from keepworth.base.durable_files import replacing_folder

    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path, or an empty folder.")
    with replacing_folder(target) as part:
        for name, text in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(text.encode())


def _write(target: Path, parts: Iterable[str], *, is_json: bool = False) -> None:
    from keepworth.base.durable_files import ORDINARY, check_writable, disk, replacing

    if str(target) == "-":
        for part in parts:
            if is_json:
                say_json(json.loads(part), separators=(",", ":"))  # escapes what a terminal obeys: nothing is lost
            else:
                say(part, end="")
        return
    if target.exists():
        raise MemoryProblem(f"{target} exists and is not overwritten.", "Give another path.")
    check_writable(target)
    # Half an export looks like a whole one.
    with disk(target), replacing(target, ORDINARY) as out:
        out.writelines(part.encode() for part in parts)


def _readable(given: str) -> Path:
    path = file_of(given)
    if not path.exists():
        raise typer.BadParameter(f"File {str(path)!r} does not exist.")
    return path


@command(
    FILE,
    "import",
    examples="""
    keepworth memory import all.jsonl --file new.mem
    keepworth memory import memories.json --user ana
    keepworth memory import CLAUDE.md AGENTS.md
    keepworth memory import notes --delete-missing
    """,
    encoder=True,
    opens=None,
)
def import_(
    file: MemoryPlace,
    encoder: str,
    sources: Annotated[
        list[Path],
        argument("SOURCE", "Files, or one folder, that `export` or other programs wrote.", parser=_readable),
    ],
    format: Annotated[
        str,
        option(
            "--from",
            "keepworth, into a new file; or jsonl, mem0, pam, markdown or folder, into any. Else by the content.",
        ),
    ] = "",
    user: User = "",
    agent: Agent = "",
    skip_bad: Annotated[bool, option("--skip-bad", "Leave out what cannot be taken, and say it.")] = False,
    delete_missing: Annotated[
        bool, option("--delete-missing", "From a folder: delete what was exported and is no more in it.")
    ] = False,
    secrets: Secrets = "quarantine",
    personal: Personal = "allow",
) -> Lines:
    """Fill a new memory from an export, with the encoder it had; or add what another program kept. All of it, or nothing.

    A folder that `export --to folder` wrote is read as you edited it: what changed is updated, what is new added. Of markdown,
    each item knows its file, heading and line.

    --user and --agent apply to entries that name nobody. Texts with secrets are treated as --secrets says."""
    from keepworth.adapters.formats import FOLDER, FORMATS, OWN, recognise
    from keepworth.memory.item import Status
    from keepworth.memory.scan import HELD_FOR, scan_of
    from keepworth.memory.store.transfer import encoder_of, imported

    if format:
        require_known("format", format, [OWN, FOLDER, *FORMATS])
    for source in sources:
        if source.is_fifo() and format not in FORMATS:
            raise MemoryProblem(
                f"{source} is a pipe, which can be read once, and its form is not known.",
                f"Say it with --from ({', '.join(FORMATS)}), or save what it gives as a file first.",
            )
        if not (source.is_fifo() or source.is_file() or source.is_dir()):
            raise MemoryProblem(f"{source} is a device or the like, which may never end.", "Name a file.")
    forms = {source: format or recognise(source) for source in sources}
    if delete_missing and set(forms.values()) != {FOLDER}:
        raise MemoryProblem(
            "--delete-missing is for a folder that `export --to folder` wrote.", "Leave it out for anything else."
        )
    if OWN not in forms.values():
        scan = scan_of(secrets, personal)
        with opened(file, encoder, make=True) as memory:
            yield from _take_foreign(
                memory, forms, skip_bad, delete_missing, scan, {"user_id": user, "agent_id": agent}
            )
        return
    if len(sources) > 1:
        raise MemoryProblem(
            f"{next(source for source, form in forms.items() if form == OWN)} is a whole memory, which fills a new file alone.",
            "Import it by itself, into a file of its own.",
        )
    if "redact" in (secrets, personal):
        raise MemoryProblem(
            f"An export as {OWN} is taken with the whole journal as it was, and nothing is taken out of it.",
            "Say --secrets quarantine, refuse or allow; or export as jsonl, which has no history.",
        )
    if user or agent or skip_bad:
        raise MemoryProblem(
            f"An export as {OWN} is a whole memory, and is taken as it was.",
            "Leave --user, --agent and --skip-bad out, or say another --from.",
        )
    (source,) = sources
    if source.is_dir():
        raise MemoryProblem(
            f"{source} is a folder, and {OWN} is the form of a file.", "Name the file that `export` wrote."
        )
    # What is not UTF-8 is refused by `imported`, with the place.
    with _opened_text(source, errors="replace") as lines:
        identity = encoder_of(lines.readline()) if encoder == "default" else None
    with opened(file, encoder, make=True, identity=identity) as memory, _opened_text(source) as lines:
        memory.store.scan = scan_of(secrets, personal)
        with stopping("Nothing was imported."), working("reading"):
            items = imported(memory.store, lines)
        quarantined = memory.store.items(memory.scope, status=Status.QUARANTINED)
        held = [item for item in quarantined if HELD_FOR in item.metadata]
        yield Line({"items": items, "quarantined": len(held)}, f"{items} items{_in_quarantine(held)}.")


@contextmanager
def _opened_text(path: Path, errors: str | None = None) -> Iterator[IO[str]]:
    try:
        file = open(path, encoding="utf-8", errors=errors)  # noqa: SIM115
    except OSError as error:
        raise MemoryProblem(
            f"{path} cannot be read ({error.strerror}).", "Give a file that this user may read."
        ) from error
    with file:
        yield file


def _take_foreign(
    memory: Memory,
    forms: Mapping[Path, str],
    skip_bad: bool,
    delete_missing: bool,
    scan: Scan | None,
    bounds: dict[str, Any],
) -> Lines:
    from keepworth.adapters.formats import FOLDER, read_folder, take
    from keepworth.memory.item import Status

    memory.store.scan = scan
    head, missing = memory.store.head(), dict[str, str]()
    with stopping("Nothing was imported."), working("reading"):
        records: list[FoundRecord] = []
        for source, form in forms.items():
            if form == FOLDER:
                folder = read_folder(source)
                missing |= folder.missing
                records += folder.records
            else:
                records += _records_of(source, form, several=len(forms) > 1)
        where = str(next(iter(forms))) if len(forms) == 1 else "What is imported"
        items, bad = take(
            memory, records, where=where, skip_bad=skip_bad, gone=missing if delete_missing else None, **bounds
        )
    yield from (NoteLine(f"Left out: {line}") for line in bad)
    changed = memory.store.fetch(memory.scope, memory.store.changed_since(head))
    new = list({item.id: item for item in items if int(item.id[1:]) > head}.values())  # the file may say it twice
    deleted = [id for id, item in changed.items() if int(id[1:]) <= head and (item is None or item.deleted)]
    updated = [id for id in changed if int(id[1:]) <= head and id not in deleted]
    already = len(items) - len(new) - sum(item.id in updated for item in items)
    held = [item for item in new if item.status is Status.QUARANTINED]
    texts = {str(record.record.get("text")) for record in records}
    redacted = sum(item.text not in texts for item in new)
    counts = {"items": len(new), "known": already, "left_out": len(bad), "quarantined": len(held), "redacted": redacted}
    counts |= {"updated": len(updated), "deleted": len(deleted), "missing": len(missing)}
    more = "".join(
        f", {number} {words}"
        for number, words in ((len(updated), "changed"), (len(deleted), "deleted"), (len(bad), "left out"))
        if number
    )
    without = f", {redacted} without what was taken out of them" if redacted else ""
    yield Line(counts, f"{len(new)} items, {already} that were there already{more}{_in_quarantine(held)}{without}.")
    if missing and not delete_missing:
        yield NoteLine(
            f"{len(missing)} of what was exported is in the folder no more, and stays: --delete-missing deletes it."
        )
    elif len(missing) > len(deleted):
        yield NoteLine(
            f"{len(missing) - len(deleted)} of what is missing was changed or deleted since, and was left as it is."
        )


def _records_of(source: Path, form: str, *, several: bool) -> list[FoundRecord]:
    """Reads a file of another program. Each record's place names the file where there are several."""
    from keepworth.adapters.formats import FORMATS, place_in_file, read_text

    if source.is_dir():
        raise MemoryProblem(f"{source} is a folder, and {form} is the form of a file.", "Name the files in it.")
    try:
        records = FORMATS[form](read_text(source))
        if form == "markdown":
            with suppress(ValueError):
                source = source.resolve().relative_to(Path.cwd())
            records = place_in_file(records, source.as_posix())
        return [replace(record, place=f"{source}, {record.place}") if several else record for record in records]
    except MemoryProblem as problem:
        raise MemoryProblem(f"{source}: {problem.message}", problem.fix) from problem


def _in_quarantine(held: list[Item]) -> str:
    """Describes how many items are in quarantine, and for which kinds of secrets."""
    from keepworth.memory.scan import HELD_FOR

    kinds = Counter(kind for item in held for kind in str(item.metadata.get(HELD_FOR, "")).split())
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f", {len(held)} of them in quarantine ({listed}; `keepworth memory quarantine` lists them)" if held else ""


@command(FILE, examples="keepworth memory stats --json")
def stats(memory: Memory) -> Lines:
    """Say what is in the file."""
    from keepworth.memory.store.maintenance import statistics

    figures = {**asdict(statistics(memory.store)), "snapshot": memory.snapshot()}
    shown = (
        f"{name.replace('_', ' '):>14}  {value:,}" if isinstance(value, int) else f"{name:>14}  {value}"
        for name, value in figures.items()
    )
    yield Line(figures, "\n".join(shown))


@command(
    FILE,
    examples="""
    keepworth memory check
    keepworth memory check --quick --json
    """,
)
def check(memory: Memory, quick: Annotated[bool, option("--quick", "Do not replay the journal.")] = False) -> Lines:
    """Check the file, its indexes, and that the journal leads to what the memory says. Exits with 2 where it does not."""
    from keepworth.memory.store.maintenance import check as check_store
    from keepworth.memory.store.maintenance import first_pass_recall

    with working("checking") as report:
        problems = check_store(memory.store, deep=not quick, report=report)
        report("the first pass of searches by meaning")
        recall = None if problems else first_pass_recall(memory.store)
    data: dict[str, Any] = {"sound": not problems, "problems": problems}
    if recall is not None:
        data["first_pass"] = asdict(recall)
    yield Line(data, "\n".join([*(problems or ["Sound."]), *([str(recall)] if recall is not None else [])]))
    if problems:
        raise typer.Exit(2)


@command(
    FILE,
    examples="""
    keepworth memory compact
    keepworth memory compact --keep-decisions 10000 --yes
    """,
    opens=OWN_ENCODER,
)
def compact(
    memory: Memory,
    file: MemoryPlace,
    keep_decisions: Annotated[int | None, option("N", "Drop the candidates of older decisions; asks.", min=0)] = None,
    yes: Yes = False,
) -> Lines:
    """Give back space, and make vectors that items lack. Never changes what the memory says."""
    from keepworth.memory.store.maintenance import compact as compact_store

    if yes and keep_decisions is None:
        raise typer.BadParameter("--yes goes with --keep-decisions: nothing else is asked")
    if keep_decisions is not None:
        confirm(f"Drop the candidates of all but the newest {keep_decisions:,} decisions of {file}, for good?", yes)
    with working("compacting"):
        before, after = compact_store(memory.store, keep_decisions=keep_decisions)
    yield Line({"bytes_before": before, "bytes": after}, f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now.")


@command(FILE, examples="keepworth memory reembed minilm")
def reembed(
    memory: Memory,
    file: MemoryPlace,
    name: Annotated[str, argument("ENCODER", "minilm, hashing, hashing:DIMENSION, a folder, or URL#MODEL.")],
) -> Lines:
    """Make every vector anew with another encoder; with the same one, those that are missing.

    It can be interrupted, and goes on where it stopped."""
    from rich.progress import Progress

    from keepworth.encoders.local import encoder
    from keepworth.memory.store.maintenance import reembed as make_again

    with Progress(console=terminal(stderr=True), transient=True) as bar:
        job = bar.add_task("vectors", total=None)
        for done, everything in make_again(memory.store, encoder(name)):
            bar.update(job, completed=done, total=everything)
    yield Line({"file": str(file), "encoder": name}, f"{file} now has vectors of {name}.")


@command(
    FILE,
    examples="""
    keepworth memory quarantine
    keepworth memory quarantine --release m17
    """,
)
def quarantine(
    memory: Memory, release: Annotated[str, option("--release ID", "Let this item out, for searches to find.")] = ""
) -> Lines:
    """List the items that are held for a secret in them, or release one."""
    if release:
        yield item_line(memory.release(release))
        return
    if not memory.quarantined(limit=1):
        yield NoteLine("Nothing is held back.")
    yield from map(item_line, every_page(lambda after: memory.quarantined(after=after)))


tokens_app = App(help="Give and take back the tokens of `keepworth serve --memory`.")
app.add_typer(tokens_app, name="token", rich_help_panel=FILE)


@command(tokens_app, "add", examples="keepworth memory token add --user ana --role read --days 30", opens=None)
def add_token(
    file: MemoryPlace,
    tenant: Annotated[
        str, option("--tenant", "Whose memory: each tenant has a file, or a schema, of its own.", callback=bound)
    ] = "",
    user: User = "",
    agent: Agent = "",
    role: Annotated[list[str] | None, option("--role", "read, write, reward or admin; may be repeated.")] = None,
    name: Annotated[str, option("--name", "The token's name in lists.")] = "",
    days: Annotated[float | None, option("--days", "Days until it ends; without, it never does.")] = None,
    shared: Annotated[
        list[str] | None,
        option(
            "--shared NAME:read[,write]",
            "The token also reads, or with write changes, what is stored under this name of a team. May be repeated.",
        ),
    ] = None,
) -> Lines:
    """Make a token and show it, this once: only its hash is stored.

    Without --role it may read, write and reward. A running server accepts it at once."""
    from keepworth.serving.access import new_access, parse_shared, tokens_of

    roles = role or ["read", "write", "reward"]
    access = new_access(
        tenant=tenant,
        user_id=user,
        agent_id=agent,
        roles=roles,
        name=name,
        days=days,
        shared=parse_shared(shared or ()),
    )
    token = _tokens(file).add(access)
    yield Line({"token": token, **access.record()}, token)
    yield NoteLine(
        f"{access.id}: {', '.join(access.roles)}. `{again(file, 'token', 'remove', access.id)}` takes it back."
    )
    if file.on_server:
        yield NoteLine(f"Noted in {tokens_of(file.base)}: start the server in this folder.")


@command(tokens_app, "list", examples="keepworth memory token list --json", opens=None)
def list_tokens(file: MemoryPlace) -> Lines:
    """List tokens by their names, without the tokens."""
    listed = _tokens(file).all()
    if not listed:
        yield Line(
            None, "There are no tokens but the one that a server prints: `keepworth memory token add` makes one."
        )
    for access in listed:
        shared = " ".join(f"{name}:{','.join(permissions)}" for name, permissions in access.shared.items())
        bounds = {"tenant": access.tenant, "user": access.user_id, "agent": access.agent_id}
        bounds |= {"shared": shared, "until": access.record()["until"]}
        more = "".join(f"  {part} {one_line(value)}" for part, value in bounds.items() if value)
        name = f"  {one_line(access.name)}" if access.name else ""
        yield Line(access.record(), f"{access.id}  {', '.join(access.roles)}{more}{name}")


@command(tokens_app, "remove", examples="keepworth memory token remove t3f2a", opens=None)
def remove_token(
    file: MemoryPlace, id: Annotated[str, argument("ID", "The id of a token, as `list` gives it.")]
) -> Lines:
    """Take a token back. A running server refuses it at once."""
    _tokens(file).remove(id)
    yield Line({"removed": id}, f"{id} opens nothing any more.")


def _tokens(file: MemoryPlace) -> Tokens:
    """Returns the tokens of a memory. Raises NotAMemoryFile where the memory does not exist, so that a mistyped name is
    noticed."""
    from keepworth.serving.access import Tokens, tokens_of

    check_there(file)
    return Tokens(tokens_of(file.base))
