"""REMEMBERER (arXiv 2306.07929): a table of action values per goal and observation, shown as good and bad examples.

m = 2 records, lambda = 0.5, gamma = 1 and alpha = 1/N as in the released code. Differences: similarity of both parts is the
cosine (the paper writes one table per environment); discouraged actions are those with a value at or below min(0, mean),
where the code takes values of exactly 0; no random action is made up where a list would be empty.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.kernel_values import ExperienceTable
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import EncouragedDiscouraged
from keepworth.memory.policy.retrievers import GoalAndObservation
from keepworth.memory.policy.selectors import AllRetrieved
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import Unvalued

SUMMARY = "a table of n-step action values per goal and observation, shown as encouraged and discouraged actions"


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
