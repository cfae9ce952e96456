"""People and facts about them: names, and attributes with their wordings and values, split so that some are held out.

No name of one split occurs in another, and some values occur in one held-out split only. Both are decided by the sha256 of the
word (`keepworth.worlds.splits.side`), so that they never depend on a seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from keepworth.base.errors import require_known
from keepworth.worlds.splits import SPLITS, side


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of which a person has at most one value. `{n}` is the person, `{v}` the value.

    states: wordings of "it holds"; changes: "it holds from now on"; ends: "it no longer holds".
    """

    key: str
    states: tuple[str, ...]
    changes: tuple[str, ...]
    ends: tuple[str, ...]
    values: tuple[str, ...]


def _read() -> tuple[tuple[str, ...], tuple[Attribute, ...]]:
    content: dict[str, Any] = json.loads(
        resources.files("keepworth.worlds").joinpath("data/people.json").read_text(encoding="utf-8")
    )
    attributes: list[dict[str, Any]] = [
        {name: tuple(value) if isinstance(value, list) else value for name, value in attribute.items()}
        for attribute in content["attributes"]
    ]
    return tuple(content["names"]), tuple(Attribute(**attribute) for attribute in attributes)


NAMES, ATTRIBUTES = _read()


@cache
def names_of(split: str) -> tuple[str, ...]:
    """Returns the people of one split. No two splits share one."""
    return tuple(name for name in NAMES if side(name) == check_split(split))


@cache
def values_of(attribute: Attribute, split: str) -> tuple[str, ...]:
    """Returns the values an attribute takes in a split: training values everywhere, the others in their own split only."""
    allowed = {"train", check_split(split)}
    return tuple(value for value in attribute.values if side(f"{attribute.key}/{value}") in allowed)


def check_split(split: str) -> str:
    """Returns `split`. Raises UnknownName for an unknown one."""
    return require_known("split", split, SPLITS)
