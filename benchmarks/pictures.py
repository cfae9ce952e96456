"""Pictures of the documentation: the curves of panels, and how axes look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from keepworth.episodes.text import one_line
from keepworth.page.charts import PALETTE, Panel

QUIET, TEXT, GRID = "#bbbbbb", "#555555", "#eeeeee"


def plain(axes: Any, grid: str = "y", size: int = 8) -> None:
    """No frame, grey labels of this size, a light grid behind what is drawn. grid: "x", "y" or "both"."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=size, color=QUIET, labelcolor=TEXT)
    axes.grid(axis=grid, color=GRID)
    axes.set_axisbelow(True)


def write_picture(panels: Sequence[Panel], path: Path, title: str, columns: int = 2, note: str = "") -> Path:
    """The panels on one PNG, two pixels for each that a page shows: 830 wide in two columns, 415 in one. note: a line below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = max(1, -(-len(panels) // columns))
    several = len({panel.role for panel in panels}) > 1
    figure = Figure(figsize=(4.15 * columns, 3.1 * lines + 0.35), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_as_text(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    if note:
        figure.supxlabel("\n".join(wrap(_as_text(note), 60 * columns)), x=0.01, ha="left", fontsize=8, color="#555555")
    for row, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, row + 1)
        name = f"{panel.role}: {panel.title}" if panel.role and several else panel.title
        axes.set_title(_as_text(name), loc="left", fontsize=10, fontweight="bold")
        axes.set_ylabel(_as_text(panel.unit), fontsize=9, color="#555555")
        axes.set_xlabel(panel.along, fontsize=9, color="#555555")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#bbbbbb")
        axes.tick_params(labelsize=9, color="#bbbbbb", labelcolor="#555555")
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
        for series, index in zip(panel.series, panel.colours(), strict=True):
            colour = PALETTE[index]
            marker = "o" if len(series.steps) <= 12 else None
            axes.plot(
                series.steps,
                series.values,
                color=colour,
                lw=1.8,
                marker=marker,
                ms=3.5,
                label=_as_text(series.label),
            )
            if series.low:
                axes.fill_between(series.steps, series.low, series.high, color=colour, alpha=0.13, lw=0)
        if panel.held_out:
            axes.set_ylim(bottom=min((0.0, *(bound for series in panel.series for bound in series.low))))
        if len(panel.series) > 1:
            axes.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=2)
    figure.savefig(path, facecolor="white")
    return path


def _as_text(name: str) -> str:
    """A name as the picture shows it: no formula between dollar signs, and no control character, which the library would warn
    of on the terminal."""
    return one_line(name).replace("$", r"\$")
