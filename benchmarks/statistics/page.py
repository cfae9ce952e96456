"""Put the tables of the JSON files beside this one into docs/statistics.md, so that no number is typed by hand.

python -m benchmarks.statistics.page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.streams.page import success
from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "statistics.md"


SHOWN = (3, 5, 8, 16, 30, 60, 100)
"""Numbers of clusters in the table of coverage."""


def of(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text())


def percent(share: Any) -> str:
    return f"{100 * share['share']:.1f}"


def span(cell: Any) -> str:
    return "—" if cell is None else f"{cell['mean']:.2f} ({cell['low']:.2f} to {cell['high']:.2f})"


def coverage() -> str:
    found = of("coverage")
    worlds = list(dict.fromkeys(row["world"] for row in found["intervals"]))
    by = {(row["world"], row["n"]): row for row in found["intervals"]}
    rows = [
        (n, *(f"{percent(by[world, n]['t'])} / {percent(by[world, n]['bootstrap'])}" for world in worlds))
        for n in SHOWN
    ]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    note = (
        f"Share of {found['runs']:,} runs in 100 whose 95 % interval holds the truth, t / bootstrap "
        f"({found['resamples']:,} resamples), seed {found['seed']}; each is good to about half a point. {versions}."
    )
    return markdown(("clusters", *worlds), rows) + f"\n\n{note}"


def units() -> str:
    found = of("coverage")
    of_questions, of_conversations = (percent(found["units"][name]) for name in ("questions", "conversations"))
    return (
        "Ten conversations of 105 to 260 questions, whose own levels differ by 8 points: an interval over questions holds the "
        f"truth in {of_questions} % of {found['runs']:,} runs, one over conversations in {of_conversations} %."
    )


def verdicts() -> str:
    found = of("coverage")["verdicts"]
    names = ("said ahead", "said not worse", "said open", "said behind")
    rows = [(row["truth"], row["seeds"], *(percent(row[name]) for name in names)) for row in found]
    picked = percent(found[0]["ahead of a rival picked by its result"])
    note = (
        "Share of 1,000 runs in 100; the spread of a difference is 4.2 points. Of a method that is level with all six, the rival "
        f"that looks weakest, shown alone, would have been beaten in {picked} %."
    )
    return markdown(("what is true", "seeds", *names), rows) + f"\n\n{note}"


def plans() -> str:
    rows = [
        (
            f"{100 * row['sd']:.1f}",
            f"{100 * row['half-width']:.0f}",
            row["seeds"],
            percent(row["as narrow"]),
            row["seeds of (1.96 sd / w)^2"],
            percent(row["as narrow with those"]),
        )
        for row in of("coverage")["plans"]
    ]
    head = ("spread", "half-width", "seeds planned", "as narrow, %", "seeds by (1.96 sd / w)²", "as narrow, %")
    return markdown(head, rows, left=0)


def verifiers() -> str:
    rows = []
    for name, each in of("verifiers")["verifiers"].items():
        if "left out" in each:
            rows.append((f"`{name}`", "—", "left out", each["left out"], ""))
            continue
        wrong = [
            f"{form} {share['mean']:.2f}"
            for form, share in each["accepted by form"].items()
            if not share["right"] and share["mean"]
        ]
        missed = [
            f"{form} {1 - share['mean']:.2f}"
            for form, share in each["accepted by form"].items()
            if share["right"] and share["mean"] < 1
        ]
        said = "; ".join(
            part
            for part in ("takes " + ", ".join(wrong) if wrong else "", "misses " + ", ".join(missed) if missed else "")
            if part
        )
        rows.append((f"`{name}`", each["n"], span(each["precision"]), span(each["recall"]), said or "no form wrongly"))
    return markdown(("", "answers", "precision", "recall", "share of a form that it"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "coverage": coverage,
    "units": units,
    "verdicts": verdicts,
    "plans": plans,
    "verifiers": verifiers,
    "dials": lambda: success("dials"),
}


def main() -> None:
    takes_nothing(__doc__)
    for name, table in TABLES.items():
        filled(PAGE, name, table())


if __name__ == "__main__":
    main()
