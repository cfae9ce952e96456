"""Presets: published objectives by name, each a file of `keepworth.methods.objectives`. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from keepworth.registry import Method, method, methods
from keepworth.training.objective.options import Objective, ObjectiveError


def vary_objective(objective: Objective, **changes: Any) -> Objective:
    """Returns a copy with some options changed, checked like a new one. None removes an option. Raises ObjectiveError, which
    names what cannot take effect."""
    try:
        return Objective(**{**{name: getattr(objective, name) for name in objective.model_fields_set}, **changes})
    except ValidationError as error:
        complaints = "; ".join(_complaint(entry) for entry in error.errors()).removesuffix(".") + "."
        raise ObjectiveError(
            complaints, f"Asked for: {', '.join(f'{key}={value!r}' for key, value in changes.items())}."
        ) from None


def _complaint(entry: Any) -> str:
    where = str(entry["loc"][0]) if entry["loc"] else ""
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] == "value_error":
        return f"{where}: {message}" if where else message
    return f"{where} = {entry['input']!r}: {message[:1].lower()}{message[1:]}"


@dataclass(frozen=True, slots=True)
class Citation:
    """Where an objective comes from.

    Attributes:
        status: "code" (checked against the method's public code), "text" (its paper or documentation) or "secondary"
            (descriptions by others only).
        unverified: What could not be confirmed, our own choices among it; confirm it before publishing a comparison.
        needs: What the run must provide beyond rewards and log-probabilities.
    """

    title: str
    arxiv: str
    status: str
    unverified: tuple[str, ...] = ()
    note: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """The `make` of a method of kind "objective": returns the objective with options changed."""

    objective: Objective
    source: Citation

    def __call__(self, **changes: Any) -> Objective:
        return vary_objective(self.objective, **changes) if changes else self.objective


def preset_method(
    title: str,
    about: str,
    objective: Objective,
    source: Citation,
    claim: str = "",
    differs: str = "",
    label: str = "",
) -> Method:
    """Returns the `METHOD` that a file of `keepworth.methods.objectives` declares. Its name is the objective's, its paper the
    source's.

    Args:
        title: The title of the paper.
        about: One line about what it does.
        objective: The objective with its published settings.
        source: Where each setting was found, and what could not be confirmed.
        claim: What the paper says it gains.
        differs: What is not as in the paper; "" takes what could not be confirmed.
        label: How far the measurement goes, as in `Method`; "unmeasured" until there is one.
    """
    paper = "; ".join(f"arXiv {number}" for number in source.arxiv.split(", ") if number)
    make = Preset(objective, source)
    unverified = " ".join(source.unverified)
    return Method("objective", objective.name, title, about, make, paper, claim, differs or unverified, label)


def presets() -> dict[str, Objective]:
    """Returns every published objective by name."""
    return {name: declared.make() for name, declared in methods("objective").items()}


def preset(name: str, **changes: Any) -> Objective:
    """Returns the objective of that name, with options changed. Raises UnknownName or ObjectiveError."""
    objective: Objective = method("objective", name).make(**changes)
    return objective


def source_of(name: str) -> Citation:
    """Returns the citation of the objective of that name. Raises UnknownName."""
    return cast(Preset, method("objective", name).make).source
