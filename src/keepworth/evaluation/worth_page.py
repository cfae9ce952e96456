"""The ledger of a memory as one page: what each item added, with its interval, and what finding out has cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from keepworth.evaluation.report import page_html
from keepworth.evaluation.tables import Cell
from keepworth.memory.policy.ledger import Account, Balance
from keepworth.memory.policy.trial import Contrast
from keepworth.page.charts import whisker
from keepworth.page.tables import TableColumn, cards_table

COLUMNS = (
    TableColumn("item", False),
    TableColumn("effect"),
    TableColumn("95 %"),
    TableColumn("", False),
    TableColumn("verdict", False),
    TableColumn("shown"),
    TableColumn("withheld"),
    TableColumn("success"),
)
COLOURS = {"helps": 2, "harms": 4}
"""Of the marks, by verdict; what is not known is grey."""


def write_worth_page(
    path: Path,
    name: str,
    statement: Balance,
    texts: Mapping[str, str],
    trials: Sequence[Contrast] = (),
    notes: Sequence[str] = (),
) -> Path:
    """name: of the memory; texts: of the items, by id; notes: what is said under the table. The page needs nothing else."""
    helps = sum(each.verdict == "helps" for each in statement.accounts)
    harms = sum(each.verdict == "harms" for each in statement.accounts)
    said = (
        f"Of {len(statement.accounts):,} items {helps:,} surely help and {harms:,} surely harm."
        if statement.accounts
        else "No item was shown with a reward yet."
    )
    below = (
        f'<p class="headline">{escape(said)}</p><div class="facts"><span>rewarded episodes '
        f"<b>{statement.rewarded:,}</b></span><span>cost of withholding, points of 100 an episode "
        f"<b>{statement.points(statement.net):.2f}</b></span></div>"
    )
    body = ""
    if statement.accounts:
        lines = "".join(f'<p class="note">{escape(each)}</p>' for each in notes)
        body += f"<section><h2>What each item added</h2>{_accounts(statement.accounts, texts)}{lines}</section>"
    if trials:
        body += f"<section><h2>The whole memory, or a source</h2>{_trials(trials)}</section>"
    footer = f"The same in the terminal: <code>keepworth memory ledger --file {escape(name)}</code>."
    path.write_text(page_html(name, "Is this memory worth keeping?", "memory", below, body, footer), encoding="utf-8")
    return path


def _accounts(accounts: Sequence[Account], texts: Mapping[str, str]) -> str:
    known = [each for each in accounts if math.isfinite(each.high)]
    low, high = min((0.0, *(each.low for each in known))), max((0.0, *(each.high for each in known)))
    rows = []
    for each in accounts:
        mark, interval = "", "none yet"
        if math.isfinite(each.high):
            mark = whisker(Cell(each.effect, each.low, each.high), low, high, COLOURS.get(each.verdict, 5), 160)
            interval = f"[{each.low:+.2f}, {each.high:+.2f}]"
        more = f", about {each.needed:,} more episodes" if each.needed else ""
        rows.append(
            [
                (f"<b>{escape(each.item)}</b> {escape(texts.get(each.item, ''))}", each.item),
                (f"{each.effect:+.2f}" if each.rows else "none yet", each.effect if each.rows else None),
                (interval, each.low if math.isfinite(each.low) else None),
                (mark, each.effect if mark else None),
                (escape(each.verdict + more), each.verdict),
                (f"{each.shown:,}", each.shown),
                (f"{each.withheld:,}", each.withheld),
                (
                    "none" if math.isnan(each.success) else f"{each.success:.2f}",
                    None if math.isnan(each.success) else each.success,
                ),
            ]
        )
    return cards_table(COLUMNS, rows, sortable=True)


def _trials(trials: Sequence[Contrast]) -> str:
    columns = (
        TableColumn("what", False),
        TableColumn("on"),
        TableColumn("off"),
        TableColumn("effect"),
        TableColumn("verdict", False),
    )
    rows = [
        [
            (escape(each.source or "the whole memory"), each.source),
            (f"{each.on:.2f}", each.on),
            (f"{each.off:.2f}", each.off),
            (f"{each.effect:+.2f}", each.effect),
            (escape(f"{each.verdict}, {each.pairs} pairs of blocks, p = {each.p:.2g}"), each.verdict),
        ]
        for each in trials
    ]
    return cards_table(columns, rows)
