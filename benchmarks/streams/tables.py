"""Print the tables of docs/experience.md from the summaries of a matrix.

python -m benchmarks.streams.tables benchmarks/streams/results/matrix.json

Files of `benchmarks.streams.worlds` print theirs when they are made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SHOWN = ("none", "exprag", "memrl", "ours", "oracle")


def across(summary: dict[str, Any], measure: str = "auc", digits: str = ".3f") -> str:
    """One measure: arms down, streams across."""
    names = list(summary["table"])
    lines = ["| | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for arm in summary["plan"]["arms"]:
        cells = [format(summary["table"][name][arm][measure], digits) for name in names]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def per_order(summary: dict[str, Any]) -> str:
    """Held-out success by the order in which memory met the stream."""
    orders = summary["plan"]["orders"]
    lines = ["| stream | arm | " + " | ".join(orders) + " |", "| --- " * (len(orders) + 2) + "|"]
    for name, arms in summary["table"].items():
        for arm in SHOWN:
            if arm in arms:
                cells = [f"{arms[arm]['held_out_per_order'][order]:.3f}" for order in orders]
                lines.append(f"| {name} | {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def measures(summary: dict[str, Any]) -> str:
    """What a run costs and keeps, and how good its estimates are."""
    lines = [
        "| stream | arm | transfer | forgetting | order gap | content loss | routing loss | calibration error | correlation | "
        "words read | success per 1,000 words | items | recall, ms |",
        "| --- " * 13 + "|",
    ]
    for name, arms in summary["table"].items():
        for arm, values in arms.items():
            if arm.startswith("ours-without"):
                continue
            curve = values["calibration"]
            error, correlation = (
                "—" if curve[key] is None else f"{curve[key]:.2f}" for key in ("error", "correlation")
            )
            recall = values["recall_ms"]
            lines.append(
                f"| {name} | {arm} | {values['transfer']:+.3f} | {values['forgetting']:.3f} | {values['order_gap']:.3f} | "
                f"{values['content_loss']:.3f} | {values['routing_loss']:.3f} | {error} | {correlation} | "
                f"{values['words']:.0f} | {values['success_per_1000_words']:.1f} | {values['items']:.0f} | "
                f"{'—' if recall != recall else f'{recall:.2f}'} |"
            )
    return "\n".join(lines)


def comparisons(found: list[dict[str, Any]]) -> str:
    lines = ["| comparison | difference | interval | holds |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {each['name']} | {each['difference']:+.3f} | {each['low']:+.3f} to {each['high']:+.3f} | "
        f"{'yes' if each['holds'] else 'no'} |"
        for each in found
    ]
    return "\n".join(lines)


def parts(found: list[dict[str, Any]]) -> str:
    """What each part is worth on each stream; a star where its corrected interval leaves 0 out."""
    cells: dict[str, dict[str, str]] = {}
    for each in found:
        arm, _, name = each["name"].removeprefix("ours - ").partition(" on ")
        sure = each["low"] > 0.0 or each["high"] < 0.0
        cells.setdefault(arm, {})[name] = f"{100 * each['difference']:+.1f}{'*' if sure else ''}"
    names = list(next(iter(cells.values())))
    lines = ["| left out | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    lines += [
        f"| {arm.removeprefix('ours-without-')} | " + " | ".join(each[name] for name in names) + " |"
        for arm, each in cells.items()
    ]
    return "\n".join(lines)


def scored(summary: dict[str, Any]) -> str:
    """What `benchmarks.streams.scorer` found: arms down, streams across, then the comparisons."""
    names = list(summary["table"])
    arms = dict.fromkeys(arm for name in names for arm in summary["table"][name])
    lines = ["| | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for arm in arms:
        cells = [f"{found[arm]['auc']:.3f}" if arm in (found := summary["table"][name]) else "—" for name in names]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    lines += ["", "| comparison | difference | tasks | McNemar p | interval over rule sets |", "| --- " * 5 + "|"]
    for name in names:
        claims = summary["claims"][name]
        for pair, each in claims["tasks"].items():
            sets = claims["rule_sets"].get(pair)
            interval = f"{sets['low']:+.3f} to {sets['high']:+.3f}" if sets else "—"
            difference = f"{each['difference']:+.3f} | {each['pairs']} | {each['p']:.2g}"
            lines.append(f"| {pair} on {name} | {difference} | {interval} |")
    return "\n".join(lines)


def main() -> None:
    for path in sys.argv[1:]:
        summary = json.loads(Path(path).read_text())
        claims = summary["claims"]
        if "orders" not in summary["plan"]:
            print(f"## {path}: {summary['seeds']} seeds\n\n{scored(summary)}\n")
            continue
        print(f"## {path}: {summary['seeds']} seeds, orders {', '.join(summary['plan']['orders'])}\n")
        print(across(summary) + "\n")
        print("Held out, frozen:\n\n" + across(summary, "held_out") + "\n")
        print(per_order(summary) + "\n")
        print(measures(summary) + "\n")
        kinds = ("primary", "not_worse", "gain_gone_when_shuffled", "gain_gone_when_masked", "no_lower_than_none")
        for kind in kinds:
            if claims.get(kind):
                print(f"{kind}\n\n{comparisons(claims[kind])}\n")
        for kind in ("gain_gone_when_shuffled", "gain_gone_when_masked"):
            for each in claims.get(kind, []):
                if each.get("gone"):
                    print(f"share of the gain that went, {each['name']}: {each['gone']}")
        if claims["parts"]:
            print(f"\nparts, points\n\n{parts(claims['parts'])}\n")
        for each in claims["held_out"]:
            interval = f"{each['low']:+.3f} to {each['high']:+.3f}" if "low" in each else "—"
            print(f"| {each['name']} | {each['difference']:+.3f} | {interval} | {each['pairs']} | {each['p']:.2g} |")
        for kind in ("attacks", "recovery", "tampering"):
            for each in claims.get(kind, []):
                print(json.dumps(each))


if __name__ == "__main__":
    main()
