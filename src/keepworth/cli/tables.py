"""Prints tables for any width: a line per row where the terminal is wide enough, else a block per row. Nothing is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from keepworth.training.watch.tables import ResultTable

SENTENCE = 24
"""Columns that a cell with words has at least."""


def print_evaluation(summary: dict[str, Any], console: Console) -> None:
    """Prints the verdict, the tables and the failures of `keepworth eval run` or `eval stream`."""
    from keepworth.evaluation import evaluation_page, stream_page

    of_streams = "claims" in summary
    page: Any = stream_page if of_streams else evaluation_page
    if of_streams or summary["gains"]:
        console.print(page.verdict(summary), style="bold", highlight=False)
    for table in page.tables_of(summary):
        print_table(table, console)
    for arm, values in () if of_streams else summary["arms"].items():
        for error, count in values["errors"].items():
            console.print(f"{arm} failed {count} times: {error}", highlight=False)
        for reason, count in values["unjudged"].items():
            console.print(f"{arm}: the judge gave no score for {count} answers: {reason}", highlight=False)


def print_table(result: ResultTable, console: Console) -> None:
    """Prints one line per arm, with intervals next to their means, or below where there are many columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    counted = any(row.n for row in result.rows)
    gap = "  " if len(result.metrics) < 3 else "\n"
    shown = [
        [
            Text.assemble(f"{cell.text}{gap if cell.interval else ''}", (cell.interval, "not bold dim"))
            if cell
            else Text("")
            for cell in row.cells
        ]
        for row in result.rows
    ]
    headings = [*result.metrics, *([result.counted] if counted else [])]
    rows: list[tuple[str, list[Text | str]]] = [
        (row.label, [*means, *([row.n] if counted else [])]) for row, means in zip(result.rows, shown, strict=True)
    ]
    styles = ["bold" if row.emphasis else "" for row in result.rows]
    table = Table(title=result.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True, min_width=max((len(label) for label, _ in rows), default=0))
    for index, heading in enumerate(headings):
        lines = [heading, *(line for _, cells in rows for line in str(cells[index]).split("\n"))]
        longest = max(map(len, lines))
        if all(line[:1] in " +-[0123456789" for line in lines[1:]):
            table.add_column(heading, justify="right", no_wrap=True, min_width=longest)
        else:  # sentences may be broken between words
            table.add_column(heading, min_width=max(len(heading), min(SENTENCE, longest)))
    for (label, cells), style in zip(rows, styles, strict=True):
        table.add_row(label, *cells, style=style)
    console.print()
    whole = console.measure(table, options=console.options.update(width=10_000)).minimum <= console.width
    console.print(table if whole else _blocks(result.title, headings, rows, styles))
    if result.note:
        console.print(result.note, style="dim")


def _blocks(
    title: str, headings: Sequence[str], rows: Sequence[tuple[str, Sequence[Text | str]]], styles: Sequence[str]
) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(title, style="bold")]
    for (label, cells), style in zip(rows, styles, strict=True):
        parts.append(Text(f"\n{label}", style=style))
        lines = Table.grid(padding=(0, 2))
        lines.add_column(min_width=max(map(len, headings)) + 2)
        for heading, cell in zip(headings, cells, strict=True):
            value = cell if isinstance(cell, Text) else Text(cell)
            if value.plain:
                # Lines of a narrow column are joined here.
                lines.add_row(f"  {heading}", Text("  ").join(value.split("\n")), style=style)
        parts.append(lines)
    return Group(*parts, Text(""))
