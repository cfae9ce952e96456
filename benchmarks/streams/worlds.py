"""Success per hundred episodes, learning curves and comparisons of streams that are other people's worlds, or memory's own.

python -m benchmarks.streams.worlds FOLDER... --picture docs/images/worlds.png

Each FOLDER is the `--out` of a `recollect eval stream`. Writes `benchmarks/streams/results/NAME.json` for every stream in it,
prints the tables, and draws a panel for each.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from recollect.evaluation.statistics import family
from recollect.evaluation.stream import Results, load, table
from recollect.evaluation.stream_claims import claims

HUNDRED = 100
WINDOW = 50
RESULTS = Path(__file__).parent / "results"
RIVALS = ("none", "exprag", "exprag-steps", "memrl", "memrl-steps", "ours+shuffled")
COLOURS = {
    "none": "#888888",
    "exprag": "#4477aa",
    "exprag-steps": "#66ccee",
    "memrl-steps": "#ee7733",
    "ours": "#117733",
    "ours+shuffled": "#aadd99",
    "oracle": "#222222",
}


def per_hundred(results: Results, name: str, arm: str) -> list[float]:
    """Successes in each hundred episodes of the stream, the last of which may be shorter, as if it were whole: means over
    seeds and orders."""
    bits = np.array([[float(bit) for bit in each.bits] for each in results.of(name, arm)])
    parts = [bits[:, start : start + HUNDRED] for start in range(0, bits.shape[1], HUNDRED)]
    return [round(HUNDRED * float(part.mean()), 1) for part in parts]


def compared(results: Results, name: str, ours: str = "ours") -> list[dict[str, Any]]:
    """ours - rival over the stream and frozen on held-out tasks, paired by seed, corrected together (Holm)."""
    named = [
        (f"{ours} - {rival}, {where}", results.differences(name, ours, rival, measure))
        for where, measure in (("stream", lambda row: row.auc), ("frozen", lambda row: row.final))
        for rival in RIVALS
        if results.has(name, ours, rival)
    ]
    if any(len(values) < 3 for _, values in named):
        return []
    return [
        {
            "name": each.name,
            "difference": round(each.difference, 4),
            "low": round(each.low, 4),
            "high": round(each.high, 4),
            "adjusted_p": each.adjusted,
            "holds": each.holds,
            "seeds": each.clusters,
        }
        for each in family(named)
    ]


def summary(folder: Path, revision: str) -> dict[str, dict[str, Any]]:
    """Per stream of the folder: what was asked for, the table, success per hundred, comparisons."""
    plan = json.loads((folder / "plan.json").read_text())
    results = Results(load(folder / "rows.jsonl"))
    found = {}
    for name in results.families:
        alone = Results([each for each in results.rows if each.family == name])
        arms = table(alone)[name]
        found[name] = {
            "plan": {**plan, "streams": [name]},
            "seeds": len(results.seeds),
            "episodes": len(results.of(name, next(iter(arms)))[0].bits),
            "revision": revision,
            "table": {name: arms},
            "per_hundred": {arm: per_hundred(alone, name, arm) for arm in arms},
            "differences": compared(alone, name),
            "claims": claims(alone),
        }
    return found


def draw(folders: list[Path], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [
        (results, name)
        for folder in folders
        for results in [Results(load(folder / "rows.jsonl"))]
        for name in results.families
    ]
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    wide, high = (4.8, 3.5) if columns > 1 else (7.2, 4.6)
    figure, axes = pyplot.subplots(rows, columns, figsize=(wide * columns, high * rows), squeeze=False)
    for axis in axes.ravel():
        axis.set_visible(False)
    for (results, name), axis in zip(panels, axes.ravel(), strict=False):
        axis.set_visible(True)
        for arm, colour in COLOURS.items():
            _curve(axis, results, name, arm, colour)
        axis.set_title(f"{name} ({len(results.seeds)} seeds)")
        axis.set_xlabel("episodes met")
        axis.set_ylabel(f"successes per 100, last {WINDOW}")
        axis.set_ylim(0, 100)
        axis.grid(alpha=0.25)
    handles = [pyplot.Line2D([], [], color=colour, label=arm) for arm, colour in COLOURS.items()]
    across = len(COLOURS) if columns > 1 else 3
    figure.legend(handles=handles, loc="lower center", ncol=across, fontsize=9, frameon=False)
    lines = math.ceil(len(COLOURS) / across)
    figure.tight_layout(rect=(0, 0.25 * lines / (high * rows), 1, 1))
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def _curve(axis: Any, results: Results, name: str, arm: str, colour: str) -> None:
    """A line with a band of two standard errors over seeds."""
    found = results.of(name, arm)
    if not found:
        return
    bits = np.array([[float(bit) for bit in each.bits] for each in found])
    width = min(WINDOW, bits.shape[1])
    kernel = np.ones(width) / width
    rolled = HUNDRED * np.array([np.convolve(each, kernel, mode="valid") for each in bits])
    met = np.arange(width, width + rolled.shape[1])
    mean, error = rolled.mean(axis=0), rolled.std(axis=0) / math.sqrt(len(rolled))
    axis.plot(met, mean, color=colour, linewidth=2.2 if arm == "ours" else 1.4)
    axis.fill_between(met, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.15, linewidth=0)


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def shown(name: str, found: dict[str, Any]) -> str:
    """The tables of one stream, as Markdown."""
    hundreds = max(len(values) for values in found["per_hundred"].values())
    head = [f"{HUNDRED * place + 1}-{min(found['episodes'], HUNDRED * (place + 1))}" for place in range(hundreds)]
    lines = [f"### {name}, {found['seeds']} seeds, split {found['plan']['split']}, at {found['revision']}", ""]
    lines.append("| arm | " + " | ".join(head) + " | whole stream | frozen, held out |")
    lines.append("| --- " * (len(head) + 3) + "|")
    for arm, values in found["per_hundred"].items():
        row = found["table"][name][arm]
        cells = [f"{value:.1f}" for value in values]
        lines.append(f"| {arm} | " + " | ".join(cells) + f" | {100 * row['auc']:.1f} | {100 * row['held_out']:.1f} |")
    lines += ["", "| comparison | difference | interval | holds |", "| --- | --- | --- | --- |"]
    for each in found["differences"]:
        lines.append(
            f"| {each['name']} | {100 * each['difference']:+.1f} | {100 * each['low']:+.1f} to {100 * each['high']:+.1f} | "
            f"{'yes' if each['holds'] else 'no'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--revision", default="", help="where the runs were made, if not here")
    asked = parser.parse_args()
    for folder in asked.folders:
        for name, found in summary(folder, asked.revision or _revision()).items():
            (asked.results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
            print(shown(name, found))
    if asked.picture:
        draw(asked.folders, asked.picture)


if __name__ == "__main__":
    main()
