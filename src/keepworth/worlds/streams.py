"""Streams by name: every method of kind "world", and the functions that open it.

A generated world has dials, which the name of a stream may set: `t-maze:length=16`, `near-miss:similarity=0.5:noise=0.1`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal, cast

from keepworth.base.errors import KeepworthError
from keepworth.registry import method, methods
from keepworth.worlds.benchmark import read_settings
from keepworth.worlds.scene import Stream

Kind = Literal["one-step", "several-steps", "paid-at-end", "seen-before", "linked"]
KIND_NAMES: dict[Kind, str] = {
    "one-step": "one decision a task",
    "several-steps": "several decisions a task",
    "paid-at-end": "several decisions a task, and no word of any before the end",
    "seen-before": "something seen earlier has to be remembered",
    "linked": "two things seen earlier have to be put together",
}
"""What a memory has to do. Settings that suit one kind do not suit another, so they are tuned for each."""


@dataclass(frozen=True, slots=True)
class World:
    """The `make` of a method of kind "world": returns a stream of tasks for a split, a seed and an order.

    Attributes:
        open: Returns the stream. It gets the parameters, where there are any, and by name split, seed, order and length.
        kind: What a memory has to do in it.
        parameters: For a generated world, a dataclass with the number of its tasks in `episodes` or `length`.
        length: The default number of tasks of another world.
        data: The folder below `--data` that it needs.
        lacks: Returns what is missing to play it here, "" for nothing.
    """

    open: Callable[..., Stream]
    kind: Kind
    parameters: Any = None
    length: int | None = None
    data: str = ""
    lacks: Callable[[], str] = lambda: ""

    @property
    def generated(self) -> bool:
        """Whether the world is generated here, of meaningless words."""
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
        """Returns the stream of a split and a seed: "dev" is for tuning, "held-out" for the final run."""
        if self.generated:
            parameters = self.parameters
            if length is not None:
                tasks = "episodes" if hasattr(parameters, "episodes") else "length"
                parameters = replace(parameters, **{tasks: length})
            return self.open(parameters, split=split, seed=seed, order=order)
        places = {"folder": data} if self.data else {}
        return self.open(split=split, seed=seed, order=order, length=length or self.length, **places)

    def turned(self, name: str, dials: Sequence[str]) -> World:
        """Returns this world with other dials, each as "dial=value". `name` is that of its streams. Raises KeepworthError,
        UnknownName."""
        parameters: Any = self.parameters
        columns = () if parameters is None else fields(parameters)
        usual = {of.name: value for of in columns if isinstance(value := getattr(parameters, of.name), int | float)}
        if not usual:
            raise KeepworthError(
                f"the stream {name.partition(':')[0]} has no dials: it is not made up.",
                "Give its name alone, without a colon.",
            )
        values: dict[str, Any] = {"family": name}
        if getattr(self.parameters, "world", None) == "":
            values["world"] = self.parameters.family  # the same rules and questions whatever the dials
        kinds = {
            dial: Parameter(dial, Parameter.KEYWORD_ONLY, annotation=type(at).__name__) for dial, at in usual.items()
        }
        values |= read_settings(kinds, dials, f"stream {name.partition(':')[0]!r}")
        return replace(self, parameters=replace(self.parameters, **values))


def worlds() -> dict[str, World]:
    """Returns every world by name."""
    return {name: cast(World, declared.make) for name, declared in methods("world").items()}


def world(name: str) -> World:
    """Returns the world of a stream, with the dials that its name sets. Raises UnknownName, KeepworthError."""
    base, *dials = name.split(":")
    made = cast(World, method("world", base).make)
    return made.turned(name, dials) if dials else made


def missing(name: str, data: Path | None = None) -> KeepworthError | None:
    """Returns the error that keeps the stream `name` from running here, with its fix; None where there is none. Raises
    UnknownName for a stream that does not exist."""
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
    """Opens a stream, which is generated or uses data and worlds of others. Raises UnknownName; KeepworthError where a package,
    Java or data is missing, naming it and the fix.

    Args:
        name: The name of the world.
        split: "dev" for tuning, "held-out" for the final run.
        seed: The seed of what is generated and of the order.
        order: The order of the tasks; "random" draws it.
        length: The number of tasks; None takes the stream's own.
        data: The folder of data that does not come with the package; None reads KEEPWORTH_DATA.
    """
    lacks = missing(name, data)
    if lacks is not None:
        raise lacks
    return world(name)(split=split, seed=seed, order=order, length=length, data=data)
