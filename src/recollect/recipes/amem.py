"""A-MEM (arXiv 2502.12110): notes with keywords, tags and context, linked to their neighbours and revised by them.

k = 5 neighbours at writing as in the released code; 10 notes are read in the paper, here as many as the prompt budget
allows. Rule forms of the two model calls; `recollect.memory.policy.prompts` has the model forms. It has no reward signal.
"""

from __future__ import annotations

from recollect.memory.policy.gates import admit_all
from recollect.memory.policy.keyers import whole
from recollect.memory.policy.maintainers import Capacity, LinkAndEvolve
from recollect.memory.policy.presenters import Exemplars
from recollect.memory.policy.retrievers import WithLinked
from recollect.memory.policy.selectors import AllRetrieved
from recollect.memory.policy.slots import Method
from recollect.memory.policy.values import Unvalued
from recollect.memory.policy.writers import Notes

SUMMARY = "self-organising notes: keywords, tags, links to neighbours, neighbours revised"


def amem(
    *,
    seed: int = 0,
    k: int = 4,
    link_above: float = 0.6,
    evolve_above: float = 0.75,
    failures: bool = True,
    steps: bool = False,
) -> Method:
    return Method(
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
