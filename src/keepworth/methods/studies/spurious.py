"""Measures whether true rewards taught a run more than random ones: the control of "Spurious Rewards: Rethinking Training Signals
in RLVR", arXiv 2506.10947.

`keepworth eval run mine coins --diagnose spurious` asks the same questions of a run, of another one that was trained in the same
way with `--set 'objective.advantage=Spurious(0.5)'`, and of the model that both began from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, differences, rows_of, wrap_names
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.evaluation.finished_runs import FinishedRun

BASE = "base"


def diagnose(
    runs: Sequence[FinishedRun], *, samples: int = 8, questions: int = 32, right: float = 0.5, seed: int = 0
) -> Rows:
    """Returns the share of right answers of a run, of one with random rewards, and of the model before, by tier of question.

    Args:
        runs: Two, one of which was trained on random rewards.
        samples: Answers to each question.
        questions: Limit for each tier.
        right: The least reward of a right answer.
        seed: Seed of the draws.
    """
    from keepworth.methods.studies._finished_runs import clusters_of, count_right, questions_by_tier, require_alike

    by_coins = [run for run in runs if is_spurious(run)]
    by_rewards = [run for run in runs if not is_spurious(run)]
    if len(by_coins) != 1 or len(by_rewards) != 1:
        first = by_rewards[0].name if by_rewards else "RUN"
        raise KeepworthError(
            f"of {', '.join(run.name for run in runs)}, {len(by_coins)} had coins for rewards; it needs one such run beside "
            "another.",
            f"Train one as {first} was, with --set 'objective.advantage=Spurious(0.5)' --name coins; then write "
            f"keepworth eval run {first} coins --diagnose spurious",
        )
    (mine,), (coins,) = by_rewards, by_coins
    require_alike(mine, coins)
    tiers = questions_by_tier(mine, questions, seed, trained=True)
    models = {mine.name: mine.weights, coins.name: coins.weights, BASE: mine.before}
    right_counts = count_right(mine, models, tiers, samples, right, seed)
    rows: Rows = []
    for tier, sets in tiers.items():
        clusters = clusters_of(mine, sets)
        shares = {name: [count / samples for count in counts] for name, counts in right_counts[tier].items()}
        pairs = [(mine.name, coins.name), (mine.name, BASE), (coins.name, BASE)]
        rows += wrap_names(rows_of(shares, clusters) + differences(shares, pairs, clusters), after=f", {tier}")
    return rows


def is_spurious(run: FinishedRun) -> bool:
    """Returns whether a run's objective has random rewards: the preset `spurious`, or `Spurious(...)` as an advantage."""
    return "spurious" in str(run.folder.config.get("objective", "")).lower()


METHOD = Method(
    kind="study",
    name="spurious",
    title="Spurious rewards, as a diagnostic",
    paper="arXiv 2506.10947",
    about="Says what true rewards taught a run beyond what the same training on coins did, by tier of question",
    claim="Random rewards raise a model's score where it leans that way already (Qwen2.5-Math), and no other model's.",
    differs="It is asked of runs of one's own; the evidence is of a tiny network.",
    tags=("parametric", "factual", "formation"),
    label="protocol",
    make=Study(None, "share of answers that are right", diagnose),
    extra="train",
)
