"""The page docs/methods.md: every method of the registry, with its paper, its claim, what differs, and what was measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.methods import kit, taxonomy
from benchmarks.tables import DOCS, markdown
from keepworth.evaluation.verdicts import HELD, IN_PART, RULE, VERDICTS, is_dirty
from keepworth.registry import KINDS, Method, evidence, methods

PAGE = DOCS / "methods.md"
HEADINGS = {
    "policy": ("Policies of memory", "`Memory(policy=NAME)`, `keepworth eval stream --arms none,NAME`"),
    "writer": ("Writers of memory", "`Memory(writer=NAME)`, or `keepworth.registry.method('writer', NAME).make(...)`"),
    "stage": ("Stages of a search", "`Memory(stages=[NAME])`"),
    "objective": ("Objectives", "`keepworth train RECIPE --set objective=NAME`"),
    "recipe": ("Recipes", "`keepworth train NAME`"),
    "world": (
        "Worlds",
        "`keepworth eval stream --streams NAME`. Shares of tasks that succeed: by chance, by the best rule without a memory, by "
        "the best plain memory.",
    ),
    "benchmark": (
        "Benchmarks",
        "`keepworth eval run NAME`; [what each asks](benchmarks.md#what-there-is). The score of the best guess without a memory, "
        "and where evidence is marked its share in 512 words that BM25 finds.",
    ),
    "memory_module": ("Memory modules", ""),
    "control_agent": ("Agents of control", ""),
    "study": ("Studies", ""),
    "system": ("Systems of training", ""),
}
HEAD = ("name", "what it does", "paper", "what the paper claims", "what differs here", "verdict")
UNMEASURED = "*not measured*"
TOP = """# Methods

Here you find each method with what its paper claims, what differs, and what we measured. `keepworth methods` prints this list,
and `keepworth methods show NAME` one method with its numbers. A method is one file under `src/keepworth/methods`; another
package adds one by an entry point of the group `keepworth.methods`. [Kinds of memory](taxonomy.md) sorts the methods by the kind
of memory that they use.

`python -m benchmarks.pages methods` makes this page.

## Verdicts

One rule makes the verdict of each method from the numbers of its record, a file with the method's name in `benchmarks/methods/`
that has the command, revision, arms and intervals. {rule} `keepworth methods show NAME` prints the rule, the numbers that it was
applied to, and the *bound*, which is the largest gain that they still allow.

{meanings}

{claims}

{counts}
"""
CLAIMS = """Of the {claimed} methods with a paper and its claim (worlds and benchmarks are not among them) {held} hold it, and
{part} hold it in part. {uncommitted} of all {all} were measured on a tree with changes that are in no commit."""


def tables() -> Iterator[tuple[Path, str, str]]:
    yield PAGE, "", rendered()
    yield taxonomy.PAGE, "", taxonomy.rendered()
    yield kit.PAGE, "", kit.rendered()


def rendered() -> str:
    parts = [TOP.format(rule=RULE, meanings=meanings(), claims=claims(), counts=counts())]
    for kind in KINDS:
        rows = [row(method) for _, method in sorted(methods(kind).items())]
        if rows:
            heading, use = HEADINGS[kind]
            parts.append(f"## {heading}\n" + (f"\n{use}\n" if use else ""))
            filled = [at for at in range(len(HEAD)) if any(row[at] not in ("", UNMEASURED) for row in rows)]
            shown = [[row[at] for at in filled] for row in rows]
            parts.append(markdown([HEAD[at] for at in filled], shown, left=len(filled)) + "\n")
    return "\n".join(parts)


def row(method: Method) -> tuple[str, ...]:
    measured = evidence(method)
    verdict = f"*{judged(measured)}*. {reason(method.kind, measured)}" if measured else UNMEASURED
    label = f" ({method.label})" if method.label else ""
    about = "" if method.kind == "benchmark" else method.about + label
    cells = (about, method.paper, method.claim, method.differs, verdict)
    return (f"`{method.name}`", *(cell.replace("|", "\\|") for cell in cells))


def judged(measured: dict[str, Any]) -> str:
    """The verdict, and where a method helps and harms."""
    return ": ".join(filter(None, (measured["verdict"], measured["where"])))


def meanings() -> str:
    return "\n".join(f"* *{verdict}*: {meaning}." for verdict, meaning in VERDICTS.items())


def verdicts() -> Iterator[tuple[Method, dict[str, Any] | None]]:
    yield from ((method, evidence(method)) for kind in KINDS for method in methods(kind).values())


def claims() -> str:
    """Return how many claims of papers hold, and how many records are of code that is in no commit."""
    every = list(verdicts())
    of_papers = Counter(
        measured["verdict"]
        for method, measured in every
        if measured and method.paper and method.claim and method.kind not in ("world", "benchmark")
    )
    return CLAIMS.format(
        claimed=of_papers.total(),
        held=of_papers[HELD] or "none",
        part=of_papers[IN_PART],
        uncommitted=sum(is_dirty(measured) for _, measured in every if measured),
        all=len(every),
    )


def counts() -> str:
    """A table of kinds and verdicts."""
    counted = Counter(
        (method.kind, measured["verdict"] if measured else "not measured") for method, measured in verdicts()
    )
    columns = [verdict for verdict in (*VERDICTS, "not measured") if any(counted[kind, verdict] for kind in KINDS)]
    rows = [
        [
            HEADINGS[kind][0],
            *(counted[kind, verdict] or "" for verdict in columns),
            sum(counted[kind, of] for of in columns),
        ]
        for kind in KINDS
        if any(counted[kind, verdict] for verdict in columns)
    ]
    total = [sum(counted[kind, verdict] for kind in KINDS) for verdict in columns]
    return markdown(["", *columns, "all"], [*rows, ["all", *total, sum(total)]])


def reason(kind: str, measured: dict[str, Any]) -> str:
    """The numbers of a world or a benchmark; of another method the first sentence."""
    means = {arm["name"]: arm["mean"] for arm in measured["arms"]}
    if kind == "world" and means:
        rule, memory = measured["comparisons"][0]["against"].split(": ")
        return f"{means['chance']:.2f} / {means[rule]:.2f} / {means[memory]:.2f}"
    if kind == "benchmark" and means:
        guess = max(mean for name, mean in means.items() if name.startswith("answer: ") and name != "answer: the key")
        marked = means.get("evidence shown: bm25")
        return f"{guess:.2f}" if marked is None else f"{guess:.2f} / {marked:.2f}"
    return str(re.split(r"(?<=[a-z0-9)%])\. (?=[A-Z])", measured["sentence"])[0]).rstrip(".") + "."
