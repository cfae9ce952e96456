"""The default policy: the search's order, corrected by what rewards say. It is part of the memory itself."""

from __future__ import annotations

from keepworth.memory.policy.default import default
from keepworth.registry import Method

METHOD = Method(
    kind="policy",
    name="default",
    title="The default policy",
    about="the search's order, corrected by what rewards say (ours)",
    claim="Of two notes the better comes first within ten rewards; where rewards say nothing, nothing is lost.",
    differs="Not published: this project's own.",
    make=default,
)
