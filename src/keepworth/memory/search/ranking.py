"""From scores to a short list: selection with stable ties, fusion of rankings, and diversity. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from keepworth.episodes.prompt_text import as_line
from keepworth.memory.errors import InvalidFilter
from keepworth.memory.item import Item

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MODES = ("hybrid", "lexical", "dense")
Reranker = Callable[[str, Sequence[str]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two rankings become one.

    "rrf": sum of weight / (constant + rank), ranks from 1 (Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion
    Outperforms Condorcet and Individual Rank Learning Methods", 2009). "weighted": sum of weight * score, where BM25
    scores are divided by the best one and cosines are used as they are.
    """

    method: str = "rrf"
    lexical: float = 1.0
    dense: float = 1.0
    constant: float = 60.0

    def __post_init__(self) -> None:
        if self.method not in ("rrf", "weighted"):
            raise InvalidFilter(f"fusion method {self.method!r} does not exist: use 'rrf' or 'weighted'")
        if self.lexical < 0 or self.dense < 0 or self.lexical + self.dense == 0:
            raise InvalidFilter("fusion weights must not be negative, nor both zero")

    @property
    def highest(self) -> float:
        """The score of what both parts put first; with "weighted", cosines end at 1 and the best BM25 is 1."""
        return (self.lexical + self.dense) / (self.constant + 1 if self.method == "rrf" else 1.0)


@dataclass(frozen=True, slots=True)
class Worth:
    """What showing an item added near a situation.

    with_it, without: mean reward (as given) of the times it was shown, and was not; shown, withheld: how many times, by
    nearness; factor: how much likelier the rewards are if it matters than if it does not (a Bayes factor)."""

    with_it: float
    without: float
    shown: float
    withheld: float
    factor: float

    @property
    def effect(self) -> float:
        return self.with_it - self.without


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything a score was made of. terms: each query word's part of the BM25 score; formula: the sum that gives the score
    (of a reranker, what it said). Where `diversity` chose, the score is the one before it, and the order is its own.

    moved: "up" or "down" where rewards say surely that the item helps or harms here, and worth: what they say; of an item that
    stands where the search put it "" and None."""

    lexical_rank: int | None
    dense_rank: int | None
    terms: Mapping[str, float]
    formula: str
    moved: str = ""
    worth: Worth | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """item, and the score it was ranked by; lexical: BM25; dense: cosine. None where that part did not find it."""

    item: Item
    score: float
    lexical: float | None = None
    dense: float | None = None
    why: Explanation | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Short: a list of hits is printed to be read."""
        text = self.text if len(self.text) <= 100 else f"{self.text[:97]}..."
        return f"Hit({self.id}, {self.score:.4f}, {text!r})"

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def text(self) -> str:
        return self.item.text

    @property
    def utility(self) -> float:
        """Mean reward of the times it was shown; 0 before the first."""
        return self.item.values.mean


class Hits(list[Hit]):
    """Hits, best first.

    decision: the id they were logged under, which `reward` takes; "" where the search was not logged. propensity: the probability
    that `policy` had of choosing just these in this order. text: all of them as lines for a prompt. advice: (action, weight,
    similarity of the situation it comes from), for agents that read no text; a negative weight discourages."""

    __slots__ = ("_text", "advice", "decision", "policy", "propensity")

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        decision: str = "",
        *,
        text: str | None = None,
        advice: tuple[tuple[str, float, float], ...] = (),
        propensity: float = 1.0,
        policy: str = "",
    ) -> None:
        super().__init__(hits)
        self.decision = decision
        self.advice, self.propensity, self.policy = advice, propensity, policy
        self._text = text

    @property
    def text(self) -> str:
        return "\n".join(f"- {as_line(hit.text)}" for hit in self) if self._text is None else self._text


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for. goal: the task; observation: what is seen or searched for, "" where that is the goal; actions: what can
    be done here, where that is known; step: within the episode; by: for whom; number: of the episode, -1 outside of one; explore:
    whether something may be tried out."""

    goal: str
    observation: str = ""
    actions: tuple[str, ...] = ()
    step: int = 0
    by: str = ""
    number: int = -1
    explore: bool = True

    @property
    def text(self) -> str:
        """What a search looks for."""
        return self.observation or self.goal


def asked(ask: Ask, top_k: int, more: Mapping[str, Any] | None = None) -> str:
    """What is logged of a choice among what a search found."""
    details: dict[str, Any] = {"k": top_k, **(more or {})}
    if ask.observation and ask.goal != ask.observation:
        details["observation"] = ask.observation
    if ask.actions:
        details["actions"] = ask.actions
    return compact(details)


def compact(details: Mapping[str, Any]) -> str:
    return json.dumps(details, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """hits: what is shown. What is logged with it: candidates, best first, with their scores; details, JSON of what the policy
    knew; vector, of the query."""

    hits: Hits
    candidates: tuple[tuple[str, float], ...]
    details: str = ""
    vector: bytes | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """What a selector shows: positions among the candidates in the order shown, the probability it had of choosing just
    these in this order, and the policy's name with its version."""

    positions: tuple[int, ...]
    propensity: float
    policy: str


Selector = Callable[[str, Sequence[Hit], int], Selected]
"""(query, candidates best first, k) -> what is shown."""

Ranked = list[tuple[str, float]]


def fuse(lexical: Ranked, dense: Ranked, fusion: Fusion) -> Ranked:
    """Both lists best first. Ties keep the order: found by both parts first, then by id order of arrival in the lists."""
    scores: dict[str, float] = {}
    if fusion.method == "rrf":
        for ranked, weight in ((lexical, fusion.lexical), (dense, fusion.dense)):
            if weight:
                for rank, (id, _) in enumerate(ranked, start=1):
                    scores[id] = scores.get(id, 0.0) + weight / (fusion.constant + rank)
    else:
        top = lexical[0][1] if lexical else 1.0
        for id, score in lexical:
            scores[id] = fusion.lexical * score / top
        for id, score in dense:
            scores[id] = scores.get(id, 0.0) + fusion.dense * score
    return sorted(scores.items(), key=lambda pair: -pair[1])


def fusion_formula(
    fusion: Fusion,
    lexical_rank: int | None,
    dense_rank: int | None,
    lexical: float | None,
    dense: float | None,
    top: float,
) -> str:
    """The sum that `fuse` computed for one item, written out."""
    parts = []
    if fusion.method == "rrf":
        if lexical_rank is not None:
            parts.append(f"{fusion.lexical:.10g}/({fusion.constant:.10g}+{lexical_rank})")
        if dense_rank is not None:
            parts.append(f"{fusion.dense:.10g}/({fusion.constant:.10g}+{dense_rank})")
    else:
        if lexical is not None:
            parts.append(f"{fusion.lexical:.10g}*{lexical:.10g}/{top:.10g}")
        if dense is not None:
            parts.append(f"{fusion.dense:.10g}*{dense:.10g}")
    return " + ".join(parts)


def diversified(scores: Sequence[float], vectors: npt.NDArray[np.float32], k: int, diversity: float) -> list[int]:
    """Maximal marginal relevance: indices of k candidates, each maximising (1 - d) * relevance - d * likeness to those taken.

    scores: shape (n,), scaled here to [0, 1]; vectors: (n, dimension), unit rows; diversity d in [0, 1].
    Source: Carbonell and Goldstein, "The Use of MMR" (1998).
    """
    import numpy as np

    relevance = np.asarray(scores, dtype=np.float64)
    spread = relevance.max(initial=0.0) - relevance.min(initial=0.0)
    relevance = (relevance - relevance.min(initial=0.0)) / spread if spread > 0 else np.ones_like(relevance)
    likeness = np.full(len(relevance), -1.0)
    taken: list[int] = []
    open_ = np.ones(len(relevance), dtype=bool)
    while len(taken) < min(k, len(relevance)):
        value = (1.0 - diversity) * relevance - (diversity * likeness if taken else 0.0)
        value[~open_] = -np.inf
        pick = int(np.argmax(value))
        taken.append(pick)
        open_[pick] = False
        likeness = np.maximum(likeness, vectors @ vectors[pick])
    return taken
