"""This project's method: learn what each item adds here, show what probably helps, try what might, let outside advice earn trust.

advantage credit r - p0(x) with p0 from memory-off choices; one model of which items transfer, shared by all, sharpened by
local outcomes; Thompson selection against showing nothing; candidates from outside on probation; every act reversible.
`without` leaves one part out: "baseline" (credit is the reward itself), "measuring" (the baseline is a constant), "local",
"shared" and "attribution" of the valuer, "posterior", "coherence" and "exploration" of the selector, "retrieval" (the newest
instead of the most similar), "failures" of the writer, "gate", "maintenance". The keyer and the presenter are those of ExpRAG.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.policy.admission import Trust, admit_all
from keepworth.memory.policy.advantage import AdvantageSettings, AdvantageValuer
from keepworth.memory.policy.maintainers import Crowd, MergeDuplicates, Probation, RetireHarmful, Room
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.retrievers import MostRecent, WithProbation
from keepworth.memory.policy.selectors import Thompson, seeing_the_episode
from keepworth.memory.policy.slots import Maintainer, Policy, whole
from keepworth.memory.policy.writers import RawCases

SUMMARY = "advantage credit, shared and local item values, Thompson selection, probation for outside advice"
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


def advantage(
    *,
    seed: int = 0,
    k: int = 4,
    without: str = "",
    settings: AdvantageSettings = SETTINGS,
    selection: Thompson = SELECTION,
    pool: int = 12,
    threshold: float = 0.1,
    failures: bool = True,
    here: str = "among",
    recent: int = 12,
    capacity: int = 400,
    admission: Mapping[str, Any] | None = None,
) -> Policy:
    if without and without not in PARTS:
        raise InvalidPolicy(f"there is no part {without!r} to leave out.", f"Parts: {', '.join(PARTS)}.")
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
    method = Policy(
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
    return seeing_the_episode(method, here, recent)


def from_flat(name: str, flat: Mapping[str, Any], *, seed: int = 0) -> Policy:
    """`advantage` or `advantage-without-PART` from one flat mapping over the fields of its settings, its selection and itself."""
    valuation = {field.name for field in fields(AdvantageSettings)}
    choice = {field.name for field in fields(Thompson)}
    trust = {field.name for field in fields(Probation) if not field.name.startswith("_")} - {"keep", "noise"}
    if "likeness" in flat:
        raise InvalidPolicy(
            "advantage has no setting 'likeness': it is called 'similarity'.", "Rename it where it is written."
        )
    rest = {key: value for key, value in flat.items() if key not in valuation | choice | trust}
    return advantage(
        seed=seed,
        without=name.removeprefix("advantage").removeprefix("-without-"),
        settings=replace(SETTINGS, **{key: value for key, value in flat.items() if key in valuation}),
        selection=replace(SELECTION, **{key: value for key, value in flat.items() if key in choice}),
        admission={key: value for key, value in flat.items() if key in trust},
        **rest,
    )
