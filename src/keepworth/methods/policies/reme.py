"""ReMe: distilled experiences with counts, deleted when they do not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.episodes.text import as_line
from keepworth.memory.item import Item
from keepworth.memory.policy.admission import admit_all
from keepworth.memory.policy.maintainers import Capacity, DeleteByUtility
from keepworth.memory.policy.presenters import combined_advice
from keepworth.memory.policy.retrievers import MostSimilar
from keepworth.memory.policy.selectors import AllRetrieved
from keepworth.memory.policy.slots import Policy, Presented, Query, whole
from keepworth.memory.policy.valuers import Counts
from keepworth.methods.writers.distilled import Distilled
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Guidance:
    """ReMe's guidance, template form: what the experiences say, without the episodes behind them."""

    def __call__(self, items: list[Item], query: Query, similarities: Sequence[float]) -> Presented:
        if not items:
            return Presented("")
        lines = ["Guidance from experience:", *(f"- {as_line(item.text)}" for item in items)]
        return Presented("\n".join(lines), combined_advice(items, query, similarities))


def reme(
    *, seed: int = 0, k: int = 4, least: int = 5, share: float = 0.5, alike: float = 0.98, steps: bool = False
) -> Policy:
    """ReMe.

    Args:
        least: Uses after which an experience may be deleted.
        share: Share of successes at or below which it is.
        alike: Cosine of keys above which an experience with the same advice is not written again.
    """
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


METHOD = Method(
    kind="policy",
    name="reme",
    title="ReMe",
    paper="arXiv 2512.10696",
    about="distilled experiences with counts, deleted when they do not pay",
    claim=(
        "Mean of four tries over BFCL-V3 and AppWorld with Qwen3-8B 34.94 %, without memory 27.65 %; with "
        "Qwen3-32B 49.10 % and 40.89 %."
    ),
    differs=(
        "k is 4, where the paper has 5: all memories that are compared show as many. Templates distil "
        "successes; the writer `distilled` asks a model where it is given one. Retries with reflection "
        "cost extra attempts and are left out. alpha = 5 uses and beta = 0.5 as in the paper."
    ),
    make=reme,
)
