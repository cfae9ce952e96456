"""What is wrong with an answer of a policy's slot, which somebody else may have written. Each function returns it in words that
follow the name of the slot, such as "gave None instead of Values", or "" if the answer can be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from keepworth.base.errors import nearest
from keepworth.memory.choose.propensity import Independent
from keepworth.memory.choose.slates import KINDS, Mixture
from keepworth.memory.choose.slots import Candidates, Presented, Values
from keepworth.memory.search.search import Hit


def key_problem(key: object) -> str:
    """Return what is wrong with the text that stands for a situation."""
    return "" if isinstance(key, str) else f"gave {key!r:.60} instead of a text"


def candidates_problem(candidates: object, size: int) -> str:
    """Return what is wrong with candidates in a pool of `size` rows."""
    if not isinstance(candidates, Candidates):
        return f"gave {candidates!r:.60} instead of Candidates"
    rows: Any = candidates.rows
    if not isinstance(rows, np.ndarray) or rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        return f"gave rows {rows!r:.60} instead of an array of whole numbers"
    if len(rows) and not 0 <= rows.min() <= rows.max() < size:
        return f"gave rows {rows.min()} to {rows.max()} of a pool of {size}"
    if len(np.unique(rows)) < len(rows):
        return "gave a row twice"
    return _column_problem("similarities", candidates.similarities, len(rows))


def values_problem(values: object, number: int) -> str:
    """Return what is wrong with an estimate for so many candidates."""
    if not isinstance(values, Values):
        return f"gave {values!r:.60} instead of Values"
    columns = (("means", values.means), ("deviations", values.deviations))
    return next((problem for column in columns if (problem := _column_problem(*column, number))), "")


def _column_problem(name: str, column: object, number: int, *, finite: bool = True) -> str:
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "fiub":
        return f"gave {name} {column!r:.60} instead of an array of numbers"
    if column.shape != (number,):
        return f"gave {name} of shape {column.shape} for {number} candidates"
    if not finite:  # minus infinity keeps a candidate out on purpose
        return f"gave {name} with NaN in them" if np.isnan(column).any() else ""
    return "" if np.isfinite(column).all() else f"gave {name} that are not all finite"


def choice_problem(choice: object, number: int) -> str:
    """Return what is wrong with a selector's distribution over slates of so many candidates. One of another class is judged by
    what it draws."""
    if isinstance(choice, Mixture):
        return _mixture_problem(choice, number)
    if isinstance(choice, Independent):
        return "" if sorted(choice.order) == list(range(number)) else f"gave an order without all {number} candidates"
    return ""


def _mixture_problem(choice: Mixture, number: int) -> str:
    if choice.kind not in KINDS:
        near = nearest(choice.kind, KINDS) if isinstance(choice.kind, str) else None
        meant = f", did you mean {near!r}?" if near else ""
        return f"gave a Mixture of the kind {choice.kind!r:.60}{meant} (it is one of {', '.join(KINDS)})"
    thompson, name = choice.kind == "thompson", KINDS[choice.kind]
    if problem := _column_problem(name, choice.first, number, finite=thompson):
        return problem
    if thompson:
        if problem := _column_problem("deviations", choice.second, number):
            return problem
        if number and not choice.second.min() > 0.0:
            return f"gave the deviation {choice.second.min():g} (deviations must be above 0)"
    if not _is_whole(choice.k):
        return f"gave {choice.k!r:.60} instead of the number of places, k"
    if not isinstance(choice.floor, Real) or math.isnan(choice.floor):
        return f"gave the floor {choice.floor!r:.60}"
    if not isinstance(choice.explore, Real) or not 0.0 <= choice.explore <= 1.0:
        return f"gave the probability {choice.explore!r:.60} of exploring (it lies in [0, 1])"
    pairs = choice.conflicts
    if pairs is not None and (
        not isinstance(pairs, np.ndarray) or pairs.dtype != bool or pairs.shape != (number, number)
    ):
        return f"gave conflicts that are no array of truth values of shape {(number, number)}"
    return ""


def slate_problem(slate: object, part: object, number: int, most: int) -> str:
    """Return what is wrong with the places that a selector chose, or with the part of the distribution that drew them.

    Args:
        slate: The places, in order.
        part: The name of the part.
        number: The number of candidates.
        most: The most that may be shown.
    """
    if not isinstance(slate, (Sequence, np.ndarray)) or not all(_is_whole(index) for index in slate):
        return f"chose {slate!r:.60} instead of places"
    if outside := [index for index in slate if not 0 <= index < number]:
        return f"chose place {outside[0]} among {number} candidates"
    if len(set(slate)) != len(slate):
        return "chose a candidate twice"
    if len(slate) > most:
        return f"chose {len(slate)} items where {most} may be shown"
    return "" if isinstance(part, str) else f"named the part that drew it {part!r:.60}"


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool)


def propensity_problem(propensity: object) -> str:
    """Return what is wrong with the probability of a slate that was drawn."""
    possible = isinstance(propensity, Real) and 0.0 < float(propensity) <= 1.0 + 1e-9
    return "" if possible else f"gave the probability {propensity!r:.60} to what it had drawn"


def presented_problem(presented: object) -> str:
    """Return what is wrong with what the reader is given."""
    if not isinstance(presented, Presented):
        return f"gave {presented!r:.60} instead of Presented"
    if not isinstance(presented.text, str):
        return f"gave the text {presented.text!r:.60}"
    return _advice_problem(presented.advice)


def _advice_problem(pieces: Any) -> str:
    for piece in pieces:
        action, *numbers = piece
        if not isinstance(action, str) or len(numbers) != 2 or not all(map(math.isfinite, numbers)):
            return f"gave the advice {piece!r:.60} instead of (action, weight, similarity)"
    return ""


def proven_problem(ids: object) -> str:
    """Return what is wrong with the ids of items that rewards speak for."""
    listed = isinstance(ids, (list, tuple)) and all(isinstance(id, str) for id in ids)
    return "" if listed else f"gave {ids!r:.60} instead of a list of ids"


def explained_problem(hits: object, ids: Sequence[str]) -> str:
    """Return what is wrong with hits that were explained, of which these are the ids in the order shown."""
    if not isinstance(hits, list) or not all(isinstance(hit, Hit) for hit in hits):
        return f"gave {hits!r:.60} instead of a list of hits"
    return "" if [hit.id for hit in hits] == list(ids) else "explained other hits than those that are shown"


def details_problem(details: object) -> str:
    """Return what is wrong with what is to be logged with a choice."""
    return "" if isinstance(details, dict) else f"gave the details {details!r:.60} instead of a dictionary"


def advised_problem(advised: object) -> str:
    """Return what is wrong with advice and the lines that say why."""
    if not isinstance(advised, tuple) or len(advised) != 2 or not isinstance(advised[1], str):
        return f"gave {advised!r:.60} instead of advice and a text"
    return _advice_problem(advised[0])
