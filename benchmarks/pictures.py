"""How the axes of pictures in the documentation look."""

from __future__ import annotations

from typing import Any

QUIET, TEXT, GRID = "#bbbbbb", "#555555", "#eeeeee"


def plain(axes: Any, grid: str = "y", size: int = 8) -> None:
    """No frame, grey labels of this size, a light grid behind what is drawn. grid: "x", "y" or "both"."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=size, color=QUIET, labelcolor=TEXT)
    axes.grid(axis=grid, color=GRID)
    axes.set_axisbelow(True)


def one_a_line(axes: Any) -> None:
    """Plain, for one name a line: nothing but the names stands at the left."""
    plain(axes, grid="x", size=9)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(axis="y", length=0)
