"""Put the tables of the JSON files beside this one into docs/systems.md, so that no number is typed by hand.

python -m benchmarks.evaluation.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "systems.md"
DEPTHS = {"turn@5": "evidence @5", "turn@10": "@10", "turn@50": "@50", "shown": "in 512 tokens"}


def span(cell: Any) -> str:
    return "—" if cell is None else f"{cell['mean']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})"


def size(value: float | None) -> str:
    return "—" if value is None else f"{value / 1e6:.1f}"


def found(name: str) -> str:
    """What evidence each system found, and what it took."""
    of = json.loads((HERE / f"{name}.json").read_text())
    rows = [
        (
            f"`{arm}`",
            *(span(values["evidence"].get(depth)) for depth in DEPTHS),
            f"{values['ask ms']:.1f}",
            f"{values['write ms an entry']:.2f}",
            size(values["bytes"]),
        )
        for arm, values in of["arms"].items()
        if arm != "none"
    ]
    head = ("system", *DEPTHS.values(), "ms a question", "ms an entry", "MB")
    over = of["evidence over keepworth"]
    paired = [
        (f"`{arm}`", *(difference(over[depth].get(arm)) for depth in DEPTHS))
        for arm in of["arms"]
        if any(arm in own for own in over.values())
    ]
    beside = markdown(("over `keepworth`", *DEPTHS.values()), paired)
    return markdown(head, rows) + "\n\n" + beside + "\n\n" + note(of)


def read(name: str) -> str:
    """What the reader made of it, and what it took."""
    of = json.loads((HERE / f"{name}.json").read_text())
    rows = []
    for arm, values in of["arms"].items():
        fit = values["questions"] - values["does not fit"]
        if fit < 3:
            rows.append((f"`{arm}`", f"{fit} of {values['questions']} fit" if fit else "does not fit", *["—"] * 4))
            continue
        some = f" of {fit} that fit" if values["does not fit"] else ""
        gain = of["gains"].get(arm)
        rows.append(
            (
                f"`{arm}`",
                span(values["scores"]["score"]) + some,
                difference(gain),
                difference(of["over keepworth"].get(arm)),
                "—" if not values["evidence"].get("shown") else f"{values['evidence']['shown']['mean']:.2f}",
            )
        )
    head = (
        "system",
        "score",
        "over `none`",
        "over `keepworth`",
        "evidence shown",
    )
    return markdown(head, rows) + "\n\n" + note(of)


def difference(gain: Any) -> str:
    """Bold where it is surely not 0, all differences of its column counted."""
    if gain is None:
        return "—"
    said = f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
    return f"**{said}**" if gain["adjusted"] < 0.05 else said


def note(of: Any) -> str:
    machine = of["machine"]
    return (
        f"{asked(of)} Times with temporary files {machine['temporary files']} and a load of {machine['load average']:.0f} on "
        f"{machine['cores']} cores; whoever comes first encodes for all."
    )


def asked(of: Any) -> str:
    """What was measured: the command, how many questions, under what."""
    first = next(iter(of["arms"].values()))
    packages = {name: number for arm in of["arms"].values() for name, number in arm["versions"].items()}
    listed = "; " + ", ".join(f"{name} {number}" for name, number in packages.items()) if packages else ""
    return (
        f"`{of['command']}`: {first['questions']:,} questions of {of['of']:,}, 95 % intervals over {first['clusters']} clusters, "
        f"seed 0, encoder {of['encoder']}, reader {of['reader']}{listed}."
    )


def not_run() -> str:
    of = json.loads((HERE / "locomo-found.json").read_text())
    return "\n".join(f"* {name}: {reason}." for name, reason in of["not run"].items())


"""`langgraph` finds what `dense` does, and so do the counters, `keepworth` what `search` does."""


READ = ("longmemeval+500-read", "locomo-read")


def main() -> None:
    takes_nothing(__doc__)
    filled(PAGE, "locomo-found", found("locomo-found"))
    for name in READ:
        filled(PAGE, name, read(name))
    filled(PAGE, "not-run", not_run())


if __name__ == "__main__":
    main()
