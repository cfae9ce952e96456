"""How many of the notes that a search finds are worth showing, or none: `search(..., top_k="auto")`.

Two logistic models of some ten numbers each say, before any reward, how probable it is that the memory knows an answer, and which
of the first notes hold it. Nothing is shown where the first says no; else as many of the best notes as hold most of what the
second expects of all of them. The coefficients stand in `how_many.json`, for each way of searching; what fitted them is
`benchmarks/memory/how_many.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from keepworth.memory.search.background import KNOWN
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.terms import terms as terms_of

if TYPE_CHECKING:
    from keepworth.memory.search.search import Asked, Hit

AUTO = "auto"
"""The value of `top_k` that lets the memory decide."""
MOST_AUTO, WIDEST = 5, 10
"""The most notes that it shows before any reward, and where what was shown often failed."""
TAIL = 5
"""The cosines from this rank on are the background of a question: those of notes that hardly answer it."""
LEAST_SPREAD = 0.02
"""The least standard deviation of that background."""
FEW_ITEMS = 12
"""A memory with fewer items counts as one with so many: the models were fitted on none that is smaller."""
LONG = 120
"""The number of letters from which on a message is long."""
_OF_SPEAKER = re.compile(r"\b(?:i|my|me|mine|we|our|us|i'm|i've|i'd|i'll)\b", re.IGNORECASE)
_OF_ASSISTANT = re.compile(r"\b(?:you|your|yours|you're)\b", re.IGNORECASE)
Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """What tells whether notes answer a question.

    Attributes:
        question: Numbers about the question and the best of the notes; empty if the words ask for nothing, or nothing is there.
        notes: Numbers about each of the first notes, best first.
        ways: The models that judge by them; several for an encoder for which none was fitted.
    """

    question: Numbers
    notes: tuple[Numbers, ...]
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetSize:
    """How many of the hits of a search are worth showing.

    Attributes:
        number: How many, from the best on.
        none: The probability that nothing in the memory answers the question.
        answers: For each of the first hits, the probability that it answers the question.
    """

    number: int
    none: float
    answers: tuple[float, ...] = ()


def weigh(asked: Asked, hits: Sequence[Hit], embedder: Embedder | None) -> AnswerEvidence:
    """Return what tells whether the first of the hits of a search answer its question.

    Args:
        asked: The query, with its rankings and the statistics of its terms.
        hits: Best first.
        embedder: The encoder, None for a search by words alone.
    """
    first, text = hits[:MOST_AUTO], asked.question.text
    ways = _ways_of(embedder if asked.dense else None)
    if not first:
        return AnswerEvidence({}, (), ways)
    terms, documents = asked.terms, math.log1p(max(FEW_ITEMS, asked.statistics.documents))
    weights, _ = asked.statistics.weights(terms)
    telling = [group for group in terms.asking if terms.weights[group[0]] == 1.0]
    rarity = sum(weights[group[0]] for group in telling)
    of_notes = [set(terms_of(hit.item.indexed_text)) for hit in first]
    shared = [[group for group in telling if not words.isdisjoint(group)] for words in of_notes]
    covers = [sum(weights[group[0]] for group in groups) / rarity if rarity else 0.0 for groups in shared]
    there = [group for group in telling if any(asked.statistics.frequency.get(term) for term in group)]
    count, top = math.log1p(len(telling)), max(first[0].score, 0.0)
    ratios = [min(1.0, max(0.0, hit.score) / top) if top else 1.0 for hit in first]
    cosines, mean, spread = _cosines(asked, first, embedder)
    of_speaker = _OF_SPEAKER.search(text) is not None
    question = {
        "matches": math.log1p(max(map(len, shared))),
        "unmatched": float(not any(shared)),
        "in_memory": sum(weights[group[0]] for group in there) / rarity if rarity else 0.0,
        "words": count,
        "items": documents,
        "of_speaker": float(of_speaker),
        "of_assistant": float(not of_speaker and _OF_ASSISTANT.search(text) is not None),
        "long": float(len(text) > LONG),
        "cosine": max(cosines),
        "above": (max(cosines) - mean) / spread,
    }
    notes = tuple(
        {
            "ratio": ratios[rank],
            "lead": 1.0 - ratios[1] if not rank and len(ratios) > 1 else 0.0,
            "rank": math.log1p(rank),
            "cover": covers[rank],
            "cover_gap": max(covers) - covers[rank],
            "length": math.log1p(len(of_notes[rank])),
            "words": count,
            "items": documents,
            "cosine": cosines[rank],
            "cosine_gap": max(cosines) - cosines[rank],
        }
        for rank in range(len(first))
    )
    return AnswerEvidence(question, notes, ways)


def _cosines(asked: Asked, hits: Sequence[Hit], embedder: Embedder | None) -> tuple[list[float], float, float]:
    """Return the cosines of hits on the scale of the usual encoder, and mean and spread of those behind the first ones."""
    if embedder is None or not asked.dense:
        return [0.0] * len(hits), 0.0, LEAST_SPREAD
    usual = embedder.background.usual(asked.dense)
    listed = list(usual.values())
    tail = listed[TAIL:] if len(listed) > TAIL + 2 else listed
    mean = sum(tail) / len(tail)
    spread = math.sqrt(sum((cosine - mean) ** 2 for cosine in tail) / len(tail))
    return [usual.get(hit.id, mean) for hit in hits], mean, max(spread, LEAST_SPREAD)


def _ways_of(embedder: Embedder | None) -> tuple[str, ...]:
    """Return the models for what is searched with. Where none was fitted for an encoder, the one for the usual encoder judges
    beside the one for words alone, and whoever shows more is believed."""
    if embedder is None:
        return ("words",)
    if embedder.by_spelling:
        return ("spelling",)
    return ("meaning",) if embedder.identity.model in KNOWN else ("meaning", "words")


@cache
def _models() -> dict[str, dict[str, dict[str, float]]]:
    models: dict[str, dict[str, dict[str, float]]] = json.loads(
        files(__package__).joinpath("how_many.json").read_text("utf-8")
    )
    return models


def decide(evidence: AnswerEvidence) -> SetSize:
    """Return how many of the hits are worth showing, before any reward."""
    if not evidence.question:
        return SetSize(0, 1.0)
    return max((_decide_by(way, evidence) for way in evidence.ways), key=lambda size: (size.number, -size.none))


def _decide_by(way: str, evidence: AnswerEvidence) -> SetSize:
    models = _models()[way]
    chance = _probability(models["question"], evidence.question)
    shares = [_probability(models["note"], note) for note in evidence.notes]
    return SetSize(count(chance, shares, models["rule"]), 1.0 - chance, tuple(chance * share for share in shares))


def count(chance: float, shares: Sequence[float], rule: Numbers) -> int:
    """Return how many notes are shown: none where an answer is less probable than `least`, else so many of the best that `share`
    of what all of the first are expected to hold is there.

    Args:
        chance: The probability that an answer is there.
        shares: For each of the first notes, the probability that it holds the answer if one is there.
        rule: The numbers `least` and `share`.

    >>> count(0.9, [0.8, 0.1, 0.1], {"least": 0.3, "share": 0.75})
    1
    """
    if chance < rule["least"]:
        return 0
    wanted, held = rule["share"] * sum(shares) - 1e-12, 0.0
    for number, share in enumerate(shares, start=1):
        held += share
        if held >= wanted:
            return number
    return len(shares)


def _probability(coefficients: Numbers, numbers: Numbers) -> float:
    """Return the logistic function of the weighted sum of numbers; the coefficient "constant" is added to it."""
    total = sum(weight * numbers.get(name, 1.0) for name, weight in coefficients.items())
    return 1.0 / (1.0 + math.exp(-total))
