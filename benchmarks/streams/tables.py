"""Print the tables of docs/experience.md from the summaries of a matrix.

python -m benchmarks.streams.tables benchmarks/streams/results/core.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def successes(summary: dict[str, Any], measure: str = "auc") -> str:
    """Arms down, streams across."""
    names = list(summary["table"])
    arms = summary["plan"]["arms"]
    lines = ["| | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for arm in arms:
        cells = [f"{summary['table'][name][arm][measure]:.3f}" for name in names]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def comparisons(found: list[dict[str, Any]]) -> str:
    lines = ["| comparison | difference | interval | holds |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {each['name']} | {each['difference']:+.3f} | {each['low']:+.3f} to {each['high']:+.3f} | "
        f"{'yes' if each['holds'] else 'no'} |"
        for each in found
    ]
    return "\n".join(lines)


def main() -> None:
    for path in sys.argv[1:]:
        summary = json.loads(Path(path).read_text())
        print(f"## {path}: {summary['seeds']} seeds, orders {', '.join(summary['plan']['orders'])}\n")
        print(successes(summary) + "\n")
        print("Held out, frozen:\n\n" + successes(summary, "held_out") + "\n")
        for kind in ("primary", "not_worse", "gain_gone_when_shuffled", "parts"):
            if summary["claims"][kind]:
                print(f"{kind}\n\n{comparisons(summary['claims'][kind])}\n")
        for each in summary["claims"]["held_out"]:
            print(f"| {each['name']} | {each['difference']:+.3f} | {each['pairs']} | {each['p']:.2g} |")
        for kind in ("attacks", "recovery", "tampering"):
            for each in summary["claims"].get(kind, []):
                print(json.dumps(each))
        for name, arms in summary["table"].items():
            for arm, values in arms.items():
                calibration = values["calibration"]
                if calibration["error"] is not None:
                    correlation = calibration["correlation"]
                    print(
                        f"calibration {name} {arm}: n {calibration['n']} error {calibration['error']:.3f} correlation "
                        f"{'-' if correlation is None else f'{correlation:.2f}'}, content loss {values['content_loss']:.3f}, "
                        f"routing loss {values['routing_loss']:.3f}, recall {values['recall_ms']:.2f} ms"
                    )


if __name__ == "__main__":
    main()
