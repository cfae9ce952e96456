"""The demo's picture and table in the README, from the run `runs/demo` where that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import ROOT, markdown
from keepworth.charts.charts import PALETTE, Panel
from keepworth.charts.curves import panels
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.tables import ResultTable, tables_of

PICTURE = ("held_out.answerer.test.f1", "answerer.reward")
IMAGES = "docs/images/demo.png", "docs/images/demo_narrow.png"
"""The picture in two columns, and in one for screens of less than 600 pixels."""
RUN = ROOT / "runs" / "demo"


def result_table(table: ResultTable) -> str:
    header = [table.title, *(f"{name} [95 %]" for name in table.metrics), "n"]
    rows = []
    for row in table.rows:
        cells = ["" if c is None else f"{c.mean:.2f} {c.interval}".strip() for c in row.cells]
        strong = "**" if row.emphasis else ""
        rows.append([f"{strong}{row.label}{strong}", *(f"{strong}{cell}{strong}" for cell in cells), row.n])
    return markdown(header, rows) + (f"\n\n{table.note}" if table.note else "")


def draw(curves: Sequence[Panel], path: Path, columns: int) -> None:
    """The panels on one PNG, two pixels for each that a page shows: 830 wide in two columns, 415 in one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = -(-len(curves) // columns)
    figure = Figure(figsize=(4.15 * columns, 3.1 * lines + 0.35), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    for row, panel in enumerate(curves):
        axes = figure.add_subplot(lines, columns, row + 1)
        axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
        axes.set_ylabel(panel.unit, fontsize=9, color="#555555")
        axes.set_xlabel(panel.along, fontsize=9, color="#555555")
        plain(axes, size=9)
        for series, index in zip(panel.series, panel.colours(), strict=True):
            style = {"color": PALETTE[index], "marker": "o" if len(series.steps) <= 12 else None}
            axes.plot(series.steps, series.values, lw=1.8, ms=3.5, label=series.label, **style)
            if series.low:
                axes.fill_between(series.steps, series.low, series.high, color=PALETTE[index], alpha=0.13, lw=0)
        if panel.held_out:
            axes.set_ylim(bottom=min((0.0, *(bound for series in panel.series for bound in series.low))))
        if len(panel.series) > 1:
            axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=2)
    figure.savefig(path, facecolor="white")


def plain(axes: Any, size: int = 8) -> None:
    """No frame, grey labels of this size, a light grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=size, color="#bbbbbb", labelcolor="#555555")
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)


def tables() -> Iterator[tuple[Path, str, str]]:
    if not (RUN / "result.json").exists():
        return
    run = RunFolder.open(RUN)
    for columns, image in zip((2, 1), IMAGES, strict=True):
        draw([panel for panel in panels(run.metrics(), run.evals()) if panel.key in PICTURE], ROOT / image, columns)
    wide, narrow = IMAGES
    picture = (
        f'<picture>\n<source media="(max-width: 600px)" srcset="{narrow}">\n'
        f'<img src="{wide}" alt="Token F1 on test questions and the reward, over the steps of the demo">\n</picture>'
    )
    yield ROOT / "README.md", "demo-picture", picture
    yield ROOT / "README.md", "demo-table", "\n\n".join(result_table(table) for table in tables_of(run))
