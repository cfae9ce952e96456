"""The pictures of a stream evaluation: AUC per arm, learning curves, reliability, attacks. One PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from keepworth.episodes.extras import require

from keepworth.evaluation.stream import Results, curves

LINES = ("none", "exprag", "memrl", "memento-p", "advantage", "advantage+shuffled", "oracle")
COLOURS = {
    "none": "#888888",
    "exprag": "#4477aa",
    "memrl": "#ee7733",
    "memento-p": "#aa3377",
    "advantage": "#117733",
    "advantage+shuffled": "#88ccaa",
    "oracle": "#222222",
}


def draw(results: Results, table: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """Write the PNG. One row of panels for AUC, one for learning curves, one for calibration."""
    require("train", "The picture of a stream evaluation", "matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = results.families
    columns = max(1, min(4, len(names)))
    rows_each = math.ceil(len(names) / columns)
    figure, axes = pyplot.subplots(
        2 * rows_each + 1, columns, figsize=(4.6 * columns, 3.4 * (2 * rows_each + 1)), squeeze=False
    )
    for axis in axes.ravel():
        axis.set_visible(False)
    for number, name in enumerate(names):
        bars, lines = axes[number // columns][number % columns], axes[rows_each + number // columns][number % columns]
        _bars(bars, name, table[name])
        _lines(lines, results, name)
    for place, arm in enumerate(("advantage", "memrl", "memento-p", "reme")[:columns]):
        _reliability(axes[2 * rows_each][place], arm, table)
    seeds, orders = len(results.seeds), len(results.orders)
    figure.suptitle(f"Streams: {seeds} seeds, {orders} orders; bars with standard error over seeds", y=1.0)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _bars(axis: Any, name: str, arms: dict[str, dict[str, Any]]) -> None:
    axis.set_visible(True)
    ordered = sorted(arms, key=lambda arm: arms[arm]["auc"])
    axis.barh(
        [arm.replace("advantage-without-", "without ") for arm in ordered],
        [arms[arm]["auc"] for arm in ordered],
        xerr=[arms[arm]["auc_error"] or 0.0 for arm in ordered],
        color=[COLOURS.get(arm, "#cccccc") for arm in ordered],
    )
    axis.set_title(f"{name}: mean success over the stream", fontsize=9)
    axis.tick_params(labelsize=7)
    axis.set_xlim(0.0, 1.0)


def _lines(axis: Any, results: Results, name: str) -> None:
    axis.set_visible(True)
    for arm, values in curves(results, name).items():
        if arm in LINES:
            axis.plot(values, label=arm, color=COLOURS[arm], linewidth=2.0 if arm == "advantage" else 1.1)
    axis.set_title(f"{name}: success in a window of 50 tasks ({results.orders[0]} order)", fontsize=9)
    axis.set_ylim(0.0, 1.0)
    axis.legend(fontsize=6)


def _reliability(axis: Any, arm: str, table: dict[str, dict[str, dict[str, Any]]]) -> None:
    axis.set_visible(True)
    axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for name, arms in table.items():
        curve = arms.get(arm, {}).get("calibration", {}).get("curve", [])
        if curve:
            axis.plot([p for p, _, _ in curve], [r for _, r, _ in curve], marker="o", markersize=3, label=name)
    axis.set_title(f"{arm}: value estimates against held-out success", fontsize=9)
    axis.set_xlim(0.0, 1.0)
    axis.set_ylim(0.0, 1.0)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=6)
