"""Put what the arms of `text_world` earned into docs/recipes.md, and its picture into docs/images.

python -m benchmarks.text_world.page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing
from benchmarks.text_world.run import BOTH, HERE, POLICIES, STATES

ROOT = HERE.parent.parent
PAGE, PICTURE = ROOT / "docs" / "recipes.md", ROOT / "docs" / "images" / "text_world.png"

SHOWN = {"worked": "an action that worked", "failed": "failures alone", "nothing": "nothing"}


def shown(row: dict[str, Any], mean: str = "success", ends: tuple[str, str] = ("low", "high"), sign: str = "") -> str:
    return f"{row[mean]:{sign}.2f} [{row[ends[0]]:{sign}.2f}, {row[ends[1]]:{sign}.2f}]"


def levels(arms: dict[str, dict[str, Any]]) -> str:
    rows = [[state, *(shown(arms[f"{state}, {memory}"]) for memory in POLICIES)] for state in STATES]
    return markdown(["model", *POLICIES], rows)


def gaps(arms: dict[str, dict[str, Any]]) -> str:
    rows = [
        [arm, shown(row), shown(row, "both_minus", ("both_minus_low", "both_minus_high"), "+")]
        for arm, row in arms.items()
        if "both_minus" in row
    ]
    return markdown(["arm", "success", "both learn, minus it"], sorted(rows, key=lambda row: row[1], reverse=True))


def reading(found: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = []
    for arm, states in found.items():
        cells = [f"{states[state]['right']:.2f} ({states[state]['share']:.0%})" for state in SHOWN]
        rows.append([arm, *cells, f"{states['failed']['again']:.0%}"])
    return markdown(
        [
            "right actions (share of all actions in brackets), by what memory shows of this thing",
            *SHOWN.values(),
            "failed action done again",
        ],
        rows,
    )


def groups(found: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = []
    for memory, states in found.items():
        total = sum(state["groups"] for state in states.values())
        cells = [f"{states[each]['groups']:.0f} of {total:.0f}, {states[each]['all_wrong']:.0%}" for each in SHOWN]
        rows.append([memory, *cells])
    return markdown(["groups by what was shown, and share with all samples wrong", *SHOWN.values()], rows)


def picture(arms: dict[str, dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for offset, (memory, style) in enumerate(zip((*POLICIES, "oracle"), "os^D", strict=True)):
        for place, state in enumerate(STATES):
            row = arms.get(f"{state}, {memory}")  # the oracle is not measured after the warm start
            if row is not None:
                ends = [[row["success"] - row["low"]], [row["high"] - row["success"]]]
                label = memory if state == next(iter(STATES)) else None
                axis.errorbar(
                    place + 0.15 * (offset - 1.5), row["success"], ends, fmt=style, color=f"C{offset}", label=label
                )
    axis.set(
        xticks=range(len(STATES)), xticklabels=[f"model: {state}" for state in STATES], ylim=(0, 1), ylabel="success"
    )
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


def main() -> None:
    takes_nothing(__doc__)
    found = json.loads((HERE / "text_world.json").read_text())
    arms = {row["arm"]: row for row in found["arms"]}
    both = arms[BOTH]
    about = (
        f"{both['seeds']} seeds, {both['houses']} houses, {found['tasks']} tasks in each; 95 % intervals over seeds and "
        f"houses. `{found['command']}`, {found['hours']:.1f} hours of runs, two at a time; "
        f"settings: {', '.join(found['settings'])}."
    )
    image = "![Success by model and memory, with intervals](../images/text_world.png)"
    filled(
        PAGE,
        "text_world",
        "\n\n".join((levels(arms), gaps(arms), reading(found["read"]), groups(found["trained_on"]), about, image)),
    )
    picture(arms)


if __name__ == "__main__":
    main()
