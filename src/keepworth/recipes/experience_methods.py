"""Every memory that learns without weights, by the name that `Memory(policy=...)` and `keepworth eval stream --arms` take.

The published ones differ from each other only where their papers do: each is a `Policy` of the same slots. `failures` and `steps`
are ours: keep failed cases too, and keep every step by its own reward, where papers keep whole episodes by theirs. That makes
a rival fairer where steps have rewards. The encoder is whatever the memory was opened with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keepworth.episodes.errors import UnknownName
from keepworth.episodes.text import as_line
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item
from keepworth.memory.policy.admission import admit_all
from keepworth.memory.policy.default import NAME, default
from keepworth.memory.policy.maintainers import Capacity, DeleteByUtility, LinkAndEvolve
from keepworth.memory.policy.mixture import ESTIMATORS, Estimator, MixtureValuer
from keepworth.memory.policy.pool import Pool
from keepworth.memory.policy.presenters import EncouragedDiscouraged, Exemplars, Guidance
from keepworth.memory.policy.propensity import Mixture
from keepworth.memory.policy.retrievers import Everything, GoalAndObservation, MostRecent, MostSimilar, WithLinked
from keepworth.memory.policy.selectors import (
    AllRetrieved,
    BestValue,
    Blend,
    Consensus,
    Pruned,
    Thompson,
    agreeing,
    path,
    seeing_the_episode,
)
from keepworth.memory.policy.slots import (
    Candidates,
    Policy,
    Presented,
    Query,
    Retriever,
    Selector,
    Valuer,
    Values,
    whole,
)
from keepworth.memory.policy.valuers import (
    CaseNetwork,
    Counts,
    KernelMean,
    KernelQ,
    LinearReward,
    MovingAverage,
    NearestMean,
    Unvalued,
)
from keepworth.memory.policy.writers import Distilled, ExperienceTable, Notes, RawCases
from keepworth.recipes import advantage

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


def _raw_cases(
    name: str, retriever: Retriever, valuer: Valuer, selector: Selector, failures: bool, steps: bool
) -> Policy:
    """Cases as they happened, shown as examples."""
    return Policy(
        name,
        whole,
        retriever,
        valuer,
        selector,
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )


# ExpRecent, ExpRAG and ReMem: raw successes, recent or similar, optionally pruned (Evo-Memory, arXiv 2511.20857). k = 4, and
# bge-base-en-v1.5 in the paper. ReMem's model decides what to prune; the rule form prunes by similarity, and uses no model call.


def exprecent(*, seed: int = 0, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    return _raw_cases("exprecent", MostRecent(k), Unvalued(), AllRetrieved(k), failures, steps)


def exprag(*, seed: int = 0, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    """failures: also keep and show failed cases, as the paper's separate table does."""
    return _raw_cases("exprag", MostSimilar(k), Unvalued(), AllRetrieved(k), failures, steps)


def remem(*, seed: int = 0, k: int = 4, share: float = 0.8, failures: bool = False, steps: bool = False) -> Policy:
    return _raw_cases("remem", MostSimilar(k), Unvalued(), Pruned(k, share), failures, steps)


# Memento, first named AgentFly (arXiv 2508.16153): cases chosen by similarity, by a learned Q, or by a kernel Q per step. K =
# 4 and cosine as in the paper (the released code uses 8). Differences: the parametric Q keeps its encoder frozen and is
# trained at each write as the paper says, where the code trains offline; alpha, gamma and the rates of the multi-step form
# are ours, because the paper does not give them. `explore` is 0 in the paper, so plain top-K never tries new cases.


def non_parametric(*, seed: int = 0, k: int = 4, failures: bool = True, steps: bool = False) -> Policy:
    return _raw_cases("memento-np", MostSimilar(k), Unvalued(), AllRetrieved(k), failures, steps)


def parametric(
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
    """updates: steps of the optimiser at each write. pool: 0 ranks the whole bank by Q as the paper does; else only that many
    most similar cases are ranked."""
    retriever = MostSimilar(pool) if pool else Everything()
    valuer = CaseNetwork(rate=rate, steps=updates, seed=seed)
    return _raw_cases("memento-p", retriever, valuer, BestValue(k, explore=explore), failures, steps)


def multi_step(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 12,
    alpha: float = 0.1,
    gamma: float = 0.95,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    valuer = KernelQ(alpha=alpha, gamma=gamma)
    return _raw_cases("memento-kernel", MostSimilar(pool), valuer, BestValue(k, temperature=alpha), failures, steps)


# MemRL (arXiv 2601.03192): gate by similarity, rank by a blend of similarity and Q, Q a moving average of +1 and -1. alpha =
# 0.3, lambda = 0.5, k1 = 5, k2 = 3, Q starts at 0, as published; the gate delta is set per benchmark there (0.25 to 0.62).
# Similarity is standardised over the candidates, where the code uses constants measured per benchmark.


def memrl(
    *,
    seed: int = 0,
    k: int = 3,
    pool: int = 5,
    threshold: float = 0.4,
    share: float = 0.5,
    rate: float = 0.3,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    retriever, valuer = MostSimilar(pool, threshold), MovingAverage(rate)
    return _raw_cases("memrl", retriever, valuer, Blend(k, share), failures, steps)


# A-MEM (arXiv 2502.12110): notes with keywords, tags and context, linked to their neighbours and revised by them. k = 5
# neighbours at writing as in the released code; 10 notes are read in the paper, here as many as the prompt budget allows.
# Rule forms of the two model calls; `writers.NotesByModel` asks a model. It has no reward signal.


def amem(
    *,
    seed: int = 0,
    k: int = 4,
    link_above: float = 0.6,
    evolve_above: float = 0.75,
    failures: bool = True,
    steps: bool = False,
) -> Policy:
    return Policy(
        "amem",
        whole,
        WithLinked(k),
        Unvalued(),
        AllRetrieved(k),
        Exemplars(),
        Notes(failures, steps),
        admit_all,
        (LinkAndEvolve(link_above=link_above, evolve_above=evolve_above), Capacity()),
    )


# ReMe (arXiv 2512.10696): distilled experiences keyed by when to use them, deleted when they do not pay. alpha = 5 uses and
# beta = 0.5 as in the paper; k is 5 there, and is capped by the prompt budget in comparisons. Template distillation of successes;
# `writers.DistilledByModel` asks a model. Retries with reflection cost extra attempts and are off here.


def reme(
    *, seed: int = 0, k: int = 5, least: int = 5, share: float = 0.5, alike: float = 0.98, steps: bool = False
) -> Policy:
    return Policy(
        "reme",
        whole,
        MostSimilar(k),
        Counts(),
        AllRetrieved(k),
        Guidance(),
        Distilled(alike, steps),
        admit_all,
        (DeleteByUtility(least, share), Capacity()),
    )


# REMEMBERER (arXiv 2306.07929): a table of action values per goal and observation, shown as good and bad examples. m = 2 records,
# lambda = 0.5, gamma = 1 and alpha = 1/N as in the released code. Differences: similarity of both parts is the cosine (the paper
# writes one table per environment); discouraged actions are those with a value at or below min(0, mean), where the code takes
# values of exactly 0; no random action is made up where a list would be empty.


def rememberer(
    *, seed: int = 0, k: int = 2, share: float = 0.5, n: int = 0, gamma: float = 1.0, steps: bool = False
) -> Policy:
    """n: steps before bootstrapping; 0 sums to the end of the episode. steps: single steps have rewards of their own."""
    return Policy(
        "rememberer",
        whole,
        GoalAndObservation(k, share),
        Unvalued(),
        AllRetrieved(k),
        EncouragedDiscouraged(),
        ExperienceTable(n=n, gamma=gamma, steps=steps),
        admit_all,
        (Capacity(500),),
    )


# A-MemGuard (arXiv 2510.02373): what retrieved records would each lead to is compared; the minority becomes lessons. K = 5
# records; the path of a record is what it alone advises, and consensus is the largest group of equal paths (the cheap form
# clusters embeddings of paths). Rejected paths go to a second store, and near lessons are shown as warnings (4 at most, as in
# the released code). Over an ExpRAG memory, as the paper guards an existing agent.


@dataclass(slots=True)
class Guard:
    """Selector and presenter in one, because they share the store of lessons."""

    READS_ITEMS: ClassVar[bool] = True
    k: int = 5
    least: int = 2
    lessons: int = 4
    close: float = 0.7
    most: int = 500
    _vectors: list[Vectors] = field(default_factory=list)
    _actions: list[str] = field(default_factory=list)

    def select(self, query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        self.note(query, candidates, pool)
        return Consensus(self.k, self.least)(query, candidates, values, pool)

    def note(self, query: Query, candidates: Candidates, pool: Pool) -> None:
        """Keep what consensus rejects as lessons."""
        paths = [path(pool, int(row), query) for row in candidates.rows]
        kept = agreeing(paths, self.least)
        if kept.any():
            for each, good in zip(paths, kept, strict=True):
                if not good and each.startswith("do "):
                    self._vectors.append(query.vector)
                    self._actions.append(each.removeprefix("do "))
            del self._vectors[: -self.most], self._actions[: -self.most]

    def present(self, items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
        shown = Exemplars()(items, query, similarities)
        advised = {action for action, weight, _ in shown.advice if weight > 0}
        warned = [action for action in self.near(query) if action not in advised]
        if not warned:
            return shown
        text = "\n".join(
            [shown.text, "Warning, rejected before in similar situations:", *(f"- {as_line(a)}" for a in warned)]
        )
        return Presented(text.strip(), shown.advice + tuple((action, -1.0, self.close) for action in warned))

    def near(self, query: Query) -> list[str]:
        """Actions of the lessons closest to the query, each once, at most `lessons`."""
        if not self._vectors:
            return []
        similarities = np.stack(self._vectors) @ query.vector
        order = [place for place in np.argsort(-similarities, kind="stable") if similarities[place] >= self.close]
        return list(dict.fromkeys(self._actions[place] for place in order))[: self.lessons]


def amemguard(*, seed: int = 0, k: int = 5, least: int = 2, failures: bool = False, steps: bool = False) -> Policy:
    guard = Guard(k, least)
    return Policy(
        "amemguard",
        whole,
        MostSimilar(k),
        Unvalued(),
        guard.select,
        guard.present,
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
        rehearse=guard.note,
    )


# What a statistician would try first: the kernel mean of reward per action, nearest neighbours, linear bandits. Nothing here
# was published as a memory for agents; the settings are round numbers. Each shows the items whose advice it values highest,
# as long as they agree. With 1 % of even slates among them, so that no action is shut out.


BELOW = -1.5
"""Under every estimate."""


def _statistical(name: str, valuer: Valuer, pool: int, selection: Thompson, failures: bool) -> Policy:
    return _raw_cases(name, MostSimilar(pool, 0.1), valuer, selection, failures, steps=True)


def _best(k: int, floor: float, explore: float = 0.01) -> Thompson:
    return Thompson(k, floor, off=0.0, probe=0.0, explore=explore, veto=False, greedy=True)


def _floor(failures: bool) -> float:
    """With warnings among the items what promises less than nothing is left out: else a warning of what works would be shown."""
    return 0.0 if failures else BELOW


def kernel_mean(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 12,
    bandwidth: float = 0.1,
    prior: float = 0.2,
    weight: float = 0.005,
    keep: float = 1.0,
    failures: bool = True,
) -> Policy:
    return _statistical("kernel-mean", KernelMean(bandwidth, prior, weight, keep), pool, _best(k, 0.0), failures)


def kernel_mean_of_items(
    *, seed: int = 0, k: int = 1, pool: int = 12, bandwidth: float = 0.15, prior: float = 0.3, keep: float = 1.0
) -> Policy:
    valuer = KernelMean(bandwidth, prior, 0.3, keep, of_items=True)
    return _statistical("kernel-mean-items", valuer, pool, _best(k, BELOW, 0.05), True)


def nearest_mean(
    *, seed: int = 0, k: int = 4, pool: int = 12, n: int = 5, prior: float = 0.2, failures: bool = False
) -> Policy:
    return _statistical("nearest-mean", NearestMean(n, prior), pool, _best(k, _floor(failures)), failures)


def linucb(
    *, seed: int = 0, k: int = 4, pool: int = 12, alpha: float = 0.3, ridge: float = 0.3, failures: bool = False
) -> Policy:
    return _statistical("linucb", LinearReward(alpha, ridge), pool, _best(k, _floor(failures), 0.0), failures)


def linear_thompson(
    *, seed: int = 0, k: int = 4, pool: int = 12, deviation: float = 0.2, ridge: float = 0.3, failures: bool = False
) -> Policy:
    selection = Thompson(k, _floor(failures), off=0.0, probe=0.0, explore=0.0, veto=False)
    return _statistical("linear-thompson", LinearReward(0.0, ridge, deviation), pool, selection, failures)


# This project's own: what a statistician would try, each counting as well as it has predicted.


MIXTURE_PARTS: dict[str, Callable[[Estimator], bool]] = {
    "kernel": lambda each: not each.bandwidth,
    "ridge": lambda each: bool(each.bandwidth),
    "words": lambda each: not each.words,
    "fading": lambda each: each.keep == 1.0,
}
"""Estimators that stay where a part is left out."""


def mixture(
    *,
    seed: int = 0,
    k: int = 4,
    pool: int = 96,
    explore: float = 0.0,
    prior: float = 0.2,
    share: float = 0.01,
    failures: bool = True,
    without: str = "",
) -> Policy:
    """without: one of `MIXTURE_PARTS`."""
    if without and without not in MIXTURE_PARTS:
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(MIXTURE_PARTS)}.")
    kept = tuple(each for each in ESTIMATORS if not without or MIXTURE_PARTS[without](each))
    name = f"mixture-without-{without}" if without else "mixture"
    return _statistical(name, MixtureValuer(kept, prior, share), pool, _best(k, 0.0, explore), failures)


def _alike(recipe: Callable[..., Policy]) -> Callable[..., Policy]:
    """`recipe` with items of the same episode before it, as `advantage` has them."""

    def composed(*, here: str = "among", **settings: Any) -> Policy:
        return seeing_the_episode(recipe(**settings), here)

    return composed


RIVALS: dict[str, Callable[..., Policy]] = {
    "exprecent": exprecent,
    "exprag": exprag,
    "remem": remem,
    "reme": partial(reme, k=4),
    "memrl": memrl,
    "memento-np": non_parametric,
    "memento-p": parametric,
    "memento-kernel": multi_step,
    "rememberer": rememberer,
    "amem": amem,
    "amemguard": partial(amemguard, k=4),
    "kernel-mean": kernel_mean,
    "kernel-mean-items": kernel_mean_of_items,
    "nearest-mean": nearest_mean,
    "linucb": linucb,
    "linear-thompson": linear_thompson,
}
OURS: dict[str, Callable[..., Policy]] = {
    "mixture": mixture,
    **{f"mixture-without-{part}": partial(mixture, without=part) for part in MIXTURE_PARTS},
}
METHODS: dict[str, Callable[..., Policy]] = {
    **{name: _alike(recipe) for name, recipe in (*RIVALS.items(), *OURS.items())},
    NAME: lambda *, seed=0, **settings: default(**settings),
    "advantage": advantage.advantage,
    **{f"advantage-without-{part}": partial(advantage.advantage, without=part) for part in advantage.PARTS},
}
ABOUT = {
    "exprecent": "the latest cases, as they happened (arXiv 2511.20857)",
    "exprag": "the most similar cases, as they happened (arXiv 2511.20857)",
    "remem": "similar cases, pruned before they are shown (arXiv 2511.20857)",
    "reme": "distilled experiences with counts, deleted when they do not pay (arXiv 2512.10696)",
    "memrl": "a similarity gate, then similarity and a moving average of reward (arXiv 2601.03192)",
    "memento-np": "cases by similarity (arXiv 2508.16153)",
    "memento-p": "cases by the Q of a small network (arXiv 2508.16153)",
    "memento-kernel": "cases by the Q of a kernel (arXiv 2508.16153)",
    "rememberer": "a table of n-step action values; good and bad actions (arXiv 2306.07929)",
    "amem": "notes with links, whose neighbours are revised (arXiv 2502.12110)",
    "amemguard": "what most records lead to, and lessons (arXiv 2510.02373)",
    "kernel-mean": "mean reward of an action near here, by a kernel: what a statistician would try first",
    "kernel-mean-items": "mean reward of the item itself near here, by a kernel",
    "nearest-mean": "mean reward of an action in the nearest situations",
    "linucb": "ridge regression of reward, an action each; the upper bound (arXiv 1003.0146)",
    "linear-thompson": "ridge regression of reward, an action each; a draw (arXiv 1209.3352)",
    "mixture": "kernel means and ridge regressions, each counting as well as it has predicted (ours)",
    NAME: "the default policy: the search's order, corrected by what rewards say (ours)",
    "advantage": "advantage credit, shared and local values, Thompson selection, probation (ours)",
}
"""What each method is, in a line. NAME-without-PART is one without a part."""


def settings_of(name: str) -> frozenset[str]:
    """What a method can be told: the keywords of its recipe."""
    return frozenset(signature(RIVALS.get(name) or OURS.get(name) or METHODS[name]).parameters)


def method(name: str, *, seed: int = 0, **settings: object) -> Policy:
    """A fresh composition; two calls share no state."""
    if name not in METHODS:
        raise UnknownName("memory method", name, METHODS)
    return METHODS[name](seed=seed, **settings)
