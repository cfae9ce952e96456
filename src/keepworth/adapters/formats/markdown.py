"""Markdown as people write it, such as the instructions of a coding assistant: its entries, with the lines of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from keepworth.adapters.formats.taking import FoundRecord, Record

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_COMMENT_OR_TAG = re.compile(rf"<!--.*?-->|{_TAG.pattern}", re.S)
_SETTINGS = re.compile(r"---[ \t]*\r?\n(?P<inside>(?:(?:[\w-]+:|[ \t]|#).*\r?\n)*)---[ \t]*(?:\r?\n|\Z)")
_NAME = re.compile(r"^([\w-]+):", re.M)
SETTINGS = frozenset(
    {"alwaysApply", "applyTo", "description", "excludeAgent", "globs", "mode", "name", "paths", "trigger"}
)
"""What coding assistants read in the lines between "---" at the start of a file of instructions: no text for a model."""


@dataclass(frozen=True, slots=True)
class MarkdownEntry:
    """A list entry, paragraph or block of code.

    Args:
        text: What it says.
        first, last: The numbers, counted from 1, of its first line and its last.
        headings: Those above it, from the outermost on.
        above: The places, among the entries, of those that it belongs to, from the outermost on: list entries around it, and the
            paragraph before its list that ends with a colon.
        step: Whether it is in a numbered list.
    """

    text: str
    first: int
    last: int
    headings: tuple[str, ...]
    above: tuple[int, ...]
    step: bool = False


def read_markdown(text: str) -> Iterator[FoundRecord]:
    """Read markdown: each list entry, paragraph and code block is a memory, with the headings above it as its metadata."""
    for entry in entries_of(text):
        record: Record = {"text": entry.text}
        if entry.headings:
            record["metadata"] = {"heading": " > ".join(entry.headings)}
        yield FoundRecord(f"line {entry.first}", record)


def place_in_file(records: Iterator[FoundRecord], file: str) -> Iterator[FoundRecord]:
    """Give the records of a markdown file its name: as their source, and in the metadata, with the line on which each stands."""
    for record in records:
        line = int(record.place.removeprefix("line "))
        metadata = {**record.record.get("metadata", {}), "file": file, "line": line}
        yield replace(record, record={**record.record, "metadata": metadata, "provenance": {"source": file}})


def entries_of(text: str) -> list[MarkdownEntry]:
    """Return the entries of markdown, in order."""
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    text = text.removeprefix("\ufeff")
    skipped = _settings_end(text)
    before = text.count("\n", 0, skipped)
    # Markup inside lines is left as it is. Underlined headings and link references are read as text, so that no words are lost.
    reader = MarkdownIt("commonmark", {"maxNesting": 100}).disable(["inline", "text_join", "lheading", "reference"])
    entries: list[MarkdownEntry] = []
    headings, parts, spans = list[str](), list[str](), list[tuple[int, int]]()
    inside, intro, heading = list[int](), -1, ""
    numbered = 0  # how many numbered lists are open
    items: list[int] = []  # by open list entry: the place of its entry, -1 where it has none of its own yet
    for token in (*reader.parse(text[skipped:]), Token("end", "", 0)):
        if parts and (token.level == 0 or token.type.startswith("list_item")):
            first, last = before + spans[0][0] + 1, before + spans[-1][1]
            around = [place for place in items if place >= 0]
            above = (*([intro] if intro >= 0 and items else []), *around)
            if items and items[-1] < 0:
                items[-1] = len(entries)
            entries.append(MarkdownEntry("\n\n".join(parts), first, last, tuple(headings), above, numbered > 0))
            parts, spans = [], []
        if token.level == 0 and token.type.endswith("list_open"):
            led = bool(entries) and entries[-1].text.rstrip().endswith(":") and not inside
            intro = len(entries) - 1 if led else -1
        if token.type in ("ordered_list_open", "ordered_list_close"):
            numbered += token.nesting
        elif token.type == "list_item_open":
            items.append(-1)
        elif token.type == "list_item_close":
            items.pop()
        if heading and token.type == "inline":
            headings = [*headings[: int(heading[1:]) - 1], token.content]
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            fenced = f"{token.markup}{token.info}\n{token.content}{token.markup}"
            plain = _without_tags(token.content) if token.type == "html_block" else token.content
            entry = fenced if token.type == "fence" else re.sub(r"\A\[[ xX]\]\s", "", plain).strip()
            if entry and token.map is not None:
                parts.append(entry)
                spans.append((token.map[0], token.map[1]))
        heading = token.tag if token.type == "heading_open" else ""
    return entries


def _settings_end(text: str) -> int:
    """Return where the settings of a coding assistant at the start of a file end, 0 if there are none."""
    block = _SETTINGS.match(text)
    names = _NAME.findall(block["inside"]) if block else []
    return block.end() if block and names and SETTINGS.issuperset(names) else 0


def _without_tags(html: str) -> str:
    """Remove comments and tags. A comment that never ends is text, so after the last "-->" only tags are removed."""
    ended, end, rest = html.rpartition("-->")
    return _COMMENT_OR_TAG.sub("", ended + end) + _TAG.sub("", rest)
