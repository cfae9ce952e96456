"""Put what the arms of `text_world` earned into docs/recipes.md, and its picture into docs/images.

python -m benchmarks.text_world.page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import filled, markdown
from benchmarks.text_world.run import BOTH, HERE, POLICIES, STATES

ROOT = HERE.parent.parent
PAGE, PICTURE = ROOT / "docs" / "recipes.md", ROOT / "docs" / "images" / "text_world.png"


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


def picture(arms: dict[str, dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(STATES), figsize=(8, 2.8), layout="constrained", sharey=True)
    for axis, state in zip(axes, STATES, strict=True):
        for memory, style in zip(POLICIES, ("o:", "s--", "^-"), strict=True):
            values = arms[f"{state}, {memory}"]["by_part"]
            axis.plot(range(1, len(values) + 1), values, style, markersize=4, label=memory)
        axis.set(title=state, xlabel="part of the tasks of a house", ylim=(0, 1), xticks=range(1, len(values) + 1))
    axes[0].set_ylabel("success")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


def main() -> None:
    found = json.loads((HERE / "text_world.json").read_text())
    arms = {row["arm"]: row for row in found["arms"]}
    both = arms[BOTH]
    about = (
        f"{both['seeds']} seeds, {both['houses']} houses, {found['tasks']} tasks in each; intervals are of 95 %, over seeds and "
        f"houses. `{found['command']}`, {found['hours']:.1f} hours on one of two cores; settings: {', '.join(found['settings'])}."
    )
    image = "![Success over the tasks of a house, by model and memory](images/text_world.png)"
    filled(PAGE, "text_world", "\n\n".join((levels(arms), gaps(arms), about, image)))
    picture(arms)


if __name__ == "__main__":
    main()
