"""Writes docs/methods.md: every method of the registry, with its paper, its claim, what differs, and what was measured.

python -m benchmarks.methods.page
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.tables import markdown, takes_nothing
from keepworth.registry import KINDS, Method, evidence, methods

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
HEADINGS = {
    "policy": ("Policies of memory", "`Memory(policy=NAME)`, `keepworth eval stream --arms none,NAME`"),
    "writer": ("Writers of memory", "`Memory(writer=NAME)`, or `keepworth.registry.method('writer', NAME).make(...)`"),
    "objective": ("Objectives", "`keepworth train RECIPE --set objective=NAME`"),
    "recipe": ("Recipes", "`keepworth train NAME`"),
    "world": ("Worlds", ""),
    "benchmark": ("Benchmarks", "`keepworth eval run NAME`"),
    "memory_module": ("Memory modules", ""),
    "control_agent": ("Agents of control", ""),
    "study": ("Studies", ""),
}
HEAD = ("name", "what it does", "paper", "what the paper claims", "what differs here", "verdict")
UNMEASURED = "*not measured*"
TOP = """# Methods

Find a method here, with what its paper says, what differs, and what was measured. `keepworth methods` prints this list, and
`keepworth methods show NAME` one method with its numbers. A method is one file under `src/keepworth/methods`, which says all
this of itself; another package adds one by an entry point of the group `keepworth.methods`. This page is made by
`python -m benchmarks.methods.page`.

The verdict is about the claim: *held*, *held in part*, *not held*, or *not reachable here*; *not measured* where there is no
result. A column that would be empty is left out. Behind each verdict stands a file of its name in `benchmarks/methods/`, with
command, revision, arms and intervals. A command that is there no more can be run at that revision.
"""


def main() -> None:
    takes_nothing(__doc__)
    PAGE.write_text(rendered(), encoding="utf-8")


def rendered() -> str:
    parts = [TOP]
    for kind in KINDS:
        rows = [row(method) for _, method in sorted(methods(kind).items())]
        if rows:
            heading, use = HEADINGS[kind]
            parts.append(f"## {heading}\n" + (f"\n{use}\n" if use else ""))
            filled = [at for at in range(len(HEAD)) if any(each[at] not in ("", UNMEASURED) for each in rows)]
            shown = [[each[at] for at in filled] for each in rows]
            parts.append(markdown([HEAD[at] for at in filled], shown, left=len(filled)) + "\n")
    return "\n".join(parts)


def row(method: Method) -> tuple[str, ...]:
    measured = evidence(method)
    verdict = f"*{measured['verdict']}*. {measured['sentence']}" if measured else UNMEASURED
    label = f" ({method.label})" if method.label else ""
    cells = (method.about + label, method.paper, method.claim, method.differs, verdict)
    return (f"`{method.name}`", *(cell.replace("|", "\\|") for cell in cells))


if __name__ == "__main__":
    main()
