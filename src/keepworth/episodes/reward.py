"""RewardTerm: a named number with a scope."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class RewardScope(str, Enum):
    TOKEN = "token"
    STEP = "step"
    SEGMENT = "segment"
    EPISODE = "episode"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class RewardTerm:
    """`value` times `weight` enters the sum; a weight of 0 logs the term without training on it.
    `scorer` names the reader or judge, with its version, that produced it ("" for a plain function).
    `segment`: index among the episode's segments of the one that earned it (scope "segment" only).
    `shaping`: it steers how the task is done (format, length, cost, novelty) and says nothing about whether it was done."""

    name: str
    value: float
    weight: float = 1.0
    scope: RewardScope = RewardScope.EPISODE
    scorer: str = ""
    segment: int | None = None
    shaping: bool = False


def combined(terms: tuple[RewardTerm, ...]) -> float:
    """The reward that credit starts from: the weighted sum of the episode's terms."""
    return sum(term.value * term.weight for term in terms)


def metric(terms: tuple[RewardTerm, ...]) -> float:
    """How well the task itself was done, before shaping: what filters, curricula and teachers go by.

    The weighted sum of the terms of the whole episode that are no shaping. Where those are logged with weight 0 alone, their
    sum; where there is none, the reward."""
    own = [term for term in terms if term.scope is RewardScope.EPISODE and not term.shaping]
    trained = [term.value * term.weight for term in own if term.weight]
    if trained:
        return sum(trained)
    return sum(term.value for term in own) if own else combined(terms)


def checked_terms(terms: Iterable[RewardTerm]) -> tuple[RewardTerm, ...]:
    """The terms of one episode with values and weights as Python floats, whatever scalars people's code gave.

    Raises ValueError, naming the term, where one is not a finite number, or their weighted sum is not."""
    whole = []
    for term in terms:
        if not isinstance(term, RewardTerm):
            raise ValueError(f"a reward that is a {type(term).__name__}, not a RewardTerm")
        try:
            value = finite_number(term.value)
        except ValueError as error:
            raise ValueError(f"the reward {term.name!r}, which is {error}") from None
        try:
            weight = finite_number(term.weight)
        except ValueError as error:
            raise ValueError(f"the reward {term.name!r} a weight that is {error}") from None
        whole.append(replace(term, value=value, weight=weight))
    if not math.isfinite(combined(tuple(whole))):
        raise ValueError("rewards whose weighted sum is not a finite number")
    return tuple(whole)


def finite_number(value: object) -> float:
    """`value` as a float: a Python, NumPy or torch scalar alike, which is what people's reward functions return.

    Raises ValueError, saying what it is, for anything but one finite number."""
    if value is None or isinstance(value, str | bytes | bytearray):
        raise ValueError(f"{_short(value)}, not a number")
    if tuple(getattr(value, "shape", ())) != ():
        raise ValueError(f"a {type(value).__name__} of shape {tuple(value.shape)}, not one number")  # type: ignore[attr-defined]
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError("a number too large for a float") from None
    except Exception:  # whatever people's types raise
        raise ValueError(f"a {type(value).__name__}, not a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{number}, not a finite number")
    return number


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
