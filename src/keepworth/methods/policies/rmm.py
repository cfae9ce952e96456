"""RMM: topics as memories, and a reranker that learns from what the answer cites ("In Prospect and Retrospect: Reflective Memory
Management for Long-term Personalized Dialogue Agents", arXiv 2503.08026). No language model is trained.

    memory = Memory("chat.mem", policy="rmm")
    reflect(memory, session)                    # after a session: topics with their turns
    with memory.episode(question) as episode:
        shown = episode.search()                # each line begins with the id of its item
        episode.act(reply)                      # "... [m3, m7]": what the reply used, in its last brackets
        episode.reward(1.0)                     # the policy learns from it

As in the paper: K = 20, M = 5, tau = 0.5, rate 1e-3, b = 0.5, batches of 4, rewards of +1 and -1 for what is cited and what is
not, and nothing else: the size of the reward of the episode is not read. Different here:

* The paper adds noise to s and divides the sum by tau, which changes no order, so that its tau decides nothing about the choice.
  Here noise is added to s / tau: a choice has exactly the Plackett-Luce probability of s / tau, which is on file, and of which
  the gradient is taken. The paper does not say which probability its gradient is of.
* The slot of an item gets the item's own reward.
* Items are cited by their ids, where the paper numbers those that it shows: a reply after two searches stays unambiguous.
* Both matrices start at zero, so that the first scores are the retriever's; a step is the rate times the mean over the batch. The
  paper says neither.
* The encoder is the memory's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.base.metrics import tokens
from keepworth.base.text import as_line
from keepworth.memory.choose.ready_slots import MostSimilar
from keepworth.memory.choose.selection import BestValue
from keepworth.memory.choose.slots import (
    Candidates,
    Policy,
    Presented,
    Query,
    Use,
    Values,
    combined_advice,
    need,
    whole,
)
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item
from keepworth.methods.policies._topics import reflect as reflect
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.memory.choose.pool import Pool


class Reranker:
    """Scores q' . m' with q' = q + W_q q and m' = m + W_m m. The weights are empty until the size d of vectors is known.

    Args:
        baseline: b of the paper.
        batch: Choices of one step.
    """

    def __init__(self, *, temperature: float = 0.5, rate: float = 1e-3, baseline: float = 0.5, batch: int = 4) -> None:
        self.temperature, self.rate, self.baseline, self.batch = temperature, rate, baseline, batch
        self.for_query = self.for_items = np.zeros((0, 0))
        self._slopes: list[tuple[Floats, Floats]] = []

    def moved(self, query: Floats, items: Floats) -> tuple[Floats, Floats]:
        """Returns q', shape (d,), and m', shape (n, d)."""
        if not self.for_query.size:
            return query, items
        return query + self.for_query @ query, items + items @ self.for_items.T

    def logits(self, query: Floats, items: Floats) -> Floats:
        """Returns s / tau, shape (n,): log-weights of the Plackett-Luce choice."""
        new_query, new_items = self.moved(query, items)
        logits: Floats = new_items @ new_query / self.temperature
        return logits

    def slopes(
        self, query: Floats, items: Floats, slate: Sequence[int], advantages: Sequence[float]
    ) -> tuple[Floats, Floats]:
        """Returns the gradients by W_q and W_m, each of shape (d, d), of the sum that `_by_logits` names.

        Args:
            query: The question's vector, of shape (d,).
            items: The candidates' vectors, of shape (n, d).
            slate: The places of the chosen candidates, in order.
            advantages: The reward of each of them minus the baseline.
        """
        new_query, new_items = self.moved(query, items)
        by_score = _by_logits(new_items @ new_query / self.temperature, slate, advantages) / self.temperature
        return np.outer(new_items.T @ by_score, query), np.outer(new_query, items.T @ by_score)

    def learn(self, query: Floats, items: Floats, slate: Sequence[int], rewards: Sequence[float]) -> None:
        """Collects a choice, and takes a step of REINFORCE after every `batch` choices.

        Args:
            query: Shape (d,).
            items: The candidates, shape (n, d).
            slate: The places of the chosen candidates, in order.
            rewards: The reward of each place of the slate.
        """
        if not slate:
            return
        if not self.for_query.size:
            self.for_query, self.for_items = np.zeros((2, len(query), len(query)))
        self._slopes.append(self.slopes(query, items, slate, [reward - self.baseline for reward in rewards]))
        if len(self._slopes) == self.batch:
            for weights, slopes in zip((self.for_query, self.for_items), zip(*self._slopes, strict=True), strict=True):
                weights += self.rate / self.batch * sum(slopes)
            self._slopes.clear()


def _by_logits(logits: Floats, slate: Sequence[int], advantages: Sequence[float]) -> Floats:
    """Returns the gradient by the logits, shape (n,), of the sum over the slate of advantage * `log_plackett_luce`."""
    left, slope = np.array(logits, dtype=np.float64), np.zeros(len(logits))
    for index, advantage in zip(slate, advantages, strict=True):
        chances = np.exp(left - left.max())
        slope -= advantage * chances / chances.sum()
        slope[index] += advantage
        left[index] = -np.inf
    return slope


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
NO_CITATION = "[NO_CITE]"


def citing(ids: Iterable[str]) -> str:
    """Returns the citation that ends a reply which used the items of these ids."""
    listed = ", ".join(ids)
    return f"[{listed}]" if listed else NO_CITATION


def cited(reply: str, ids: Sequence[str]) -> frozenset[str] | None:
    """Returns those of `ids` that the last brackets of a reply name. None where the reply has no citation: no brackets, or last
    ones that name no item and are not NO_CITE."""
    brackets = _BRACKETS.findall(reply)
    if not brackets:
        return None
    names = {part.strip() for part in brackets[-1].split(",")}
    if names & set(ids):
        return frozenset(names & set(ids))
    # Ids of another search of the same reply are a citation, too, but of no item of this search.
    elsewhere = all(re.fullmatch(r"m\d+", name) for name in names)
    return frozenset() if elsewhere or names == {NO_CITATION.strip("[]")} else None


def cites_by_words(answer: str, question: str, texts: Sequence[str]) -> list[int]:
    """Cites by rule where the reader cannot.

    Args:
        answer: What the reader answered; one without words of its own cites nothing.
        question: The question, whose words are excluded.
        texts: What was shown. Those that hold the most words of the answer are cited, if they hold at least half of
            them.
    """
    words = set(tokens(answer)) - set(tokens(question))
    shares = [len(words & set(tokens(text))) / len(words) for text in texts] if words else []
    most = max(shares, default=0.0)
    return [index for index, share in enumerate(shares) if share == most] if most >= 0.5 else []


class CitedReward:
    """Values items by the reranker's score, which learns from citations. A choice without an action, or whose action has no
    citation, is not learned from. `start` is a trained reranker to continue from."""

    def __init__(self, start: Reranker | None = None, **settings: Any) -> None:
        self._start, self._settings = start, settings
        self.reset()

    def reset(self) -> None:
        self.reranker = Reranker(**self._settings)
        self._learned: set[str] = set()
        if self._start is not None:
            self.reranker.for_query = self._start.for_query.copy()
            self.reranker.for_items = self._start.for_items.copy()

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        shape = self.reranker.for_query.shape
        if shape not in ((0, 0), (pool.vectors.shape[1],) * 2):
            raise InvalidPolicy(
                f"the reranker has weights of shape {shape}, and vectors here have {pool.vectors.shape[1]} numbers.",
                "Start from one that was learned with this encoder.",
            )
        logits = self.reranker.logits(*_vectors(query, candidates, pool))
        return Values(logits * self.reranker.temperature, np.zeros(len(logits)))  # the selector divides by tau

    def learn(self, use: Use, pool: Pool) -> None:
        ids = [pool.items[row].id for row in use.rows]
        used = cited(use.taken, ids) if use.taken else None
        if used is None or use.decision in self._learned:
            return  # a corrected reward does not change what was cited
        if use.decision:
            self._learned.add(use.decision)
        rewards = [1.0 if id in used else -1.0 for id in ids]
        self.reranker.learn(*_vectors(use.query, use.candidates, pool), use.slate, rewards)


def _vectors(query: Query, candidates: Candidates, pool: Pool) -> tuple[Floats, Floats]:
    return query.vector.astype(np.float64), pool.vectors[candidates.rows].astype(np.float64)


def _with_ids(items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
    """Shows one line per item, which begins with its id, for a reply to cite."""
    lines = "\n".join(f"[{item.id}] {as_line(item.text)}" for item in items)
    return Presented(lines, combined_advice(items, query, similarities))


def rmm(
    *,
    k: int = 5,
    pool: int = 20,
    temperature: float = 0.5,
    rate: float = 1e-3,
    baseline: float = 0.5,
    batch: int = 4,
    start: Reranker | None = None,
) -> Policy:
    """Returns RMM.

    Args:
        k: M of the paper: items that are shown.
        pool: K of the paper: candidates that the reranker gets.
        temperature: That of the softmax over scores.
        rate: The learning rate of the reranker.
        baseline: b of the paper.
        batch: The choices after which it takes a step.
        start: A trained reranker to continue from.

    Raises:
        InvalidPolicy: For a setting out of its range.
    """
    need("rmm", count={"pool": pool, "batch": batch}, positive={"temperature": temperature, "rate": rate})
    valuer = CitedReward(start, temperature=temperature, rate=rate, baseline=baseline, batch=batch)
    return Policy("rmm", whole, MostSimilar(pool), valuer, BestValue(k, temperature=temperature), _with_ids)


METHOD = Method(
    kind="policy",
    name="rmm",
    title="RMM, Reflective Memory Management",
    paper="arXiv 2503.08026",
    about="Learns a reranker from what replies cite, while `reflect` makes topics of sessions",
    tags=("token", "factual", "formation", "retrieval"),
    claim="LongMemEval Recall@5 is 69.8 and accuracy 70.4, by plain retrieval 62.4 and 63.6.",
    differs=(
        "Noise is added to s / tau so that a choice has its exact probability, items are cited by their ids, "
        "both matrices start at zero, and rules make the topics."
    ),
    make=rmm,
    notes="It learns from what replies cite, and not from rewards.",
)
