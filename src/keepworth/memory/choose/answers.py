"""What is wrong with an answer of a policy's slot, which somebody else may have written. Each function returns it in words that
follow the name of the slot, such as "gave None instead of Values", or "" if the answer can be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

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


def _column_problem(name: str, column: object, number: int) -> str:
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "fiub":
        return f"gave {name} {column!r:.60} instead of an array of numbers"
    if column.shape != (number,):
        return f"gave {name} of shape {column.shape} for {number} candidates"
    return "" if np.isfinite(column).all() else f"gave {name} that are not all finite"


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
