"""The files in which coding assistants keep instructions, such as CLAUDE.md, line by line: which of the lines help.

A host puts the whole file before the model in every session, so that nothing says what a single line does. While an experiment
runs, lines are notes of a memory, which hooks show where they fit and chance leaves out now and then; they are not in the file. A
copy of the file beside it brings them back.

Lines that forbid something, or are about what must not leak or break, stay in the file, and so do pinned ones: `why_it_stays`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from keepworth.adapters.formats import FoundRecord, MarkdownEntry, entries_of, place_in_file, take
from keepworth.base.durable_files import ORDINARY, replacing, sync_folder
from keepworth.base.json_values import parse
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.item import TESTED, Item, Status, folded
from keepworth.memory.memory import Memory
from keepworth.memory.place import on_server
from keepworth.memory.search.passages import tokens_of
from keepworth.memory.sensitive import HIDDEN, without_secrets

HOST_FILES = (
    *(
        "CLAUDE.md",
        "CLAUDE.local.md",
        ".claude/CLAUDE.md",
        ".claude/rules/*.md",
        "AGENTS.md",
        "AGENTS.override.md",
        "GEMINI.md",
    ),
    *(".cursor/rules/*.mdc", ".github/copilot-instructions.md", ".github/instructions/*.md"),
)
"""Where hosts keep instructions, in the folder of a project."""
COPY, STATE = ".keepworth-copy", ".keepworth.json"
"""What is added to the name of a file for its copy beside it, and for what is known of the experiment."""
CHANGED = ".keepworth-changed"
"""The same for a file that was changed while an experiment ran, where the copy takes its place all the same."""
SHARE = 0.25
"""In this share of the turns in which a line fits chance leaves it out: one worth half of the range of rewards is decided after
some 80 of them at the earliest, one worth a fifth after some 300."""
FORMAT, VERSION = "keepworth experiment", 1
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_LOADS = re.compile(r"(?:^|\s)@(?:~?/|\.{1,2}/)?[\w.-]+(?:/[\w.-]+|\.\w+)")
"""Claude Code loads the file whose path stands behind an @."""


# -- which lines stay -------------------------------------------------------------------------------------------------


@cache
def _words() -> re.Pattern[str]:
    table = tomllib.loads((files("keepworth.adapters") / "instructions.toml").read_text(encoding="utf-8"))
    whole, inside = (
        "|".join("".join(words.split("\n")) for words in table[name].values()) for name in ("words", "inside")
    )
    return re.compile(rf"(?<![\w.-])(?:{whole})(?!\w)|{inside}", re.IGNORECASE)


def why_it_stays(entry: MarkdownEntry, entries: Sequence[MarkdownEntry], pinned: frozenset[str] = frozenset()) -> str:
    """Return why a line stays in its file, "" if it may move. It stays if it, a heading above it, or a line that it belongs to
    has a word of `instructions.toml`; if it holds a secret; if it is pinned in the memory; if it is a step of a
    numbered list, which says little alone; or if it loads another file.

    Args:
        entry: The line.
        entries: All of the file.
        pinned: The texts that are pinned or of the kind core, folded.
    """
    if HIDDEN in without_secrets(entry.text):
        return "it holds a secret"
    around = [entry.text, *entry.headings, *(entries[place].text for place in entry.above)]
    match = next((match for text in around if (match := _words().search(text.replace("\u2019", "'")))), None)
    if match is not None:
        return f"it says {match[0].lower()!r}"
    if folded(entry.text) in pinned:
        return "it is pinned"
    if entry.step:
        return "it is a step of a numbered list"
    return "it loads a file" if _LOADS.search(entry.text) else ""


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A file of instructions with what moves and what stays.

    Args:
        name: The file as it was named.
        path: The file itself, where the name is a link.
        original: Its bytes.
        moving: The lines that move.
        staying: The lines that stay, each with the reason.
    """

    name: str
    path: Path
    original: bytes
    moving: tuple[MarkdownEntry, ...]
    staying: tuple[tuple[MarkdownEntry, str], ...]

    @property
    def rest(self) -> bytes:
        """The bytes of the file without what moves."""
        out = {number for entry in self.moving for number in range(entry.first, entry.last + 1)}
        return "".join(
            line for number, line in enumerate(_LINE.findall(self.original.decode()), 1) if number not in out
        ).encode()

    @property
    def records(self) -> Iterator[FoundRecord]:
        """What moves, for a memory."""
        for entry in self.moving:
            metadata = {"heading": " > ".join(entry.headings)} if entry.headings else {}
            (placed,) = place_in_file(
                iter([FoundRecord(f"line {entry.first}", {"text": entry.text, "metadata": metadata})]), self.name
            )
            yield placed

    @property
    def tokens(self) -> int:
        return sum(tokens_of(entry.text) for entry in self.moving)


def split(path: Path, pinned: frozenset[str]) -> SplitFile:
    """Return what of a file moves and what stays. Raises MemoryProblem."""
    original = _bytes_of(path)
    try:
        entries = entries_of(original.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MemoryProblem(f"{path} is not UTF-8 text ({error}).", "Convert it first; nothing was moved.") from error
    reasons = [why_it_stays(entry, entries, pinned) for entry in entries]
    for place, entry in enumerate(entries):
        if reasons[place]:
            for above in entry.above:
                reasons[above] = reasons[above] or f"line {entry.first} below it stays"
    pairs = list(zip(entries, reasons, strict=True))
    moving = tuple(entry for entry, reason in pairs if not reason)
    return SplitFile(
        _name_of(path), path.resolve(), original, moving, tuple((entry, reason) for entry, reason in pairs if reason)
    )


def _name_of(path: Path) -> str:
    here = path.absolute()
    return (here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here).as_posix()


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MemoryProblem(
            f"{path} cannot be read ({error.strerror}).", "Name a file that is there; nothing was moved."
        ) from error


# -- an experiment ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningExperiment:
    """What is known of the experiment with one file: its digests before and without what moved, the ids of its notes, when it
    began, and the memory of the notes."""

    name: str
    path: Path
    original: str
    rest: str
    notes: tuple[str, ...]
    began: str
    memory: str

    @property
    def copy(self) -> Path:
        return self.path.with_name(self.path.name + COPY)


def plan(memory: Memory, paths: Sequence[Path], **bounds: Any) -> list[SplitFile]:
    """Return what an experiment would move. Raises MemoryProblem if one runs with a file already.

    Args:
        memory: The memory whose pinned items stay in the files.
        paths: The files.
        bounds: user_id and agent_id of the notes.
    """
    pinned = frozenset(folded(item.text) for item in _pages(memory, **bounds) if item.always)
    seen: dict[Path, SplitFile] = {}
    for path in paths:
        running, present = running_at(path), _bytes_of(path)
        if running is not None and _digest(present) != running.original:
            raise MemoryProblem(
                f"An experiment with {path} runs since {running.began}.",
                "End it first: keepworth memory experiment restore; nothing was moved.",
            )
        seen.setdefault(path.resolve(), split(path, pinned))
    return list(seen.values())


def start(memory: Memory, plans: Sequence[SplitFile], **bounds: Any) -> list[Item]:
    """Move lines out of their files and into the memory, as notes of an experiment. Whatever happens on the way, each file is
    whole: as it was, or without what moved, with its copy beside it. Raises MemoryProblem.

    Args:
        memory: The memory of the notes.
        plans: What `plan` returned.
        bounds: user_id and agent_id of the notes.

    Returns:
        The notes, in the order of the lines.
    """
    plans = [one for one in plans if one.moving]
    began, home = memory.store.clock(), memory.path if on_server(memory.path) else str(Path(memory.path).resolve())
    records = [record for one in plans for record in one.records]
    items, _ = take(memory, records, where="An experiment", **bounds)
    for item in {item.id: item for item in items}.values():
        if item.status in (Status.ACTIVE, Status.ARCHIVED):  # an earlier experiment left it in the archive
            memory.update(item.id, status=Status.ACTIVE, metadata={**item.metadata, TESTED: SHARE})
    ids = iter([item.id for item in items])
    for one in plans:
        notes = tuple(next(ids) for _ in one.moving)
        with replacing(one.path.with_name(one.path.name + COPY), ORDINARY) as out:
            out.write(one.original)
        _note(RunningExperiment(one.name, one.path, _digest(one.original), _digest(one.rest), notes, began, home))
        present = _bytes_of(one.path)
        if present != one.original:
            raise MemoryProblem(
                f"{one.path} was changed while the experiment began: {_first_difference(one.original, present)}.",
                f"It was left as it is. Remove {one.path.name + COPY} and {one.path.name + STATE}, and start again.",
            )
        _replace(one.path, one.rest)
    return items


def restore(
    memory: Memory | None, running: Sequence[RunningExperiment], *, rewrite: bool = False, force: bool = False
) -> list[str]:
    """Put the lines back, all files or none, and take the notes out of searches: they go into the archive. Raises MemoryProblem
    if a file was changed meanwhile.

    Args:
        memory: That of the notes; None where it is gone, and the files alone are put back.
        running: The experiments, by file.
        rewrite: Leave out lines whose notes are gone, and take over those that were reworded.
        force: Also where a file was changed meanwhile; what was changed is kept beside it.

    Returns:
        A sentence for each file.
    """
    contents = [_checked_copy(one, force) for one in running]
    sentences = []
    for one, original in zip(running, contents, strict=True):
        present = _bytes_of(one.path)
        text, changes = (
            _rewritten(memory, original.decode(), one.notes) if rewrite and memory is not None else ("", None)
        )
        if _digest(present) not in (one.rest, one.original):
            with replacing(one.path.with_name(one.path.name + CHANGED), ORDINARY) as out:
                out.write(present)
        _replace(one.path, original if changes is None else text.encode())
        sentences.append(f"{one.name} is as it was." if changes is None else f"{one.name}: {changes}.")
    if memory is not None:
        for one in running:
            _archive(memory, one)
    for one in running:
        for path in (one.copy, one.path.with_name(one.path.name + STATE)):
            path.unlink(missing_ok=True)
        sync_folder(one.path.parent)
    return sentences


def _archive(memory: Memory, one: RunningExperiment) -> None:
    """Take the notes of an experiment out of searches: the host loads them again."""
    for item in memory.store.fetch(memory.scopes.seen(), one.notes).values():
        if item is not None and item.current and item.metadata.get("file") == one.name and TESTED in item.metadata:
            metadata = {name: value for name, value in item.metadata.items() if name != TESTED}
            memory.update(item.id, status=Status.ACTIVE if item.pinned else Status.ARCHIVED, metadata=metadata)


def running_in(folder: Path) -> list[RunningExperiment]:
    """Return the experiments with the files in a project's folder where hosts keep instructions."""
    listed = (running_at(path) for pattern in HOST_FILES for path in sorted(folder.glob(pattern)))
    return list({one.path: one for one in listed if one is not None}.values())


def running_at(path: Path) -> RunningExperiment | None:
    """Return the experiment with a file, None if there is none. Raises MemoryProblem."""
    real = path.resolve()
    state = real.with_name(real.name + STATE)
    if not state.exists():
        return None
    try:
        body = parse(state.read_text(encoding="utf-8"))
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise ValueError(f"it is of {body['format']} {body['version']}")
        notes = tuple(str(id) for id in body["notes"])
        return RunningExperiment(
            str(body["name"]), real, body["original"], body["rest"], notes, str(body["began"]), str(body["memory"])
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MemoryProblem(
            f"{state} cannot be read ({error}).",
            f"The file as it was is {real.name + COPY} beside it: copy it back, and remove both.",
        ) from error


def _note(experiment: RunningExperiment) -> None:
    body: Mapping[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": experiment.name,
        "original": experiment.original,
        "rest": experiment.rest,
        "notes": experiment.notes,
        "began": experiment.began,
        "memory": experiment.memory,
    }
    with replacing(experiment.path.with_name(experiment.path.name + STATE), ORDINARY) as out:
        out.write((json.dumps(body) + "\n").encode())


def _checked_copy(one: RunningExperiment, force: bool) -> bytes:
    """Return the bytes of a file as it was. Raises MemoryProblem if its copy or the file itself was changed."""
    original, present = _bytes_of(one.copy), _bytes_of(one.path)
    if _digest(original) != one.original and not force:
        raise MemoryProblem(
            f"{one.copy} is not what was copied there.",
            "Look at it. --force takes it as it is; nothing was put back.",
        )
    if _digest(present) not in (one.rest, one.original) and not force:
        without = _without_moved(original, one)
        raise MemoryProblem(
            f"{one.path} was changed while the experiment ran: {_first_difference(without, present)}.",
            f"Make the same change in {one.copy.name}, and say --force, which takes that file; what is there now is kept as "
            f"{one.path.name + CHANGED}. Nothing was put back.",
        )
    return original


def _without_moved(original: bytes, one: RunningExperiment) -> bytes:
    """Return the file without what moved, as far as that can be told, for a message."""
    without = split(one.copy, frozenset()).rest
    return without if _digest(without) == one.rest else original


def _first_difference(before: bytes, after: bytes) -> str:
    pairs = (_LINE.findall(text.decode(errors="replace")) for text in (before, after))
    one, other = (list(lines) for lines in pairs)
    number = next(
        (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    line = other[number].strip() if number < len(other) else "the end of the file"
    return f"first at line {number + 1}, {line!r:.80}"


def _replace(path: Path, content: bytes) -> None:
    """Put content in the place of a file, which keeps its mode."""
    mode = path.stat().st_mode & 0o777
    with replacing(path, mode) as out:
        out.write(content)
        if hasattr(os, "fchmod"):
            os.fchmod(out.fileno(), mode)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- a file again, without what is gone -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileChanges:
    """How many lines of a file were left as they are, left out, and taken over as they were reworded."""

    same: int
    left_out: int
    reworded: int

    def __str__(self) -> str:
        return f"{self.same} lines as they were, {self.left_out} left out, {self.reworded} reworded"


def write_back(memory: Memory, path: Path, **bounds: Any) -> tuple[str, FileChanges]:
    """Return the text of a file that was imported, without the lines whose notes are gone, and with those that were reworded.
    What was never imported stays. Of a file with which an experiment runs, all lines are there. Raises MemoryProblem.

    Args:
        memory: The memory with the notes.
        path: The file.
        bounds: user_id, agent_id and session_id of the notes.
    """
    running = running_at(path)
    original = _bytes_of(path if running is None else running.copy)
    name = _name_of(path) if running is None else running.name
    try:
        text = original.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MemoryProblem(f"{path} is not UTF-8 text ({error}).", "Convert it first; nothing was written.") from error
    ids = [item.id for item in _pages(memory, all_states=True, **bounds) if item.metadata.get("file") == name]
    return _rewritten(memory, text, ids)


def _rewritten(memory: Memory, text: str, ids: Sequence[str]) -> tuple[str, FileChanges]:
    """Return a file's text with what became of the notes with these ids."""
    notes: dict[str, Item] = {}  # by each wording that a note ever had
    for item in memory.store.fetch(memory.scopes.seen(), ids).values():
        if item is None:
            continue
        wordings = {folded(state.text) for one in memory.history(item.id) for state in (one.before, one.after) if state}
        notes |= {wording: item for wording in {*wordings, folded(item.text)} if wording not in notes or item.current}
    entries, lines = entries_of(text), _LINE.findall(text)
    same = left_out = reworded = 0
    for entry in reversed(entries):
        note = notes.get(folded(entry.text))
        now = None if note is None else _successor(memory, note)
        if note is None or (now is not None and folded(now.text) == folded(entry.text)):
            same += 1
        elif now is None:
            left_out += 1
            del lines[entry.first - 1 : entry.last]
        else:
            reworded += 1
            lines[entry.first - 1 : entry.last] = [_in_place(lines[entry.first - 1 : entry.last], now.text)]
    return "".join(lines), FileChanges(same, left_out, reworded)


def _successor(memory: Memory, item: Item) -> Item | None:
    """Return the item that says today what an item said, itself or what superseded it; None if it is gone."""
    for _ in range(100):
        if not item.superseded_by:
            break
        item = memory.get(item.superseded_by)
    return item if item.open and item.status in (Status.ACTIVE, Status.ARCHIVED) else None


def _in_place(lines: Sequence[str], text: str) -> str:
    """Return a new wording in the place of lines: behind the same mark of a list, with the same indent and ends of lines."""
    mark = re.match(r"\s*(?:[-*+]|\d+[.)])?\s*(?:\[[ xX]\]\s+)?", lines[0])
    before = mark[0] if mark else ""
    end = (re.search(r"(?:\r\n|\r|\n)\Z", lines[-1]) or [""])[0]
    first, *others = text.split("\n")
    indent = " " * len(before)
    return (end or "\n").join([f"{before}{first}", *(f"{indent}{line}" if line else "" for line in others)]) + end


def _pages(memory: Memory, **options: Any) -> Iterator[Item]:
    after = ""
    while page := memory.get_all(limit=1000, after=after, **options):
        yield from page
        after = page[-1].id
