"""Streams by name: every method of kind "world", and what opens it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from keepworth.environments.scene import Stream
from keepworth.episodes.errors import KeepworthError
from keepworth.registry import method, methods

Kind = Literal["one-step", "several-steps", "paid-at-end", "seen-before"]
KIND_NAMES: dict[Kind, str] = {
    "one-step": "one decision a task",
    "several-steps": "several decisions a task",
    "paid-at-end": "several decisions a task, and no word of any before the end",
    "seen-before": "something seen earlier has to be remembered",
}
"""What a memory has to do. Settings that are right for one kind are wrong for another, so they are tuned for each."""


def nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class World:
    """What a method of kind "world" has as `make`: called with split, seed and order, it gives a stream of tasks.

    Attributes:
        open: Gives the stream; called with the parameters, where there are any, and by name with split, seed, order and length.
        kind: What a memory has to do in it.
        parameters: Of a generated world, a dataclass with the number of its tasks in `episodes` or `length`.
        length: Number of tasks of another world, where none is asked for.
        data: Folder below `--data` that it needs.
        lacks: What is missing to play it here, "" where nothing is.
    """

    open: Callable[..., Stream]
    kind: Kind
    parameters: Any = None
    length: int | None = None
    data: str = ""
    lacks: Callable[[], str] = nothing

    @property
    def generated(self) -> bool:
        """Whether it is made here, of words that mean nothing."""
        return self.parameters is not None

    def __call__(
        self,
        *,
        split: str = "dev",
        seed: int = 0,
        order: str = "random",
        length: int | None = None,
        data: Path | None = None,
    ) -> Stream:
        """The stream of a split and a seed: "dev" is for tuning, "held-out" for the final run."""
        if self.generated:
            parameters = self.parameters
            if length is not None:
                tasks = "episodes" if hasattr(parameters, "episodes") else "length"
                parameters = replace(parameters, **{tasks: length})
            return self.open(parameters, split=split, seed=seed, order=order)
        places = {"folder": data} if self.data else {}
        return self.open(split=split, seed=seed, order=order, length=length or self.length, **places)


def worlds() -> dict[str, World]:
    """Every world by name."""
    return {name: cast(World, declared.make) for name, declared in methods("world").items()}


def world(name: str) -> World:
    """The world of a stream. Raises UnknownName."""
    return cast(World, method("world", name).make)


def missing(name: str, data: Path | None = None) -> KeepworthError | None:
    """What keeps the stream `name` from running here, with its fix; None where nothing does.

    Raises UnknownName for a stream that there is not."""
    made = world(name)
    if made.data and data is None:
        return KeepworthError(f"the stream {name} needs its data.", f"Give {made.data}, or what holds it, as --data.")
    if lacks := made.lacks():
        return KeepworthError(f"the stream {name} needs {lacks}.", "Install it, or choose a generated stream.")
    return None


def open_stream(
    name: str,
    *,
    split: str = "dev",
    seed: int = 0,
    order: str = "random",
    length: int | None = None,
    data: Path | None = None,
) -> Stream:
    """The stream `name`, generated or from other people's data and worlds. length: where not the stream's own.

    Errors: UnknownName; KeepworthError where a package, Java or data is missing, naming it and the fix."""
    lacks = missing(name, data)
    if lacks is not None:
        raise lacks
    return world(name)(split=split, seed=seed, order=order, length=length, data=data)
