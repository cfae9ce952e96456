"""Measures what a run gained: pass@k by the number of answers and by the similarity of a question to those of training.

`keepworth eval run demo --diagnose pass_at_k` samples several answers to each question from the weights of a run and from the
model that it began from, or from another named run, with the same sampler. pass@k is the share of questions that at least one of
k answers solves. A run that is ahead at k = 1 and overtaken later has sharpened what the other model could do already ("Does
Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?", arXiv 2504.13837).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, wrap_names
from keepworth.methods.studies._passes import compare_passes
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun

BASE = "base"
"""The name of the model that a run began from."""


def diagnose(
    runs: Sequence[FinishedRun], *, samples: int = 32, questions: int = 32, right: float = 0.5, seed: int = 0
) -> Rows:
    """Measures pass@k of two systems, where their curves cross, and what only one solves, by tier of question.

    Args:
        runs: One, compared with the model that it began from; or two that are compared.
        samples: Answers to each question.
        questions: Limit for each tier.
        right: The least reward of a right answer.
        seed: Seed of the draws.
    """
    from keepworth.methods.studies._finished_runs import clusters_of, count_right, questions_by_tier, require_alike

    if samples < 2 or questions < 3:
        raise KeepworthError(
            f"samples={samples}, questions={questions}: there are 2 or more samples, and 3 or more questions.",
            "Write samples=32 and questions=32, say.",
        )
    first, *others = runs
    if len(others) > 1:
        raise KeepworthError(f"of {len(runs)} runs, two are compared.", f"Write keepworth eval run {first.name} OTHER.")
    for other in others:
        require_alike(first, other)
    before = others[0].weights if others else first.before
    models = {first.name: first.weights, others[0].name if others else BASE: before}
    if len(models) < 2:
        raise KeepworthError(f"both sides are called {first.name}.", "Rename the folder of the run.")
    tiers = questions_by_tier(first, questions, seed, trained=True)
    right_counts = count_right(first, models, tiers, samples, right, seed)
    rows: Rows = []
    for tier, sets in tiers.items():
        rows += wrap_names(compare_passes(right_counts[tier], samples, clusters_of(first, sets)), after=f", {tier}")
    return rows


METHOD = Method(
    kind="study",
    name="pass_at_k",
    title="pass@k of a run",
    paper="arXiv 2504.13837",
    about="Says what a run gained: pass@k against the model it began from, and where the curves cross, by tier of question",
    claim="Trained by reinforcement, a model is ahead at k = 1, and the model that it began from is ahead at large k.",
    differs="A 135M model answers from memory; the tiers are instance, template and family of the run's own recipe.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(None, "share of questions, unless said otherwise", diagnose),
    extra="train",
)
