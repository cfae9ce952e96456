"""This project's method: learn what each item adds here, show what probably helps, try what might, let outside advice earn trust.

advantage credit r - p0(x) with p0 from memory-off choices; one model of which items transfer, shared by all, sharpened by
local outcomes; Thompson selection against showing nothing; candidates from outside on probation; every act reversible.
`without` leaves one part out: "baseline" (credit is the reward itself), "measuring" (the baseline is a constant), "local",
"shared" and "attribution" of the valuer, "posterior", "coherence" and "exploration" of the selector, "retrieval" (the newest
instead of the most similar), "failures" of the writer, "gate", "maintenance". The keyer and the presenter are those of ExpRAG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Status, learned
from keepworth.memory.policy.admission import admit_all
from keepworth.memory.policy.pool import CANDIDATE, Advice, Pool
from keepworth.memory.policy.slots import Candidates, Maintainer, Policy, Query, need, whole
from keepworth.methods.policies._advantage_maintainers import Crowd, MergeDuplicates, Probation, RetireHarmful, Room
from keepworth.methods.policies._advantage_values import AdvantageSettings, AdvantageValuer
from keepworth.methods.policies._cases import require_part
from keepworth.methods.policies._parts import Exemplars, MostRecent, Thompson, eligible, top
from keepworth.methods.writers._episodes import RawCases
from keepworth.registry import Method

PARTS = (
    "baseline",
    "measuring",
    "local",
    "shared",
    "attribution",
    "posterior",
    "coherence",
    "exploration",
    "retrieval",
    "failures",
    "gate",
    "maintenance",
)
SETTINGS = AdvantageSettings(
    similarity=1.2,
    bias=-0.3,
    spread=0.01,
    words=0.05,
    heterogeneity=0.1,
    bandwidth=0.35,
    keep=0.99,
    refuted=0.5,
    relevance=20.0,
    surprise=1.0,
)
SELECTION = Thompson(widen=0.05, off=0.01, explore=0.005)


def trusted_only(draft: Advice, pool: Pool) -> Status | None:
    """Own experience alone; the rest is kept out of sight. The strictest gate there is."""
    return Status.ACTIVE if pool.vouches(draft.source) else Status.QUARANTINED


@dataclass(frozen=True, slots=True)
class Trust:
    """What was learned here enters at once, on whosever word. What comes from outside is a candidate, until probes have shown
    that it helps.

    most: how many candidates of one source from outside may wait at the same time; more are rejected.
    """

    most: int = 50

    def __call__(self, draft: Advice, pool: Pool) -> Status | None:
        if learned(draft.source):
            return Status.ACTIVE
        waiting = pool.having(CANDIDATE)
        same = int((pool.source[waiting] == pool.source_of(draft.source)).sum())
        return Status.CANDIDATE if same < self.most else None


@dataclass(frozen=True, slots=True)
class WithProbation:
    """Top-k of the active items, then the most similar of those on probation."""

    k: int = 12
    probation: int = 4
    threshold: float = 0.0

    def __post_init__(self) -> None:
        need("the retrieval", count={"k": self.k})
        if math.isnan(self.threshold):
            raise InvalidPolicy("the threshold of the retrieval is not a number.", "Give a cosine, or -1 for none.")

    def __call__(self, query: Query, pool: Pool) -> Candidates:
        rows = eligible(query, pool)
        found = top(pool.scan(query.vector, rows), rows, self.k, self.threshold)
        waiting = pool.having(CANDIDATE) if self.probation else np.zeros(0, dtype=np.intp)
        waiting = pool.speaking_of(waiting, query.actions) if query.actions else waiting
        if not len(waiting):
            return found
        more = top(pool.similarities(query.vector, waiting), waiting, self.probation, self.threshold)
        return Candidates(
            np.concatenate([found.rows, more.rows]),
            np.concatenate([found.similarities, more.similarities]),
            waiting=len(more.rows),
        )


def advantage(
    *,
    k: int = 4,
    without: str = "",
    settings: AdvantageSettings = SETTINGS,
    selection: Thompson = SELECTION,
    pool: int = 12,
    threshold: float = 0.1,
    failures: bool = True,
    capacity: int = 400,
    admission: Mapping[str, Any] | None = None,
) -> Policy:
    """The whole of it.

    Args:
        without: One of `PARTS`, which is left out.
        pool: Candidates by similarity; as many as four more are on probation.
        threshold: Cosine that a candidate has to exceed.
        capacity: Items kept.
        admission: Settings of `Probation`.
    """
    require_part(without, PARTS)
    selection = replace(selection, k=k)
    if without == "baseline":
        settings = replace(settings, baseline=False)
    elif without == "measuring":
        settings = replace(settings, measured=False)
    elif without in ("local", "shared"):
        settings = replace(settings, **{without: False})
    elif without == "attribution":
        settings = replace(settings, attribute=False)
    elif without == "posterior":
        selection = replace(selection, greedy=True, explore=0.0)
    elif without == "coherence":
        selection = replace(selection, coherent=False)
    elif without == "exploration":
        selection = replace(selection, off=0.0, explore=0.0)
    elif without == "gate":
        selection = replace(selection, veto=False, probe=0.0)
    elif without == "maintenance":
        settings = replace(settings, keep=1.0, forget=1.0)
    gated = without != "gate"
    maintainers: list[Maintainer] = [Probation(**(admission or {}))] if gated else []
    if without != "maintenance":
        maintainers += [RetireHarmful(), MergeDuplicates(), Crowd()]
    return Policy(
        "advantage" if not without else f"advantage-without-{without}",
        whole,
        MostRecent(pool) if without == "retrieval" else WithProbation(pool, 4 if gated else 0, threshold),
        AdvantageValuer(settings),
        selection,
        Exemplars(),
        RawCases(failures and without != "failures", steps=True),
        Trust() if gated else admit_all,
        (*maintainers, Room(capacity)),
    )


def grouped(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `advantage` from one flat mapping, in which fields of its settings and its selection stand beside its own."""
    valuation = {field.name for field in fields(AdvantageSettings)}
    choice = {field.name for field in fields(Thompson)}
    trust = {field.name for field in fields(Probation) if not field.name.startswith("_")} - {"keep", "noise"}
    rest = {key: value for key, value in flat.items() if key not in valuation | choice | trust}
    return {
        "settings": replace(SETTINGS, **{key: value for key, value in flat.items() if key in valuation}),
        "selection": replace(SELECTION, **{key: value for key, value in flat.items() if key in choice}),
        "admission": {key: value for key, value in flat.items() if key in trust},
        **rest,
    }


METHOD = Method(
    kind="policy",
    name="advantage",
    title="Advantage credit with probation",
    about="advantage credit, shared and local values, Thompson selection, probation (ours)",
    differs="Not published: this project's own, beside the default policy.",
    parts=PARTS,
    make=advantage,
)
