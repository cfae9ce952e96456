"""Tables of pages: rows where there is room, cards on a phone, sorted by what is clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class TableColumn:
    """Of a table that becomes a list of cards where there is no room. numeric: sorted by number, and set to the right."""

    name: str
    numeric: bool = True


def cards_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[tuple[str, object]]], *, sortable: bool = False
) -> str:
    """rows: of each cell its HTML and what it is sorted by. A column without a name, such as that of a mark, is not sorted by."""
    heads = "".join(
        f"<th{' class=number' if each.numeric else ''}>"
        + (f'<button type="button" data-sort="{place}">{escape(each.name)}</button>' if sortable else escape(each.name))
        + "</th>"
        if each.name
        else "<td></td>"
        for place, each in enumerate(columns)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f'<td{" class=number" if column.numeric else ""} data-label="{escape(column.name)}"'
            f' data-value="{escape(_sorted(value))}">{html}</td>'
            for column, (html, value) in zip(columns, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    kind = "cards sortable" if sortable else "cards"
    return f'<div class="card"><table class="{kind}"><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _sorted(value: object) -> str:
    return "" if value is None else str(value)
