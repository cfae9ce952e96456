"""The reward of a choice of evidence, as in Memory-T1 (arXiv 2512.20092).

`R = 0.6 R_a + 0.2 R_g + 0.2 R_t`, `R_t = 0.5 R_s + 0.5 R_f`. The gold evidence and the gold range are annotations: training
rewards choices by them, and no choice is made from them.

The paper and its released code differ; this follows the paper. Grounding is the Jaccard index, where the code pays 1 for equal
sets, 0.5 for any overlap and -1 for none, which does not distinguish one right of three from two. Proximity counts days; the code
divides the gap by the length of the range, and falls from 1 to 0.25 at its border. All events of an utterance count equally; the
code weighs them by the words that they share with the question.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache

from keepworth.base.metrics import tokens
from keepworth.memory.time_window import TimeWindow

WEIGHTS: Mapping[str, float] = {"answer": 0.6, "grounding": 0.2, "proximity": 0.1, "fidelity": 0.1}
"""Weights of the terms. Proximity and fidelity are halves of the temporal term, which weighs 0.2."""


def answer_coverage(texts: Sequence[str], answers: Sequence[str]) -> float:
    """Returns the share of an answer's normalised words in the texts, for the best answer; in [0, 1], 0 where nothing is chosen.

    It replaces R_a, which scores the trained model's answer: here the reader is frozen, and its answer would cost a call of a
    model for each of the K choices.
    """
    there = frozenset[str]().union(*map(_words, texts))
    shares = [sum(word in there for word in words) / len(words) for words in map(tokens, answers) if words]
    return max(shares, default=0.0)


@lru_cache(maxsize=100_000)
def _words(text: str) -> frozenset[str]:
    return frozenset(tokens(text))


def grounding(chosen: Collection[Hashable], gold: Collection[Hashable]) -> float:
    """Returns R_g: the Jaccard index of chosen and gold, scaled to [-1, 1]; 1 where both are empty."""
    one, other = set(chosen), set(gold)
    return 2.0 * len(one & other) / len(one | other) - 1.0 if one | other else 1.0


def session_proximity(gap: float) -> float:
    """Returns R_s of one session: `1.5 / (1 + exp(gap - 7)) - 0.5`, about 1 in the gold range, -0.5 from ten days on.

    gap: days between the session and the range, 0 inside, of either sign.
    """
    return 1.5 / (1.0 + math.exp(min(abs(gap) - 7.0, 700.0))) - 0.5


def event_fidelity(events: Sequence[TimeWindow], gold: TimeWindow) -> float | None:
    """Returns R_f of one utterance: the mean over its events, 1 for one inside the gold range, 0.5 for one that overlaps it, -1
    for others. None for an utterance without events."""
    if not events:
        return None

    def of(event: TimeWindow) -> float:
        if gold.start <= event.start and event.end <= gold.end:
            return 1.0
        return 0.5 if event.start <= gold.end and gold.start <= event.end else -1.0

    return sum(map(of, events)) / len(events)


def evidence_reward(
    *,
    texts: Sequence[str],
    answers: Sequence[str],
    chosen: Collection[Hashable],
    gold: Collection[Hashable],
    gaps: Sequence[float],
    fidelities: Sequence[float | None],
) -> float:
    """Returns R of one choice. texts, gaps, fidelities: one for each chosen utterance. Proximity and fidelity are means over
    them, the latter without utterances that have no events; 0 where none is left."""
    valid = [fidelity for fidelity in fidelities if fidelity is not None]
    terms = {
        "answer": answer_coverage(texts, answers),
        "grounding": grounding(chosen, gold),
        "proximity": sum(map(session_proximity, gaps)) / len(gaps) if gaps else 0.0,
        "fidelity": sum(valid) / len(valid) if valid else 0.0,
    }
    return sum(weight * terms[name] for name, weight in WEIGHTS.items())
