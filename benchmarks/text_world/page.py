"""Put what the arms of `text_world` earned into docs/recipes.md.

python -m benchmarks.text_world.page
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing
from benchmarks.text_world.run import BOTH, HERE, POLICIES, STATES

ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "recipes.md"


def shown(row: dict[str, Any], mean: str = "success", ends: tuple[str, str] = ("low", "high"), sign: str = "") -> str:
    return f"{row[mean]:{sign}.2f} [{row[ends[0]]:{sign}.2f}, {row[ends[1]]:{sign}.2f}]"


def levels(arms: dict[str, dict[str, Any]]) -> str:
    rows = [[state, *(shown(arms[f"{state}, {memory}"]) for memory in POLICIES)] for state in STATES]
    return markdown(["model", *POLICIES], rows)


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
    filled(PAGE, "text_world", f"{levels(arms)}\n\n{about}")


if __name__ == "__main__":
    main()
