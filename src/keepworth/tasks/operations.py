"""An operation on memory as one line: how it is written, how a model's text is read as one, and how it is judged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from keepworth.episodes.episode import OperationKind, ParseStatus


def written(kind: OperationKind, target: int | None = None) -> str:
    """The canonical line of an operation: `ADD`, `UPDATE 1`, `DELETE 0`, `NOOP`."""
    return kind.value if target is None else f"{kind.value} {target}"


_VERBS = {
    "ADD": OperationKind.ADD,
    "INSERT": OperationKind.ADD,
    "NEW": OperationKind.ADD,
    "UPDATE": OperationKind.UPDATE,
    "SUPERSEDE": OperationKind.UPDATE,
    "REPLACE": OperationKind.UPDATE,
    "DELETE": OperationKind.DELETE,
    "REMOVE": OperationKind.DELETE,
    "NOOP": OperationKind.NOOP,
    "NO-OP": OperationKind.NOOP,
    "NO_OP": OperationKind.NOOP,
    "NONE": OperationKind.NOOP,
    "SKIP": OperationKind.NOOP,
}
_LINE = re.compile(
    r"[\s\[({\"'*`<:.-]*(?P<verb>" + "|".join(sorted(_VERBS, key=len, reverse=True)) + r")(?![A-Za-z0-9_])(?P<rest>.*)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])([0-9]{1,4})(?![A-Za-z0-9_])")
_NUMBERED = (OperationKind.UPDATE, OperationKind.DELETE)


def read_operation(text: str, shown: int | None = None) -> tuple[OperationKind, int | None, ParseStatus]:
    """What a model's text asks for: kind, number of the entry, and how well it was said. Never raises.

    Only the first line that is not blank counts. OK is the canonical line; REPAIRED has another spelling (`none`,
    `Update [1].`, `ADD 2`, words after it); everything else is INVALID and means NOOP: no known verb, no number or
    several where one is needed, or a number that was not among the `shown` entries (None: any number will do)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    match = _LINE.match(line)
    if match is None:
        return OperationKind.NOOP, None, ParseStatus.INVALID
    kind = _VERBS[match["verb"].upper()]
    target: int | None = None
    if kind in _NUMBERED:
        numbers = {int(number) for number in _NUMBER.findall(match["rest"])}
        if len(numbers) != 1:
            return OperationKind.NOOP, None, ParseStatus.INVALID
        target = numbers.pop()
        if shown is not None and target >= shown:
            return OperationKind.NOOP, None, ParseStatus.INVALID
    status = ParseStatus.OK if line == written(kind, target) else ParseStatus.REPAIRED
    return kind, target, status


def operation(answer: str, answers: Sequence[str]) -> float:
    """Verifier: 1.0 where `answer` asks for one of `answers`, however it is spelled; otherwise, or where invalid, 0.0."""
    kind, target, status = read_operation(answer)
    return float(status is not ParseStatus.INVALID and written(kind, target) in answers)
