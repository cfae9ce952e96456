"""The one form of evidence: what every command that measures methods writes as `benchmarks/methods/NAME.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import interval, paired_difference

FOLDER = Path(__file__).parent
ABSENT = "not reachable here"


def arm(name: str, values: Sequence[float], within: tuple[float, float] | None = (0.0, 1.0)) -> dict[str, Any]:
    """The mean of an arm over clusters (seeds, rule sets, conversations) with its 95 % interval."""
    spread = interval(values, within=within)
    ends = [round(spread.low, 4), round(spread.high, 4)]
    return {"name": name, "mean": round(float(np.mean(values)), 4), "interval": ends, "n": len(values)}


def gap(name: str, values: Sequence[float], others: Sequence[float], level: float = 0.95) -> dict[str, Any]:
    """The paired difference of two arms over their common clusters."""
    compared = paired_difference(name, np.subtract(values, others).tolist(), level=level)
    ends = [round(compared.low, 4), round(compared.high, 4)]
    return {"against": name, "mean": round(compared.difference, 4), "interval": ends}


def worded(comparison: Mapping[str, Any], digits: int = 3, beside: str = " over ") -> str:
    """A difference with its interval, and beside what, but where `beside` is empty."""
    mean, low, high = (f"{value:+.{digits}f}" for value in (comparison["mean"], *comparison["interval"]))
    return f"{mean} [{low}, {high}]" + (beside and f"{beside}{comparison['against']}")


def write(name: str, command: str, verdict: str, sentence: str, kind: str = "", **fields: Any) -> None:
    """Writes the evidence of a method.

    Args:
        name: Of the method.
        command: What makes this file again.
        verdict: "held", "held in part", "not held" or "not reachable here".
        sentence: Why, in a sentence or two.
        kind: Of the method, where another kind has a method of the same name.
        fields: model, n, seeds, unit, arms, comparisons and controls, where something was measured.
    """
    setting = machine(1)
    evidence = {
        "name": name,
        "command": command,
        "revision": setting["revision"],
        "machine": f"{setting['processor']}, {setting['cores']} cores; Python {setting['python']}, "
        + ", ".join(f"{package} {setting['versions'][package]}" for package in ("torch", "keepworth")),
        "model": "none",
        "n": 0,
        "seeds": 0,
        "unit": "",
        "arms": [],
        "comparisons": [],
        "controls": ["none was run"],
        **fields,
        "verdict": verdict,
        "sentence": sentence,
    }
    file = FOLDER / (f"{name}.{kind}.json" if kind else f"{name}.json")
    save(file, evidence)
    print(f"{name}: {verdict}. {sentence}", flush=True)
