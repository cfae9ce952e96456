"""An operation on memory as one line: writes it, parses a model's text as one, and judges it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from keepworth.records.episode import OperationKind, ParseStatus


def format_operation(kind: OperationKind, target: int | None = None) -> str:
    """Returns the canonical line of an operation: `ADD`, `UPDATE 1`, `DELETE 0`, `NOOP`."""
    return kind.value if target is None else f"{kind.value} {target}"


_VERBS = {
    **dict.fromkeys(("ADD", "INSERT", "NEW"), OperationKind.ADD),
    **dict.fromkeys(("UPDATE", "SUPERSEDE", "REPLACE"), OperationKind.UPDATE),
    **dict.fromkeys(("DELETE", "REMOVE"), OperationKind.DELETE),
    **dict.fromkeys(("NOOP", "NO-OP", "NO_OP", "NONE", "SKIP"), OperationKind.NOOP),
}
_LINE = re.compile(
    r"[\s\[({\"'*`<:.-]*(?P<verb>" + "|".join(sorted(_VERBS, key=len, reverse=True)) + r")(?![A-Za-z0-9_])(?P<rest>.*)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])([0-9]{1,4})(?![A-Za-z0-9_])")
_NUMBERED = (OperationKind.UPDATE, OperationKind.DELETE)


def read_operation(text: str, shown: int | None = None) -> tuple[OperationKind, int | None, ParseStatus]:
    """Parses a model's text as an operation: its kind, the number of its entry, and the parse status. Never raises.

    Only the first line that is not blank counts. OK is the canonical line; REPAIRED has another spelling (`none`, `Update [1].`,
    `ADD 2`, words after it). Everything else is INVALID and means NOOP: no known verb, no number or several where one is needed,
    or a number that was not among the `shown` entries (None allows any number)."""
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
    status = ParseStatus.OK if line == format_operation(kind, target) else ParseStatus.REPAIRED
    return kind, target, status


def operation(answer: str, answers: Sequence[str]) -> float:
    """Returns 1.0 where `answer` asks for one of `answers`, however it is spelled; 0.0 otherwise, or where it is invalid."""
    kind, target, status = read_operation(answer)
    return float(status is not ParseStatus.INVALID and format_operation(kind, target) in answers)
