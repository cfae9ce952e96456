"""Maximal marginal relevance: of hits that say the same, the best comes first, and the others wait.

    next = argmax over the hits left of  weight * score - (1 - weight) * max over those chosen of sameness

Source: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing summaries",
SIGIR 1998. Scores are divided by the best one. Sameness is the share of words, numbers apart, that two texts have in common.
"""

from __future__ import annotations

from collections.abc import Sequence

from keepworth.kit import Hit, Method, Stage, StageRequest, need
from keepworth.memory.search.search import duplicate_words


def diversify(hits: Sequence[Hit], weight: float) -> list[Hit]:
    """Returns the hits in the order of their marginal relevance.

    Args:
        hits: Hits, best first.
        weight: That of a hit's own score, from 0 to 1; at 1 the order stays.
    """
    words = [frozenset(duplicate_words(hit.text).split()) for hit in hits]
    best = max((hit.score for hit in hits), default=0.0)
    relevance = [hit.score / best if best > 0.0 else 0.0 for hit in hits]
    remaining, sameness, order = list(range(len(hits))), [0.0] * len(hits), list[int]()
    while remaining:
        chosen = max(
            remaining, key=lambda at: weight * relevance[at] - (1.0 - weight) * sameness[at]
        )  # the first of equals
        remaining.remove(chosen)
        order.append(chosen)
        for at in remaining:
            common = len(words[at] & words[chosen]) / len(words[at] | words[chosen])
            sameness[at] = max(sameness[at], common)
    return [hits[at] for at in order]


def make(*, weight: float = 0.9) -> Stage:
    """Returns the stage.

    Args:
        weight: That of a hit's own score, from 0 to 1; the rest is that of being unlike the hits before it.
    """
    need("the stage mmr", rate={"weight": weight})

    def stage(request: StageRequest, hits: Sequence[Hit]) -> list[Hit]:
        return diversify(hits, weight)

    return stage


METHOD = Method(
    kind="stage",
    name="mmr",
    title="Maximal marginal relevance",
    about="Puts hits that say what an earlier hit says behind others",
    paper="SIGIR 1998, doi 10.1145/290941.291025",
    claim="Four of five readers preferred it to the plain ranking for finding a topic, and a summary holds less twice.",
    differs="Sameness is the share of common words, where the paper takes the cosine of word vectors.",
    tags=("token", "factual", "retrieval"),
    make=make,
)
