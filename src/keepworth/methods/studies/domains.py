"""Measures transfer between domains: the weights of each run are tested on the questions of all runs.

`keepworth eval run strings arithmetic --diagnose domains` tests the weights of every run, and the model that all began from, on
the test questions of every run, by tier where a recipe has several. The rows "A minus base on B" are the matrix of "Can One
Domain Help Others? A Data-Centric Study on Multi-Domain Reasoning via Reinforcement Learning", arXiv 2507.17512; where A is B, it
is the gain on the trained domain. Runs with the same questions are one domain, with the name of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, rows_of, wrap_names
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun
    from keepworth.records.episode import Task

BASE = "base"


@dataclass(frozen=True)
class Domain:
    """Questions of one tier of a run. asked: by set. clusters: the cluster of each question."""

    run: FinishedRun
    asked: Mapping[str, Sequence[Task]]
    clusters: Sequence[str]


def diagnose(
    runs: Sequence[FinishedRun], *, questions: int = 32, samples: int = 4, right: float = 0.5, seed: int = 0
) -> Rows:
    """Returns the share of right answers of every run on every run's test questions, and the gain over the model before.

    Args:
        runs: Two or more, which began from one model.
        questions: Limit for each tier of each run's test questions.
        samples: Answers to each.
        right: The least reward of a right answer.
        seed: Seed of the draws.
    """
    from keepworth.methods.studies._finished_runs import rewards_of

    names = [run.name for run in runs]
    if len(set(names)) < max(2, len(names)) or samples < 1 or questions < 3:
        raise KeepworthError(
            f"{', '.join(names)}, questions={questions}, samples={samples}: the matrix is of two runs or more with different "
            "names, 3 questions or more, and 1 sample or more.",
            f"Write keepworth eval run {names[0]} OTHER --diagnose domains",
        )
    if len(bases := {run.base for run in runs}) > 1:
        raise KeepworthError(
            f"the runs began from several models: {', '.join(sorted(bases))}.", "Name runs that began from one model."
        )
    domains = _domains_of(runs, questions, seed)
    shares: dict[tuple[str, str], list[float]] = {}
    for who in (None, *runs):
        model = runs[0].before() if who is None else who.weights()
        for name, domain in domains.items():
            rewards = rewards_of(domain.run, model, domain.asked, samples, seed)
            by_question = [sum(value >= right for value in of_one) / samples for of_one in rewards]
            shares[who.name if who else BASE, name] = by_question
        del model
    rows: Rows = []
    transfer: dict[bool, tuple[list[float], list[str]]] = {True: ([], []), False: ([], [])}
    for name, domain in domains.items():
        arms = {who: shares[who, name] for who in (BASE, *names)}
        gaps = differences(arms, [(who, BASE) for who in names], domain.clusters)
        rows += wrap_names(rows_of(arms, domain.clusters) + gaps, after=f" on {name}")
        for run in runs:
            gains, clusters = transfer[run.asked == domain.run.asked]
            gains.extend(np.subtract(arms[run.name], arms[BASE]).tolist())
            clusters.extend(domain.clusters)
    for where, (gains, clusters) in zip(("where it was trained", "elsewhere"), transfer.values(), strict=True):
        rows += rows_of({f"gain {where}": gains}, clusters, (-1.0, 1.0)) if gains else []
    return rows


def _domains_of(runs: Sequence[FinishedRun], questions: int, seed: int) -> dict[str, Domain]:
    """Returns the domains of the runs, split by tier where there are several, under the name of the first run that has them."""
    from keepworth.methods.studies._finished_runs import clusters_of, questions_by_tier

    domains: dict[str, Domain] = {}
    first_with = {run.asked: run for run in reversed(runs)}
    for run in runs:
        if first_with[run.asked] is not run:
            continue
        tiers = questions_by_tier(run, questions, seed, trained=False)
        for tier, asked in tiers.items():
            clusters = [f"{run.name}/{cluster}" for cluster in clusters_of(run, asked)]
            domains[f"{run.name}, {tier}" if len(tiers) > 1 else run.name] = Domain(run, asked, clusters)
    return domains


METHOD = Method(
    kind="study",
    name="domains",
    title="Cross-domain matrix",
    paper="arXiv 2507.17512",
    about="Tests the weights of each run on the questions of all runs: what carries over, and what is lost",
    claim="Reinforcement in one domain may help or harm in another; which it does depends on the pair.",
    differs="The domains are recipes of small tasks, where the paper has mathematics, code and puzzles.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(None, "share of answers that are right", diagnose),
    extra="train",
)
