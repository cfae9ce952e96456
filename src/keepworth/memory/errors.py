"""What can go wrong in memory, as types. Every message names the thing, the place and the fix."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from keepworth.episodes.errors import KeepworthError, UnknownName, nearest

Owner = TypeVar("Owner", bound=type)


class MemoryProblem(KeepworthError):
    """Base of every error this room raises on purpose."""


class InvalidText(MemoryProblem, ValueError):
    """Text that cannot be remembered: empty, too long, control characters, or not valid Unicode."""


class RefusedText(MemoryProblem, ValueError):
    """Text that holds what this memory was told not to remember."""


class InvalidTime(MemoryProblem, ValueError):
    """A time that is not ISO 8601, a datetime, or seconds since 1970."""


class InvalidVector(MemoryProblem, ValueError):
    """An encoder gave vectors of the wrong shape, or with NaN or infinity in them."""


class InvalidFilter(MemoryProblem, ValueError):
    """A search option that does not exist or cannot take effect. field: its name, where the message does not say it."""

    field = ""


class UnknownOption(InvalidFilter, TypeError):
    """A keyword that a search, or another method, does not have."""


HOW_MANY = ("top_k", "limit", "k", "n")
"""What libraries call the number of hits or of items."""


def unknown_option(of: str, name: str, options: Iterable[str]) -> UnknownOption:
    """of: the method; options: the keywords that it has."""
    names = [option for option in options if option != name]
    alike = [option for option in HOW_MANY if name in HOW_MANY and option in names]
    near = alike[0] if alike else nearest(name, names)
    fix = f"did you mean {near}=?" if near else f"it takes {', '.join(names)}" if names else "it takes none"
    return UnknownOption(f"{of} has no option {name}=: {fix}")


def check_keywords(owner: Owner) -> Owner:
    """The class, whose public methods answer a keyword that they do not have with UnknownOption."""
    for name, method in list(vars(owner).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            code = method.__code__
            if not code.co_flags & inspect.CO_VARKEYWORDS:
                names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
                setattr(owner, name, _checked(method, names))
    return owner


def _checked(method: Callable[..., Any], accepted: tuple[str, ...]) -> Callable[..., Any]:
    @wraps(method)
    def checked(*arguments: Any, **options: Any) -> Any:
        if unknown := [name for name in options if name not in accepted]:
            owner = type(arguments[0]).__name__
            called = owner if method.__name__ == "__init__" else f"{owner}.{method.__name__}"
            raise unknown_option(called, unknown[0], accepted)
        return method(*arguments, **options)

    return checked


class InvalidScope(MemoryProblem, ValueError):
    """A scope that is not made of plain strings, or that would widen the one it is used in."""


class UnknownItem(MemoryProblem, KeyError):
    """No item of this id in this scope. An id of another tenant looks exactly the same."""


class UnknownSnapshot(MemoryProblem, ValueError):
    """A snapshot that this store never had."""


class UnknownEpisode(MemoryProblem, KeyError):
    """No episode or decision of this id."""


class ClosedEpisode(MemoryProblem, ValueError):
    """An act, a search or another reward for an episode that has its reward; or an act before any search."""


class InvalidPolicy(MemoryProblem, ValueError):
    """A policy, or a setting of one, that cannot take effect."""


class UnknownPolicy(UnknownName, InvalidPolicy):
    """A policy is asked for by a name that none has."""


class InvalidAdvice(MemoryProblem, ValueError):
    """A record from outside that could not be read again, or that claims to be memory's own experience."""


class EncoderMismatch(MemoryProblem):
    """The vectors on file were made by another encoder."""


class InvalidReward(MemoryProblem, ValueError):
    """A reward that is not a number in the declared range, or one whose sums would not be."""


class NothingToWrite(MemoryProblem):
    """A writer was given what it cannot write about."""


class NotAMemoryFile(MemoryProblem):
    """The file belongs to another program, or is damaged."""


class NothingThere(NotAMemoryFile):
    """No memory is there yet, and none may be made."""


class OlderFile(MemoryProblem):
    """The file has an older format than this version reads."""


class StorageFailed(MemoryProblem):
    """The disk refused to read or write. Nothing was written."""


class NewerFile(MemoryProblem):
    """The file was written by a newer version of this program."""


class SharedReadOnly(InvalidScope):
    """A write to what is shared with this handle for reading alone."""


class ReadOnly(MemoryProblem):
    """A write was asked of a memory opened, or protected, read-only."""


class StorageFull(MemoryProblem):
    """The disk is full. Nothing was written."""


class Busy(MemoryProblem):
    """Another process held the write lock for longer than the timeout."""


class Forked(MemoryProblem):
    """The memory was open when the process forked; the child cannot use it."""


class Purged(MemoryProblem):
    """Undo would need a payload that was erased on purpose."""
