"""Put the tables of `swarm.json` and `swarm_cost.json` into docs/appendix/cluster.md, so that no number is typed by hand.

python -m benchmarks.cluster.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "cluster.md"
Result = Any


def swarm(result: Result) -> str:
    rows = [
        (
            row["arm"],
            _mean(row["final"]),
            _gain(row["final_gain"]),
            _mean(row["equal_seconds"]),
            _gain(row["equal_seconds_gain"]),
            f"{row['sampled']:,.0f}",
            f"{row['foreign'] * result['members']:,.0f}",
            f"{row['seconds']:.1f}",
        )
        for row in result["arms"]
    ]
    head = (
        "local + foreign groups",
        "at equal updates",
        "against 8 + 0",
        "at equal processor time",
        "against 8 + 0",
        "rollouts sampled",
        "rollouts taken over",
        "processor seconds",
    )
    said = (
        f"Share of reward, of which {result['untrained']:.3f} without training, {result['chance']:.3f} by chance and "
        f"{result['oracle']:g} for who knows the rule. Rollouts and seconds are a node's, over {result['steps']} updates. "
        f"{len(result['seeds'])} swarms of {result['nodes']} nodes; intervals are over swarms (t), paired by seed."
    )
    return "\n\n".join((markdown(head, rows), said, _besides(result), _setting(result["machine"])))


def _besides(result: Result) -> str:
    lines = [f"{name}: {_gain(gap)}" for name, gap in result["beyond"].items()]
    (liar,) = (row for row in result["arms"] if row["arm"].endswith("a liar"))
    trained, refused = liar["trained"], liar["refused"]
    listed = ", ".join(f"{why} {count}" for why, count in sorted(refused.items(), key=lambda each: -each[1]))
    return (
        f"At equal updates, {'; '.join(lines)}. With the liar, {trained.get('nodes', 0):,} groups of the other node were "
        f"trained on and {trained.get('liar', 0):,} that the liar wrote; refused were {sum(refused.values()):,} ({listed})."
    )


def cost(result: Result) -> str:
    rows = [
        ("sampled", _seconds(result["seconds_sampled"])),
        ("replayed and scored", _seconds(result["seconds_replayed"])),
    ]
    said = (
        f"{result['model']}, recipe arithmetic: groups of {result['members']}, answers of up to {result['max_tokens']} tokens; "
        f"{len(result['rounds'])} rounds, t intervals over them. Learning costs the same for both."
    )
    return "\n\n".join((markdown(("a group that is", "processor seconds"), rows), said, _setting(result["machine"])))


def _mean(found: Result) -> str:
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def _gain(found: Result | None) -> str:
    return "" if found is None else f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


def _seconds(found: Result) -> str:
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _setting(record: Result) -> str:
    return (
        f"{record['processor']}, {record['cores']} cores, {record['threads']} thread, load average "
        f"{record['load_average_at_start']:.1f} when it was written; torch {record['versions']['torch']}; revision "
        f"{record['revision']}, {record['measured_at'][:10]}."
    )


def main() -> None:
    takes_nothing(__doc__)
    for name, table in (("swarm", swarm), ("swarm_cost", cost)):
        filled(PAGE, name, table(json.loads((HERE / f"{name}.json").read_text())))


if __name__ == "__main__":
    main()
