"""KeepworthError: the base class of all errors that a user can fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from traceback import extract_tb

MANY = 80
"""With more known names than this, only the nearest is printed, where one is near."""


class KeepworthError(Exception):
    """An error that a user can fix. `message` says in one sentence what is wrong and where; `fix` says what to do about it. The
    command line prints both, in two lines, and exits with code 2. Any other exception is a bug."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        stop = "." if self.message and self.fix and self.message[-1] not in ".!?:;" else ""
        return f"{self.message}{stop} {self.fix}".strip()

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython and Jupyter, which call this, show in place of the traceback."""
        from keepworth.base.notebook import lines_of

        return lines_of(self)


@contextmanager
def called_as(what: str) -> Iterator[None]:
    """Calls code of a recipe. What it raises becomes a KeepworthError that says what was called, and where it failed."""
    try:
        yield
    except KeepworthError:
        raise
    except Exception as error:
        at, why = extract_tb(error.__traceback__)[-1], f"{type(error).__name__}: {error}"
        raise KeepworthError(f"{what} failed: {why}.", f"See {at.filename}, line {at.lineno}.") from error


class UnknownName(KeepworthError, ValueError):
    """A name is not known. The message has the name that was probably meant."""

    def __init__(self, kind: str, name: str, among: Iterable[str], where: str = "") -> None:
        names = sorted(among)
        near = nearest(name, names)
        context = f" in {where}" if where else ""
        fix = f"Did you mean {near!r}?" if near else ""
        listed = f"Known: {', '.join(names)}." if names else f"There is no {kind} yet."
        listed = "" if near and len(names) > MANY else listed
        super().__init__(f"There is no {kind} {name!r}{context}.", f"{fix} {listed}".strip())
        self.name = name
        self.nearest = near


class UnknownEncoder(KeepworthError):
    """The encoder that made a memory's vectors cannot be opened by its name."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Returns the known name closest to `name`, in any case, also where only the last part of a dotted name was misspelt; None if
    none is close."""
    lowered = {choice.lower(): choice for choice in choices}
    tails = {choice.rsplit(".", 1)[-1]: lowered[choice] for choice in lowered}
    for part, spelled in ((name.lower(), lowered), (name.lower().rsplit(".", 1)[-1], tails)):
        if matches := get_close_matches(part, spelled, n=8, cutoff=0.6):
            return spelled[min(matches, key=lambda match: _edits(part, match))]  # of equally near ones the most alike
    return None


def _edits(one: str, other: str) -> int:
    """Returns how many letters must be put in, left out, replaced or swapped with the next one (optimal string alignment)."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and (letter, one[i - 2]) == (other[j - 2], its):
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def require_known(kind: str, name: str, among: Iterable[str]) -> str:
    """Returns `name` if it is one of `among`. Raises UnknownName, with the nearest one and the whole list, otherwise.

    Args:
        kind: What the name is of, such as "policy". The error begins with it.
        name: The name that somebody wrote.
        among: All names that there are, in the order in which the error lists them.
    """
    names = list(among)
    if name not in names:
        raise UnknownName(kind, name, names)
    return name
