"""Which form a file or a folder has, by its content."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from keepworth.adapters.formats.folder import MANIFEST, markdown_in, read_text
from keepworth.adapters.formats.mem0 import LISTS
from keepworth.adapters.formats.pam import SCHEMA
from keepworth.base.json_values import parsed
from keepworth.memory.errors import MemoryProblem
from keepworth.memory.store.transfer import FORMAT

OWN, FOLDER = "keepworth", "folder"
"""The format that loses nothing, and a folder of markdown that this package wrote."""


def recognise(path: Path) -> str:
    """Return the name of the form that a file or a folder has. Raises MemoryProblem, which names the file."""
    if path.is_dir():
        if (path / MANIFEST).exists() or any("<!-- keepworth {" in read_text(file) for file in markdown_in(path)):
            return FOLDER
        raise MemoryProblem(
            f"{path} is a folder that this program did not write.",
            "Name the files in it, such as FOLDER/*.md; or give a folder that `export --to folder` wrote.",
        )
    with suppress(OSError), open(path, "rb") as file:
        if file.read(16) == b"SQLite format 3\0":
            raise MemoryProblem(
                f"{path} is a database, such as a memory file.",
                "`keepworth memory backup` copies one, and `export` writes one as text.",
            )
    text = read_text(path)
    beginning = text.lstrip()[:1]
    if beginning not in ("{", "[", '"'):
        # A file whose name says JSON is none of prose: the reader names the line that is broken.
        return "jsonl" if beginning and path.suffix.lower() in (".json", ".jsonl", ".ndjson") else "markdown"
    line = next(line for line in text.split("\n") if line.strip())
    first = parsed(line)
    if isinstance(first, dict) and first.get("format") == FORMAT:
        return OWN
    whole = first if line.strip() == text.strip() else parsed(text)
    if isinstance(whole, dict) and str(whole.get("schema", "")).startswith(SCHEMA):
        return "pam"
    if isinstance(whole, list) or (
        isinstance(whole, dict) and any(isinstance(whole.get(name), list) for name in LISTS)
    ):
        return "mem0"
    if isinstance(whole, dict | str) or isinstance(first, dict | str):
        return "jsonl"
    if beginning == "{":
        # It is JSON that breaks off: the reader names the line.
        return "pam" if f'"{SCHEMA}' in text[:4000] else "mem0" if '"memory"' in text[:4000] else "jsonl"
    return "markdown"
