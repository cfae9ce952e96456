"""A folder of markdown: a file a subject, a line an item, with the item's id in a comment, so that what people edit is read back.

    # Food

    <!-- keepworth {"user_id": "ana", "metadata": {"topic": "food"}} -->

    - Ana likes tofu <!-- m17 -->
    - Bread is in the cellar <!-- m18 {"event_time": "2026-01-01T00:00:00Z"} -->

The comment below the heading has the fields that all lines of the file share, that of a line has its id and its further fields.
Further lines of a text are indented by two spaces. A file beside says what each item was when it was written (`MANIFEST`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.adapters.formats.taking import SCOPES, FoundRecord, Record, Sayings, canonical, digest_of, record_of
from keepworth.base.json_values import parse
from keepworth.memory.errors import MemoryProblem, NotAMemoryFile
from keepworth.memory.item import Item

MANIFEST = ".keepworth.json"
"""The file of a folder that says what each item was when it was written."""
NAME, VERSION = "keepworth markdown", 1
SUBJECTS = ("subject", "topic", "category", "file", "heading")
"""The names in an item's metadata that may say what it is about; the first of them does."""
_HEADER = re.compile(r"<!-- keepworth (\{.*\}) -->\s*")
_LINE = re.compile(r"- (?P<text>.*) <!-- (?:(?P<id>m\d+)(?: (?P<fields>\{.*\}))?|(?P<alone>\{.*\})) -->\s*")


@dataclass(frozen=True, slots=True)
class FolderOfNotes:
    """What a folder holds: its records, and what each item was when it was written, by id."""

    records: list[FoundRecord]
    exported: Mapping[str, str]

    @property
    def missing(self) -> dict[str, str]:
        """Return what was exported and is in the folder no more."""
        there = {record.id for record in self.records}
        return {id: digest for id, digest in self.exported.items() if id not in there}


# -- out of a memory --------------------------------------------------------------------------------------------------


def write_folder(items: Iterable[Item]) -> dict[str, str]:
    """Return the files of a folder, by name, each with its text. Each of several items that say the same, which may come into
    several files, says that it is repeated."""
    items, sayings = list(items), Sayings()
    for item in items:
        sayings.add(item)
    groups: dict[tuple[str, str], list[tuple[str, Record]]] = {}
    exported: dict[str, str] = {}
    for item in items:
        record = record_of(item)
        exported[item.id] = digest_of(record)
        if sayings.count(item) > 1:  # it says so itself
            record["repeat"] = True
        groups.setdefault(_group_of(record), []).append((item.id, record))
    files: dict[str, str] = {}
    for (shared, title), group in groups.items():
        fields: Record = json.loads(shared)
        origins = [record.get("provenance") for _, record in group]
        if origins[0] and all(origin == origins[0] for origin in origins):
            fields["provenance"] = origins[0]
        lines = [_line(id, _less(record, fields)) for id, record in group]
        files[_free_name(_stem(fields, title), files)] = "\n".join(
            [f"# {title}", "", f"<!-- keepworth {_comment(fields)} -->", "", *lines, ""]
        )
    manifest = {"format": NAME, "version": VERSION, "items": exported}
    return {**files, MANIFEST: json.dumps(manifest, indent=0) + "\n"}


def _group_of(record: Record) -> tuple[str, str]:
    """Return what the lines of an item's file share, as JSON, and its title."""
    shared: Record = {name: record[name] for name in (*SCOPES, "kind") if name in record}
    metadata = record.get("metadata", {})
    name = next((name for name in SUBJECTS if isinstance(metadata.get(name), str) and metadata[name].strip()), "")
    subject = " ".join(metadata[name].split()) if name else f"{record.get('kind', 'fact')}s"
    if name and subject == metadata[name]:
        shared["metadata"] = {name: subject}
    whose = [shared[part] for part in SCOPES if part in shared]
    title = subject if name else subject.capitalize()
    return json.dumps(shared, sort_keys=True), f"{title} ({', '.join(whose)})" if whose else title


def _less(record: Record, shared: Record) -> Record:
    """Return a record without what the lines of its file share."""
    rest = {
        name: value for name, value in record.items() if name not in (*SCOPES, "kind") and shared.get(name) != value
    }
    if "metadata" in rest:
        rest["metadata"] = {
            name: value for name, value in rest["metadata"].items() if name not in shared.get("metadata", {})
        }
    return {name: value for name, value in rest.items() if value != {}}


def _line(id: str, record: Record) -> str:
    text, fields = canonical(record)["text"], {name: value for name, value in record.items() if name != "text"}
    first, *others = text.split("\n")
    return "\n".join(
        [
            f"- {first} <!-- {id}{f' {_comment(fields)}' if fields else ''} -->",
            *(f"  {line}" if line else "" for line in others),
        ]
    )


def _comment(fields: Record) -> str:
    """Return fields as JSON that cannot end a comment."""
    return json.dumps(fields, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")


def _stem(fields: Record, title: str) -> str:
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-_")[:60].strip("-") or "notes"


def _free_name(stem: str, files: Mapping[str, str]) -> str:
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.md" for number in range(1, len(files) + 2))
    return next(name for name in names if name not in files)


# -- into a memory ----------------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> FolderOfNotes:
    """Read a folder that `write_folder` wrote, as people have edited it. Raises MemoryProblem."""
    if not folder.is_dir():
        raise MemoryProblem(f"{folder} is no folder.", "Name the folder that `export --to folder` wrote.")
    exported = _manifest(folder / MANIFEST)
    records = [record for path in markdown_in(folder) for record in _file(path, path.relative_to(folder), exported)]
    twice = _twice(records)
    if twice is not None:
        raise MemoryProblem(
            f"{folder} has {twice[0].id} twice: {twice[0].place} and {twice[1].place}.",
            "Take the id away from the copy, which then is a new note; nothing was imported.",
        )
    return FolderOfNotes(records, exported)


def markdown_in(folder: Path) -> list[Path]:
    """Return the files of markdown in a folder, in order. Raises MemoryProblem, such as for a pipe, which might never end."""
    paths = sorted(folder.rglob("*.md"))
    if odd := next((path for path in paths if not path.is_file()), None):
        raise MemoryProblem(f"{odd} is no file that can be read.", "Move it out of the folder; nothing was imported.")
    return paths


def _manifest(path: Path) -> dict[str, str]:
    fix = "Take the folder back as it was exported, or move that file away: then every line is a new note."
    try:
        manifest: Any = parse(path.read_text(encoding="utf-8")) if path.exists() else {"items": {}, "version": 1}
        items, version = manifest["items"], manifest["version"]
        if not isinstance(items, dict) or not all(isinstance(digest, str) for digest in items.values()):
            raise ValueError("its items are no ids with digests")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise MemoryProblem(f"{path} cannot be read ({error}).", fix) from error
    if version != VERSION:
        raise MemoryProblem(
            f"{path} has version {version!r:.20}, and this program reads {VERSION}.", "Upgrade keepworth."
        )
    return {str(id): digest for id, digest in items.items()}


def _twice(records: list[FoundRecord]) -> tuple[FoundRecord, FoundRecord] | None:
    first: dict[str, FoundRecord] = {}
    for record in records:
        if record.id and first.setdefault(record.id, record) is not record:
            return first[record.id], record
    return None


def _file(path: Path, name: Path, exported: Mapping[str, str]) -> Iterator[FoundRecord]:
    """Yield the records of one file."""
    shared: Record = {}
    begun: tuple[int, str, list[str]] | None = None  # of the item that is being read: its line, that, and further lines
    for number, line in enumerate([*read_text(path).split("\n"), "# end"], 1):
        if begun is not None and (line.startswith("  ") or not line.strip()):
            begun[2].append(line[2:].rstrip())
            continue
        if begun is not None:
            yield _record(f"{name}, line {begun[0]}", begun[1], begun[2], shared, exported)
            begun = None
        if line.startswith("- "):
            begun = number, line, []
        elif header := _HEADER.fullmatch(line):
            shared = _fields(header[1])
            if "problem" in shared:
                yield FoundRecord(f"{name}, line {number}", shared)
                shared = {}
        elif line.strip() and not line.startswith("#"):
            yield FoundRecord(
                f"{name}, line {number}",
                {
                    "problem": f"{line.strip()!r:.60} is no item: begin it with '- ', or indent it by two spaces if it goes on"
                },
            )


def _record(place: str, line: str, others: list[str], shared: Record, exported: Mapping[str, str]) -> FoundRecord:
    match = _LINE.fullmatch(line)
    text, id, written = line[2:], "", ""
    if match is not None:
        text, id, written = match["text"], match["id"] or "", match["fields"] or match["alone"] or ""
    fields = _fields(written) if written else {}
    if "problem" in fields:
        return FoundRecord(place, fields)
    metadata = {**shared.get("metadata", {}), **(fields.get("metadata") or {})}
    if not id:  # what somebody adds by hand comes from nowhere else
        shared = {name: value for name, value in shared.items() if name != "provenance"}
    record: Record = {**shared, **fields, "text": "\n".join([text.rstrip(), *others]).strip()}
    if metadata:
        record["metadata"] = metadata
    return FoundRecord(place, record, id, exported.get(id, ""))


def _fields(text: str) -> Record:
    try:
        fields = parse(text)
    except (ValueError, RecursionError) as error:
        return {"problem": f"its comment holds no JSON ({error})"}
    if not isinstance(fields, dict) or not isinstance(fields.get("metadata", {}), dict):
        return {"problem": "its comment holds no object with fields: give names and values"}
    return fields


def read_text(path: Path) -> str:
    """Return the text of a file, with the breaks of lines of any system as "\\n". Raises NotAMemoryFile, or MemoryProblem
    where the file cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise NotAMemoryFile(
            f"{path} is not UTF-8 text ({error}).", "Convert it first, with iconv for example; nothing was imported."
        ) from error
    except OSError as error:
        raise MemoryProblem(f"{path} cannot be read ({error.strerror}).", "Give a file that is there.") from error
