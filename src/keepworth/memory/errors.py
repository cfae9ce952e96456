"""The errors of a memory. Every message names what is wrong, where, and the fix."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from keepworth.base.errors import KeepworthError, UnknownName, nearest

Owner = TypeVar("Owner", bound=type)


class MemoryProblem(KeepworthError):
    """Base of every error that `keepworth.memory` raises on purpose."""


class NotPicklable(MemoryProblem, TypeError):
    """An open memory, or what hangs on it, cannot be pickled or copied. It is a TypeError, as pickle's own errors are."""


class InvalidText(MemoryProblem, ValueError):
    """Text that cannot be remembered: empty, too long, control characters, or not valid Unicode."""


class RefusedText(MemoryProblem, ValueError):
    """Text with something in it, such as a secret, that this memory is set to refuse."""


class InvalidTime(MemoryProblem, ValueError):
    """A time that is not ISO 8601, a datetime, or seconds since 1970."""


class InvalidVector(MemoryProblem, ValueError):
    """An encoder gave vectors of the wrong shape, or with NaN or infinity in them."""


class InvalidFilter(MemoryProblem, ValueError):
    """An option that does not exist or cannot take effect. `field` is its name, if the message does not say it."""

    field = ""


class UnknownOption(InvalidFilter, TypeError):
    """A keyword that a search, or another method, does not have."""


HOW_MANY = ("top_k", "limit", "k", "n", "n_results")
"""What libraries call the number of hits or of items."""


def unknown_option(of: str, name: str, options: Iterable[str]) -> UnknownOption:
    """Return the error for a keyword that a method does not take.

    Args:
        of: The name of the method.
        name: The keyword.
        options: The keywords that it takes.
    """
    names = [option for option in options if option != name]
    alike = [option for option in HOW_MANY if name in HOW_MANY and option in names]
    near = alike[0] if alike else nearest(name, names)
    fix = f"did you mean {near}=?" if near else f"it takes {', '.join(names)}" if names else "it takes none"
    return UnknownOption(f"{of} has no option {name}=: {fix}")


def check_keywords(owner: Owner) -> Owner:
    """Decorate a class so that its public methods raise UnknownOption for a keyword that they do not take."""
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
    """A name that is none, or a scope that would widen the one it is used in."""


class UnknownItem(MemoryProblem, KeyError):
    """There is no item with this id in this scope. For an id of another tenant the message is the same."""


class UnknownSnapshot(MemoryProblem, ValueError):
    """A snapshot that this store never had."""


class UnknownEpisode(MemoryProblem, KeyError):
    """There is no episode or decision with this id."""


class ClosedEpisode(MemoryProblem, ValueError):
    """An act, a search or another reward for an episode that has its reward; or an act before any search."""


class InvalidPolicy(MemoryProblem, ValueError):
    """A policy, or a setting of one, that cannot take effect."""


class UnknownPolicy(UnknownName, InvalidPolicy):
    """There is no policy with this name."""


class InvalidAdvice(MemoryProblem, ValueError):
    """A record from outside that could not be read back from the file, or that claims to be the memory's own experience."""


class EncoderMismatch(MemoryProblem):
    """The vectors on file were made by another encoder."""


class InvalidReward(MemoryProblem, ValueError):
    """A reward that is not a number in the declared range, or that is too large for sums to stay finite."""


class NothingToWrite(MemoryProblem):
    """A writer was given input that it is not made for, such as messages instead of an episode."""


class NotAMemoryFile(MemoryProblem):
    """The file belongs to another program, or is damaged."""


class DamagedWords(NotAMemoryFile):
    """The full-text index of a file is damaged. It can be made anew from the items."""


class NothingThere(NotAMemoryFile):
    """There is no memory at this path, and none may be made."""


class OlderFile(MemoryProblem):
    """The file has an older format than this version reads."""


class StorageFailed(MemoryProblem):
    """The disk refused to read or write. Nothing was written."""


class TooManyFiles(StorageFailed):
    """This process may not open another file, such as a connection to the memory. Nothing is wrong with the memory."""


NO_FILES = (errno.EMFILE, errno.ENFILE)
"""What the system says where a process, or the machine, may open no more files."""
NONE_LEFT = (
    "has no file descriptor left: close what it opened before, or raise the limit (`ulimit -n`); nothing was done"
)


def none_left() -> bool:
    """Return whether this process may open no more files."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in NO_FILES
    return False


@contextmanager
def files_left() -> Iterator[None]:
    """In this context, or in a function that it decorates, TooManyFiles is raised where the process may open no more files."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_FILES:
            raise
        raise TooManyFiles(f"a file of keepworth cannot be read: this process {NONE_LEFT}") from error


class NewerFile(MemoryProblem):
    """The file was written by a newer version of this program."""


class SharedReadOnly(InvalidScope):
    """A write to items that are shared with this handle for reading only."""


class ReadOnly(MemoryProblem):
    """A write to a memory that was opened, or is protected, as read-only."""


class StorageFull(MemoryProblem):
    """The disk is full. Nothing was written."""


class Busy(MemoryProblem):
    """Another process held the write lock for longer than the timeout."""


class Forked(MemoryProblem):
    """The memory was open when the process forked; the child cannot use it."""


class Purged(MemoryProblem):
    """The undo would need content that was erased on purpose."""
