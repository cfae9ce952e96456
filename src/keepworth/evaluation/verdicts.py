"""The verdicts that the evidence of a method can have, what they mean, and what makes a record stale.

`benchmarks.methods.ruling` makes the verdict of a record when it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HELD, IN_PART, UNDECIDED, NOT_HELD = "held", "held in part", "undecided", "not held"
NO_ROOM, ABSENT, STALE, BEFORE = "no room here", "not reachable here", "stale", "recorded before the rule"
VERDICTS = {
    HELD: "the interval of the claimed gain lies above 0 and reaches a gain worth having, against the baseline and against the "
    "control that could have refuted it, over more than one seed, and the claim is not empty",
    IN_PART: "so for a part of the claim, which is named: some worlds of several (their intervals are widened for the number of "
    "worlds), or other worlds and models than the paper's",
    UNDECIDED: "the interval holds both 0 and a gain worth having; the bound is its upper end",
    NOT_HELD: "the interval excludes a gain worth having; the bound is its upper end",
    NO_ROOM: "the best simple rule and the oracle are too near, or the mechanism was off: no verdict on the method",
    ABSENT: "the claim cannot be tested with the models or the data that are here",
    STALE: "the command that measured it is gone, and the numbers are those of their revision",
    BEFORE: "the record does not hold what the rule needs",
}
"""The verdicts, and what each of them means."""
GAIN, NEAR = 0.05, 0.10
RULE = (
    "A gain worth having is .05 of the score's range, and less than .10 of it between the best simple rule and the oracle is no "
    "room, unless the paper names another. An interval above 0 that reaches a gain worth having holds; one that excludes such a "
    "gain does not; one that holds 0 and such a gain is undecided. All comparisons of a place must hold."
)


def command_gone(command: str, root: Path) -> str:
    """Why a record's command cannot be run in a checkout, "" where it can."""
    if checkout := re.search(r"git checkout (\w+)", command):
        return f"Its code is in revision {checkout[1]} alone."
    modules = dict.fromkeys(re.findall(r"python -m (benchmarks[\w.]*\w)", command))
    gone = [name for name in modules if not _is_module(root.joinpath(*name.split(".")))]
    return f"{', '.join(gone)} is gone." if gone else ""


def is_dirty(record: Mapping[str, Any]) -> bool:
    """Return whether what was measured is in no commit."""
    return "-dirty" in record["revision"] or "uncommitted" in record.get("rule", {})


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
