"""What travels between a controller and its workers: plain data there, and back an answer or what was raised."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import WorkerFailed


def sent(given: Sequence[Any] | Mapping[str, Any], of: str) -> bytes:
    """Pickled. Raises KeepworthError that names what of it cannot be sent. of: whose it is, for the message."""
    try:
        return pickle.dumps(given, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise _unsendable(given, of, error) from error


def require_plain(given: Sequence[Any] | Mapping[str, Any], of: str) -> None:
    """The same check for what something else sends; arrays are not copied for it."""
    try:
        pickle.dumps(given, pickle.HIGHEST_PROTOCOL, buffer_callback=lambda buffer: None)
    except Exception as error:
        raise _unsendable(given, of, error) from error


def _unsendable(given: Sequence[Any] | Mapping[str, Any], of: str, error: Exception) -> KeepworthError:
    called, kind, cause = "it", type(given).__name__, error
    for name, each in given.items() if isinstance(given, Mapping) else enumerate(given, 1):
        try:
            pickle.dumps(each, pickle.HIGHEST_PROTOCOL)
        except Exception as found:
            called, kind, cause = (
                (repr(name) if isinstance(name, str) else f"argument {name}"),
                type(each).__name__,
                found,
            )
            break
    return KeepworthError(
        f"{of}: {called} is {kind} and cannot be sent to a worker: {cause}.",
        "Workers are given plain data: numbers, texts, arrays, and what is made of them.",
    )


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised, as text: the class that was raised may not be known to the other side."""

    summary: str
    fix: str
    traceback: str


def raised(error: BaseException) -> Raised:
    fix = error.fix if isinstance(error, KeepworthError) else ""
    said = error.message if isinstance(error, KeepworthError) else str(error)
    whole = "".join(traceback.format_exception(error))
    return Raised(f"{type(error).__name__}: {said}" if said else type(error).__name__, fix, whole)


def failure(name: str, host: str, method: str, raised: Raised) -> WorkerFailed:
    """What a call raised in a worker, with the traceback of there as its cause."""
    error = WorkerFailed(f"{name} on {host}: {method} raised {raised.summary}", raised.fix)
    error.__cause__ = _There(raised.traceback)
    return error


class _There(Exception):
    """A traceback of another process, for whoever reads this one's."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
