"""Wording: what a program says to memory, as text that memory can keep."""

from __future__ import annotations

from collections.abc import Iterable

from keepworth.memory.errors import InvalidPolicy, InvalidText
from keepworth.memory.item import checked_label

LONGEST = 200_000
"""Characters of a goal, an observation or an action: a case holds all three, and an item at most a million."""
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\r\t"}


def worded(text: object, what: str) -> str:
    """`text` with a space for every control character but line breaks and tabs, such as a terminal's colours: a case with one
    would not be kept. Raises InvalidText where it is no text, not valid Unicode, or too long."""
    found = checked_label(text, what)
    if len(found) > LONGEST:
        raise InvalidText(f"{what} is {len(found):,} characters long, the limit is {LONGEST:,}: shorten it")
    return found if found.isprintable() else found.translate(_CONTROLS)


def worded_actions(actions: object) -> tuple[str, ...]:
    """Raises InvalidText where `actions` is not a sequence of texts; one text alone would be taken for its letters."""
    if isinstance(actions, (str, bytes)) or not isinstance(actions, Iterable):
        raise InvalidText(f"actions must be a sequence of texts, got {actions!r:.60}: put a single one into a list")
    return tuple(worded(action, f"action number {number}") for number, action in enumerate(actions, start=1))


def source_problem(source: object) -> str:
    if not isinstance(source, str) or not source.strip() or not source.isprintable() or len(source) > 1000:
        return f"its source {source!r:.60} is not a name: text that can be printed, at most 1,000 characters"
    return ""


def identity(by: object, what: str) -> str:
    """A person's name. Raises InvalidPolicy where this is none."""
    if source_problem(by):
        raise InvalidPolicy(
            f"{what} is {by!r:.60}, which is no name.", "Give text that can be printed, at most 1,000 characters."
        )
    assert isinstance(by, str)
    return by
