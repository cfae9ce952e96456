"""ReMe (arXiv 2512.10696): distilled experiences keyed by when to use them, deleted when they do not pay.

alpha = 5 uses and beta = 0.5 as in the paper; k is 5 there, and is capped by the prompt budget in comparisons.
Template distillation of successes; the model forms (analysis of successes, failures and comparisons, judge, rewriting)
are in `keepworth.memory.policy.prompts`. Retries with reflection cost extra attempts and are off here.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity, DeleteByUtility
from keepworth.memory.policy.presenters import Guidance
from keepworth.memory.policy.retrievers import MostSimilar
from keepworth.memory.policy.selectors import AllRetrieved
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import Counts
from keepworth.memory.policy.writers import Distilled

SUMMARY = "experiences distilled from successes, similarity top-k, deleted after 5 uses with at most half successes"


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
