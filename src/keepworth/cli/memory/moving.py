"""`keepworth memory backup`, `export` and `import`: a memory in and out of other files and servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keepworth.cli.command import argument, option
from keepworth.cli.memory.group import (
    FILE,
    Agent,
    FileAlone,
    Line,
    Lines,
    NoteLine,
    Target,
    User,
    command,
    opened,
)
from keepworth.cli.output import say, say_json, working
from keepworth.memory.place import MemoryPlace, file_of

if TYPE_CHECKING:
    from keepworth.memory.adapters.formats import FileFormat
    from keepworth.memory.item import Item
    from keepworth.memory.memory import Memory
    from keepworth.memory.scan import Scan


@command(FILE, examples="keepworth memory backup copy.mem", file=FileAlone, opens=None)
def backup(file: MemoryPlace, target: Target) -> Lines:
    """Copy a memory, also while it is in use."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.maintenance import backup as back_up

    if file.on_server:
        raise MemoryProblem(
            f"`backup` copies a file, and {file} is on a server.", "Use pg_dump, or `keepworth memory export`."
        )
    with opened(file, "none") as memory, working("copying"):
        copy = str(back_up(memory.store, target))
    yield Line({"file": copy}, copy)


OWN = "keepworth"
"""The format that loses nothing."""


@command(
    FILE,
    "export",
    examples="""
    keepworth memory export all.jsonl
    keepworth memory export notes.md --to markdown --user ana
    """,
    bounds=True,
    opens=None,
)
def export_(
    file: MemoryPlace,
    bounds: dict[str, Any],
    as_json: bool,
    target: Annotated[Path, argument("", "A new file; - writes to the terminal.", parser=file_of)],
    to: Annotated[
        str, option("--to", "keepworth, with all history; or what is true now as jsonl, mem0 or markdown.")
    ] = OWN,
) -> Lines:
    """Write everything, history included, as lines of JSON; or what is true now, in the format of others."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.store.transfer import exported

    if as_json and str(target) == "-":
        raise MemoryProblem("- and --json both write to standard output.", "Name a file, or leave --json out.")
    foreign = _file_format(to)
    if foreign is None and any(bounds.values()):
        raise MemoryProblem(
            f"--to {OWN} writes the whole memory, with its journal.",
            "Leave --user, --agent and --session out, or take --to jsonl.",
        )
    record = {"file": str(target), "format": to}
    with opened(file, "none") as memory:
        if foreign is None:
            counted = count()
            with closing(exported(memory.store)) as lines, working("writing"):
                _write(target, (f"{line}\n" for line, _ in zip(lines, counted, strict=False)), is_json=True)
            yield Line({**record, "lines": next(counted)})
            return
        items = list(_items(memory, bounds))
        _write(target, [foreign.writes(items)])
        yield Line({**record, "items": len(items)})
        if str(target) != "-":
            yield NoteLine(f"{len(items)} {'item' if len(items) == 1 else 'items'}.")


def _items(memory: Memory, bounds: dict[str, Any]) -> Iterator[Item]:
    after = ""
    while page := memory.get_all(limit=1000, after=after, **bounds):
        yield from page
        after = page[-1].id


def _write(target: Path, parts: Iterable[str], *, is_json: bool = False) -> None:
    from keepworth.learning.run_folder import check_writable, disk, replacing
    from keepworth.memory.errors import MemoryProblem

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
    with disk(target), replacing(target) as new, open(new, "w", encoding="utf-8", newline="\n") as out:
        out.writelines(parts)
        out.flush()


def _readable(given: str) -> Path:
    path = file_of(given)
    if not path.is_file():
        raise typer.BadParameter(f"File {str(path)!r} {'is a directory' if path.is_dir() else 'does not exist'}.")
    return path


def _file_format(name: str) -> FileFormat | None:
    """None for our own. Raises UnknownName."""
    from keepworth.episodes.errors import require_known
    from keepworth.memory.adapters.formats import FORMATS

    return FORMATS.get(require_known("format", name, [OWN, *FORMATS]))


@command(
    FILE,
    "import",
    examples="""
    keepworth memory import all.jsonl --file new.mem
    keepworth memory import memories.json --from mem0 --user ana
    """,
    encoder=True,
    opens=None,
)
def import_(
    file: MemoryPlace,
    encoder: str,
    source: Annotated[Path, argument("", "A file that `export` or another program wrote.", parser=_readable)],
    format: Annotated[str, option("--from", "keepworth, into a new file; or jsonl, mem0 or markdown, into any.")] = OWN,
    user: User = "",
    agent: Agent = "",
    skip_bad: Annotated[bool, option("--skip-bad", "Leave out what cannot be taken, and say it.")] = False,
    secrets: Annotated[
        str, option("--secrets", "What becomes of texts with keys or passwords: quarantine, redact, refuse, allow.")
    ] = "quarantine",
    personal: Annotated[str, option("--personal", "The same for mail addresses, phone and account numbers.")] = "allow",
) -> Lines:
    """Fill a new memory from an export, with the encoder it had; or add what another program kept. All of it, or nothing.

    --user and --agent are for what says nobody's name. It is looked through for secrets, as what a server is given."""
    from keepworth.memory.errors import MemoryProblem
    from keepworth.memory.item import Status
    from keepworth.memory.scan import HELD_FOR, scan_of
    from keepworth.memory.store.transfer import encoder_of, imported

    foreign = _file_format(format)
    if foreign is not None:
        scan = scan_of(secrets, personal)
        with opened(file, encoder, make=True) as memory:
            yield from _take_foreign(memory, source, foreign, skip_bad, scan, {"user_id": user, "agent_id": agent})
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
    with opened(file, encoder, make=True, identity=identity) as memory, open(source, encoding="utf-8") as lines:
        memory.store.scan = scan_of(secrets, personal)
        with working("reading"):
            items = imported(memory.store, lines)
        quarantined = memory.store.with_status(memory.scope, Status.QUARANTINED)
        held = [item for item in quarantined if HELD_FOR in item.metadata]
        yield Line({"items": items, "quarantined": len(held)}, f"{items} items{_in_quarantine(held)}.")


def _take_foreign(
    memory: Memory, source: Path, foreign: FileFormat, skip_bad: bool, scan: Scan | None, bounds: dict[str, Any]
) -> Lines:
    from keepworth.memory.adapters.formats import take
    from keepworth.memory.errors import InvalidText
    from keepworth.memory.item import Status

    try:
        text = source.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(
            f"{source} is not UTF-8 text ({error}).", "Convert it first, with iconv for example; nothing was imported."
        ) from error
    records = list(foreign.reads(text))
    memory.store.scan = scan
    head = memory.store.head()
    with working("reading"):
        items, bad = take(memory, records, where=str(source), skip_bad=skip_bad, **bounds)
    yield from (NoteLine(f"Left out: {line}") for line in bad)
    new = list({item.id: item for item in items if int(item.id[1:]) > head}.values())  # the file may say it twice
    known, held = len(items) - len(new), [item for item in new if item.status is Status.QUARANTINED]
    texts = {str(record.record.get("text")) for record in records}
    redacted = sum(item.text not in texts for item in new)
    counts = {"items": len(new), "known": known, "left_out": len(bad), "quarantined": len(held), "redacted": redacted}
    left_out = f", {len(bad)} left out" if bad else ""
    without = f", {redacted} without what was taken out of them" if redacted else ""
    text = f"{len(new)} items, {known} that were there already{left_out}{_in_quarantine(held)}{without}."
    yield Line(counts, text)


def _in_quarantine(held: list[Item]) -> str:
    """How many, and for which kinds of secrets."""
    from keepworth.memory.scan import HELD_FOR

    kinds = Counter(kind for item in held for kind in str(item.metadata.get(HELD_FOR, "")).split())
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return f", {len(held)} of them in quarantine ({listed}; `keepworth memory quarantine` lists them)" if held else ""
