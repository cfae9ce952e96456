"""Parametric Memento: cases are chosen by the Q of a small network."""

from __future__ import annotations

from typing import Any

import numpy as np

from keepworth.base.arrays import Vectors
from keepworth.memory.choose.case_policies import cases
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.ready_slots import MostSimilar, eligible
from keepworth.memory.choose.selection import BestValue
from keepworth.memory.choose.slots import Candidates, Policy, Query, Use, Values
from keepworth.registry import Method

WIDTH, HIDDEN, BATCH = 128, 64, 32


def everything(query: Query, pool: Pool) -> Candidates:
    """Retrieves all active items, for valuers that rank the whole store (Memento's parametric read)."""
    rows = eligible(query, pool)
    return Candidates(rows, pool.similarities(query.vector, rows))


class CaseNetwork:
    """Q(s, c): probability that showing case c in state s leads to success, by cross-entropy ("AgentFly", 2508.16153).

    A two-layer network over the concatenated vectors of state and case, trained at every write on a replay buffer. The
    paper fine-tunes its encoder too; here the encoder is frozen and folded to `WIDTH` numbers, which is the difference.
    """

    def __init__(self, *, rate: float = 0.01, steps: int = 2, seed: int = 0) -> None:
        self._rate, self._steps, self._seed = rate, steps, seed
        self.reset()

    def reset(self) -> None:
        self._generator = np.random.default_rng([7, self._seed])
        scale = 1.0 / np.sqrt(WIDTH)
        self._w = {
            "query": self._generator.normal(0.0, scale, (WIDTH, HIDDEN)).astype(np.float32),
            "case": self._generator.normal(0.0, scale, (WIDTH, HIDDEN)).astype(np.float32),
            "bias": np.zeros(HIDDEN, dtype=np.float32),
            "out": self._generator.normal(0.0, 0.1, HIDDEN).astype(np.float32),
            "base": np.zeros(1, dtype=np.float32),
        }
        self._moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self._w.items()}
        self._updates = 0
        self._replay: list[tuple[Vectors, Vectors, np.float32]] = []

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        if not len(candidates.rows):
            return Values(np.zeros(0), np.zeros(0))
        cases = _fold(pool.vectors[candidates.rows])
        w = self._w
        pre = cases @ w["case"] + (_fold(query.vector[None]) @ w["query"] + w["bias"])
        logits = np.maximum(pre, 0.0) @ w["out"] + w["base"]
        return Values(_logistic(logits.astype(np.float64)), np.zeros(len(candidates.rows)))

    def learn(self, use: Use, pool: Pool) -> None:
        for row in use.rows:
            query, case = _fold(use.query.vector[None])[0], _fold(pool.vectors[row][None])[0]
            self._replay.append((query, case, np.float32(use.reward)))
        if use.slate:
            for _ in range(self._steps):
                self._step()

    def _step(self) -> None:
        seen = len(self._replay)
        picked = self._generator.integers(0, seen, size=min(BATCH, seen)).tolist()
        q, c, r = map(np.stack, zip(*(self._replay[index] for index in picked), strict=True))
        w = self._w
        pre = q @ w["query"] + c @ w["case"] + w["bias"]
        active = np.maximum(pre, 0.0)
        chance = _logistic(active @ w["out"] + w["base"])
        slope = (chance - r) / len(r)
        below = np.outer(slope, w["out"]) * (pre > 0.0)
        gradients = {
            "query": q.T @ below,
            "case": c.T @ below,
            "bias": below.sum(axis=0),
            "out": active.T @ slope,
            "base": np.array([slope.sum()]),
        }
        self._updates += 1
        for name, gradient in gradients.items():
            first, second = self._moments[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            corrected = np.sqrt(second / (1.0 - 0.999**self._updates)) + 1e-8
            w[name] -= self._rate * (first / (1.0 - 0.9**self._updates)) / corrected


def _fold(vectors: Vectors) -> Vectors:
    size = vectors.shape[1]
    if size <= WIDTH:
        return np.pad(vectors, ((0, 0), (0, WIDTH - size)))
    whole = size - size % WIDTH
    folded: Vectors = vectors[:, :whole].reshape(len(vectors), -1, WIDTH).sum(axis=1)
    return folded


def _logistic(logits: Any) -> Any:
    # Beyond these the result is 0 or 1 anyway, and the exponential overflows.
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))


def memento_p(
    *,
    seed: int = 0,
    k: int = 4,
    rate: float = 0.01,
    updates: int = 2,
    pool: int = 0,
    explore: float = 0.0,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    """Returns parametric Memento.

    Args:
        seed: That of the network's first weights.
        k: The most that is shown.
        rate: The learning rate of the network.
        updates: Steps of the optimiser at each write.
        pool: 0 ranks the whole bank by Q as the paper does; else only that many most similar cases are ranked.
        explore: Probability of a uniform slate, 0 in the paper: plain top-K never tries new cases.
        failures: Whether failed cases are kept and shown, too.
        steps: Whether each step of an episode is a case.
    """
    retriever = MostSimilar(pool) if pool else everything
    valuer = CaseNetwork(rate=rate, steps=updates, seed=seed)
    return cases("memento-p", retriever, valuer, BestValue(k, explore=explore), failures, steps)


METHOD = Method(
    kind="policy",
    name="memento-p",
    title="Memento, parametric",
    paper="arXiv 2508.16153",
    about="Chooses cases by action values that a small network learns",
    tags=("token", "experiential", "retrieval"),
    claim="DeepResearcher accuracy in the fifth pass is 85.44 %, without cases 84.47 %, by similarity 84.85 %.",
    differs="The encoder is frozen and the network learns at each write, where the released code trains offline.",
    make=memento_p,
    on={"k": 4, "pool": 12},
)
