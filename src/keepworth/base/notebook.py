"""What a notebook shows of a value: a small HTML table, and of an error the user's own lines and the message."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from traceback import extract_tb, format_list

_PACKAGE = str(Path(__file__).parents[1])
_HOSTS = ("IPython", "ipykernel", "nbclient")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Returns an HTML table. All text is escaped, as it may come from anybody.

    Args:
        headings: The texts of the first row.
        rows: The cells of each row, in the order of the headings. A cell that is no text is shown as `str` writes it.
        caption: The line above the table, "" for none.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    cell = '<td style="text-align:left">{}</td>'
    body = "".join(f"<tr>{''.join(cell.format(escape(str(value))) for value in row)}</tr>" for row in rows)
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{titled}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraph(text: str) -> str:
    """Returns a paragraph of HTML with this text, escaped."""
    return f"<p>{escape(text)}</p>"


def lines_of(error: BaseException) -> list[str]:
    """Returns the lines that a notebook shows of an error that the user can fix: his own frames, and the message. The frames of
    this package would say nothing to him."""
    frames = [frame for frame in extract_tb(error.__traceback__) if not _is_of_others(frame.filename)]
    return [*(line.rstrip("\n") for line in format_list(frames)), f"{type(error).__name__}: {error}"]


def _is_of_others(file: str) -> bool:
    parts = Path(file).parts
    return file.startswith((_PACKAGE, "<frozen")) or any(host in parts for host in _HOSTS)


def in_notebook() -> bool:
    """Whether this process is a notebook's, whose event loop waits for each cell anyhow."""
    return "ipykernel" in sys.modules
