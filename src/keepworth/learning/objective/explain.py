"""Explain: an objective in words and formulas, written from its parts, so that it cannot disagree with what runs.

Free of torch.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any, cast

from keepworth.learning.objective import parts
from keepworth.learning.objective.inputs import episode_inputs, inputs
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.presets import Citation

_STATUS = {
    "code": "the method's public code",
    "text": "the paper's or its documentation's own text",
    "secondary": "descriptions by others; the paper itself could not be read",
}


def described(objective: Objective, source: Citation | None = None) -> str:
    """What an objective computes; with its source also where it comes from and what about it is unverified."""
    lines = [objective.name]
    if source is not None:
        arxiv = f" (arXiv {source.arxiv})" if source.arxiv else ""
        lines += [f"  {source.title}{arxiv}", f"  read from: {_STATUS[source.status]}"]
    needs = [*inputs(objective), *(f"in its episodes: {value}" for value in episode_inputs(objective))]
    if source is not None and source.needs:
        needs.append(source.needs)
    doubts = () if source is None else source.unverified
    note = [source.note] if source is not None and source.note else []
    sections = {"parts": choices(objective), "needs": needs, "note": note, "not verified": doubts}
    for title, said in sections.items():
        if said:
            lines += ["", title, *(f"  {line}" for line in said)]
    return "\n".join(lines)


def choices(objective: Objective) -> list[str]:
    """One line for each axis of the objective that has something on it."""
    lines = []
    for axis, field in type(objective).model_fields.items():
        value = getattr(objective, axis)
        if isinstance(value, parts.Part):
            lines.append(f"{axis:<16} {written(value)}")
        elif axis != "name" and (value != field.default or axis.startswith("aggregation")):
            lines.append(f"{axis:<16} {value}")
    return lines


def written(part: object) -> str:
    """The first paragraph of a part's description, with its numbers in the place of `names`; what follows a semicolon is left
    out where it names what is off. Parts of a part follow."""
    text = " ".join(str(inspect.getdoc(type(part))).split("\n\n")[0].split()).removesuffix(".")
    values = {field.name: getattr(part, field.name) for field in fields(cast(Any, part))}
    off = [name for name, value in values.items() if value is None or value is False]
    clauses = [part for part in text.split("; ") if not any(f"`{name}`" in part for name in off)]
    shown = re.sub(r"`(\w+)`", lambda match: _shown(match[1], values[match[1]]), "; ".join(clauses))
    inner = (
        written(value) for name, value in values.items() if isinstance(value, parts.Part) and f"`{name}`" not in text
    )
    return "; ".join((shown, *inner))


def _shown(name: str, value: object) -> str:
    if isinstance(value, parts.Part):
        return written(value)
    return name if value is True else f"{value:g}" if isinstance(value, int | float) else str(value)
