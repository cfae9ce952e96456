"""A-MEM (arXiv 2502.12110): notes with keywords, tags and context, linked to their neighbours and revised by them.

k = 5 neighbours at writing as in the released code; 10 notes are read in the paper, here as many as the prompt budget
allows. Rule forms of the two model calls; `keepworth.memory.policy.prompts` has the model forms. It has no reward signal.
"""

from __future__ import annotations

from keepworth.memory.policy.gates import admit_all
from keepworth.memory.policy.keyers import whole
from keepworth.memory.policy.maintainers import Capacity, LinkAndEvolve
from keepworth.memory.policy.presenters import Exemplars
from keepworth.memory.policy.retrievers import WithLinked
from keepworth.memory.policy.selectors import AllRetrieved
from keepworth.memory.policy.slots import Policy
from keepworth.memory.policy.values import Unvalued
from keepworth.memory.policy.writers import Notes

SUMMARY = "self-organising notes: keywords, tags, links to neighbours, neighbours revised"


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
