"""The one form of evidence: what every command that measures methods writes as `benchmarks/methods/NAME.json`."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.methods import rules
from benchmarks.methods.ruling import judge
from benchmarks.record import save
from benchmarks.speed.setting import machine
from benchmarks.tables import ROOT
from keepworth.base.statistics import LEAST, interval, paired_difference
from keepworth.registry import KINDS, Method, methods

FOLDER = Path(__file__).parent
ASIDE = ROOT / "build" / "evidence"
"""The folder of evidence that is not recorded."""


class Destination:
    """Where `write` leaves evidence: aside, until a command was told to record it.

    The revision is that of the tree before the first record of a command changed it."""

    folder = ASIDE
    revision = ""


def measuring(parser: argparse.ArgumentParser, *, smallest: str = "") -> argparse.ArgumentParser:
    """The parser of a command that leaves evidence, with its options.

    Args:
        parser: The command's parser.
        smallest: What its smallest size is, for the help of --smallest; "" where it takes no time.
    """
    parser.add_argument(
        "--record", action="store_true", help="write benchmarks/methods/NAME.json, from a tree without changes"
    )
    parser.add_argument("--out", type=Path, default=ASIDE, help="the folder for what is not recorded")
    if smallest:
        parser.add_argument("--smallest", action="store_true", help=f"only see that it works: {smallest}")
    return parser


def begin(options: argparse.Namespace, seeds: int | None = None) -> None:
    """Refuses what could not be recorded before anything is run, and says where evidence goes.

    Args:
        options: Of a parser by `measuring`.
        seeds: How many are to be run, None where the command has none.

    Raises:
        SystemExit: There are too few seeds for an interval; or it is to be recorded at its smallest size, or from a tree whose
            changes are in no commit.
    """
    if seeds is not None and seeds < LEAST:
        raise SystemExit(f"An interval needs {LEAST} seeds, and --seeds is {seeds}. Nothing was run.")
    if not options.record:
        Destination.folder = options.out
        return
    if getattr(options, "smallest", False):
        raise SystemExit("--smallest only shows that a command works: record without it. Nothing was run.")
    status = ["git", "-C", str(ROOT), "status", "--porcelain"]
    changes = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    if changes:
        first = ", ".join(line[3:] for line in changes[:3])
        raise SystemExit(
            f"{len(changes)} files have changes that are in no commit ({first}), so that nobody could measure this again. "
            "Commit them, or leave --record out. Nothing was run."
        )
    Destination.folder, Destination.revision = FOLDER, machine(1)["revision"]


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


def write(name: str, command: str, sentence: str, kind: str = "", **fields: Any) -> None:
    """Writes the evidence of a method, with the verdict that the one rule gives its numbers.

    Args:
        name: Of the method.
        command: What makes this file again.
        sentence: What was measured, in a sentence or two.
        kind: Of the method, where another kind has a method of the same name.
        fields: model, n, seeds, unit, arms, comparisons and controls, where something was measured, and the rule where
            `benchmarks/methods/rules.py` does not make it.
    """
    setting = machine(1)
    evidence = {
        "name": name,
        "command": command,
        "revision": Destination.revision or setting["revision"],
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
        "sentence": sentence,
    }
    declared = method_of(name, kind)
    evidence.setdefault("rule", rules.rule_of(name, declared.kind, evidence))
    evidence = judged(evidence, declared.claim)
    file = Destination.folder / (f"{name}.{kind}.json" if kind else f"{name}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    save(file, evidence)
    print(f"{name}: {evidence['verdict']}. {evidence['because']} {sentence}", flush=True)


def judged(record: dict[str, Any], claim: str) -> dict[str, Any]:
    """The record with its verdict, the bound, and the numbers that both are from."""
    ruling = judge(record, claim, ROOT)
    verdict = asdict(ruling)
    kept = {key: value for key, value in record.items() if key not in (*verdict, "sentence")}
    return {**kept, **verdict, "sentence": record["sentence"]}


def method_of(name: str, kind: str = "") -> Method:
    """The method that a record of this name is of; of several kinds the one that claims something."""
    declared = [of[name] for of in map(methods, KINDS) if name in of]
    named = [method for method in declared if method.kind == kind or not kind]
    return max(named, key=lambda method: bool(method.claim))
