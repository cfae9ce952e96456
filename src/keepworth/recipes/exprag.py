"""ExpRecent, ExpRAG and ReMem: raw successes, recent or similar, optionally pruned (Evo-Memory, arXiv 2511.20857).

Settings of the paper: k = 4. It embeds with bge-base-en-v1.5; here the encoder is whatever the memory was opened with.
`failures` and `steps` of every recipe are ours: keep failed cases too, and keep every step by its own reward.
ReMem's model decides what to prune; without a model the rule form prunes by similarity, and uses no extra model call.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.retrievers import MostRecent, MostSimilar
from keepworth.memory.policy.selectors import AllRetrieved, Pruned
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import Unvalued
from keepworth.memory.policy.writers import RawCases

SUMMARY = "raw successes: the most recent (ExpRecent), the most similar (ExpRAG), or the similar ones pruned (ReMem)"


def exprecent(*, seed: int = 0, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    return Policy(
        "exprecent",
        whole,
        MostRecent(k),
        Unvalued(),
        AllRetrieved(k),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )


def exprag(*, seed: int = 0, k: int = 4, failures: bool = False, steps: bool = False) -> Policy:
    """failures: also keep and show failed cases, as the paper's separate table does. steps: keep every step by its own reward,
    where the paper keeps whole episodes by theirs: a fairer rival where steps have rewards."""
    return Policy(
        "exprag",
        whole,
        MostSimilar(k),
        Unvalued(),
        AllRetrieved(k),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )


def remem(*, seed: int = 0, k: int = 4, share: float = 0.8, failures: bool = False, steps: bool = False) -> Policy:
    return Policy(
        "remem",
        whole,
        MostSimilar(k),
        Unvalued(),
        Pruned(k, share),
        Exemplars(),
        RawCases(failures, steps),
        admit_all,
        (Capacity(),),
    )
