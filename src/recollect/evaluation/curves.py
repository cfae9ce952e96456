"""The curves of a run, as data: what the report, the picture and the terminal draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

# Names of metrics: `learning/trainer.py` and `learning/learner.py` write them.
ARM_NAMES = {
    "no_memory": "no memory",
    "untrained": "untrained, with memory",
    "trained": "trained, with memory",
    "wrong_memory": "trained, another question's memory",
    "supervised": "supervised only, equal compute",
    "oracle": "oracle evidence",
}
METRIC_NAMES = {
    "f1": "Token F1",
    "em": "Exact match",
    "exact": "Exact match",
    "bleu1": "BLEU-1",
    "accuracy": "Accuracy",
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line: `values[i]` at optimiser step `steps[i]`; `low` and `high` bound it where it was measured with an interval.
    `key` is the arm or the metric: the same key has the same colour everywhere."""

    key: str
    label: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `role`: whose it is ("" where a run has no roles). `stacked`: the series add up (seconds by phase).
    `held_out`: measured on questions that were not trained on."""

    key: str
    title: str
    unit: str
    series: tuple[Series, ...]
    role: str = ""
    stacked: bool = False
    held_out: bool = False


def panels(metrics: Sequence[Row], evals: Sequence[Row]) -> list[Panel]:
    """By role, in the order in which the roles were trained: held-out metrics first, then the training curves that exist."""
    held_out = _held_out(evals)
    training = [panel for role in _distinct(metrics, "role") for panel in _training(metrics, role)]
    roles = dict.fromkeys(panel.role for panel in [*training, *held_out])
    return [panel for role in roles for panel in [*held_out, *training] if panel.role == role]


def arm_name(arm: str) -> str:
    return ARM_NAMES.get(arm, arm.replace("_", " "))


def metric_name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def _held_out(evals: Sequence[Row]) -> list[Panel]:
    found = []
    keys = dict.fromkeys((row.get("role"), row.get("split"), str(row["metric"])) for row in evals)
    for role, split, metric in keys:
        rows = [r for r in evals if (r.get("role"), r.get("split"), r["metric"]) == (role, split, metric)]
        series = []
        for arm in dict.fromkeys(str(row["arm"]) for row in rows):
            of_arm = [row for row in rows if row["arm"] == arm]
            series.append(
                Series(
                    key=arm,
                    label=arm_name(arm),
                    steps=tuple(int(row["step"]) for row in of_arm),
                    values=tuple(float(row["mean"]) for row in of_arm),
                    low=tuple(float(row["low"]) for row in of_arm),
                    high=tuple(float(row["high"]) for row in of_arm),
                )
            )
        questions = max(int(row["n"]) for row in rows)
        found.append(
            Panel(
                key=".".join(str(each) for each in ("held_out", role, split, metric) if each),
                title=f"{metric_name(metric)} on held-out questions" + (f" ({split})" if split else ""),
                unit=f"mean and 95 % interval, n = {questions:,}",
                series=tuple(series),
                role=str(role or ""),
                held_out=True,
            )
        )
    return found


def _training(metrics: Sequence[Row], role: str | None) -> list[Panel]:
    rows = [row for row in metrics if row.get("role") == role]
    names = dict.fromkeys(
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, int | float) and name not in ("step", "time")
    )
    found = []

    def add(key: str, title: str, unit: str, chosen: Iterable[str], *, stacked: bool = False) -> None:
        series = tuple(each for each in (_series(rows, name) for name in chosen) if each.steps)
        if series:
            found.append(Panel(f"{role}.{key}" if role else key, title, unit, series, role or "", stacked))

    def family(prefix: str) -> list[str]:
        return [name for name in names if name.startswith(prefix)]

    add("reward", "Reward per term", "mean", [*(name for name in names if name == "reward"), *family("reward/")])
    add("loss", "Supervised loss", "nats", [name for name in names if name == "loss"])
    add("length", "Response length", "tokens", [name for name in names if name == "response_length"])
    add("entropy", "Entropy", "nats", [name for name in names if name == "entropy"])
    add("invalid", "Invalid operations", "share", [name for name in names if name == "invalid_operations"])
    add("operations", "Operations", "share", family("operation/"), stacked=True)
    add("gap", "Sampler, learner gap", "nats", [name for name in names if name == "mismatch_mean"])
    add("gradient", "Gradient norm", "", [name for name in names if name == "gradient_norm"])
    add("seconds", "Seconds by phase", "s per step", family("seconds/"), stacked=True)
    return found


def _series(rows: Sequence[Row], name: str) -> Series:
    points = [(int(row["step"]), float(row[name])) for row in rows if isinstance(row.get(name), int | float)]
    label = name.split("/", 1)[1] if "/" in name else "total" if name == "reward" else name.replace("_", " ")
    return Series(name, label, tuple(step for step, _ in points), tuple(value for _, value in points))


def _distinct(rows: Sequence[Row], key: str) -> list[str | None]:
    return list(dict.fromkeys(row.get(key) for row in rows))


# Light and dark variants of the same eight hues, in an order that stays apart for colour-blind readers.
PALETTE = ("#2563eb", "#c2630a", "#0f8a7a", "#8b45d6", "#d1345b", "#6b7280", "#0e7fa6", "#7c7a12")
PALETTE_DARK = ("#7aa7ff", "#f0a35e", "#4fd1bd", "#c49bff", "#ff86a3", "#a3acba", "#62c6ea", "#cfcb5a")
ARM_COLOURS = {"trained": 0, "untrained": 5, "no_memory": 1, "wrong_memory": 4, "supervised": 2, "oracle": 3}


def colour_indices(keys: Sequence[str]) -> list[int]:
    """A place in the palette for each key: the arms of the usual table have their own, others take what is left in order."""
    taken = {ARM_COLOURS[key] for key in keys if key in ARM_COLOURS}
    free = [index for index in range(len(PALETTE)) if index not in taken] or list(range(len(PALETTE)))
    found, used = [], 0
    for key in keys:
        if key in ARM_COLOURS:
            found.append(ARM_COLOURS[key])
        else:
            found.append(free[used % len(free)])
            used += 1
    return found


def write_picture(found: Sequence[Panel], path: Path, title: str) -> Path:
    """The panels on one PNG, 160 dots per inch."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, max(1, len(found)))
    lines = max(1, -(-len(found) // columns))
    figure = Figure(figsize=(5.2 * columns, 3.4 * lines + 0.5), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    for place, panel in enumerate(found):
        axes = figure.add_subplot(lines, columns, place + 1)
        axes.set_title(
            f"{panel.role}: {panel.title}" if panel.role else panel.title, loc="left", fontsize=10, fontweight="bold"
        )
        axes.set_ylabel(panel.unit, fontsize=8, color="#555555")
        axes.set_xlabel("step", fontsize=8, color="#555555")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#bbbbbb")
        axes.tick_params(labelsize=8, color="#bbbbbb", labelcolor="#555555")
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
        if panel.stacked:
            steps = sorted({step for series in panel.series for step in series.steps})
            heights = [
                [dict(zip(s.steps, s.values, strict=True)).get(step, 0.0) for step in steps] for s in panel.series
            ]
            axes.stackplot(steps, heights, labels=[s.label for s in panel.series], colors=PALETTE, alpha=0.85, lw=0)
        else:
            for series, index in zip(panel.series, colour_indices([each.key for each in panel.series]), strict=True):
                colour = PALETTE[index]
                marker = "o" if len(series.steps) <= 12 else None
                axes.plot(series.steps, series.values, color=colour, lw=1.8, marker=marker, ms=3.5, label=series.label)
                if series.low:
                    axes.fill_between(series.steps, series.low, series.high, color=colour, alpha=0.13, lw=0)
        if len(panel.series) > 1:
            axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2)
    figure.savefig(path, facecolor="white")
    return path
