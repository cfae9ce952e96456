"""Memories in the forms of other programs: which form a file has, and how each is read and written.

Each memory becomes one record, whose fields are the arguments of `Memory.add`. History, supersessions and what was learned are
only in this package's own export (`keepworth.memory.store.transfer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from keepworth.adapters.formats.folder import read_folder, read_text, write_folder
from keepworth.adapters.formats.lines import read_lines, write_lines
from keepworth.adapters.formats.markdown import MarkdownEntry, entries_of, place_in_file, read_markdown
from keepworth.adapters.formats.mem0 import read_mem0
from keepworth.adapters.formats.pam import read_pam, write_pam
from keepworth.adapters.formats.recognising import FOLDER, OWN, recognise
from keepworth.adapters.formats.taking import FoundRecord, take

FORMATS: dict[str, Callable[[str], Iterator[FoundRecord]]] = {
    "jsonl": read_lines,
    "mem0": read_mem0,
    "pam": read_pam,
    "markdown": read_markdown,
}
"""What reads the text of a file of each form."""
__all__ = [
    "FOLDER",
    "FORMATS",
    "OWN",
    "FoundRecord",
    "MarkdownEntry",
    "entries_of",
    "place_in_file",
    "read_folder",
    "read_lines",
    "read_markdown",
    "read_mem0",
    "read_pam",
    "read_text",
    "recognise",
    "take",
    "write_folder",
    "write_lines",
    "write_pam",
]
