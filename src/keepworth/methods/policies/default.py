"""The default policy: it takes the order of the search and corrects it by rewards. It is part of the memory itself."""

from keepworth.memory.policy.default import PARTS, default
from keepworth.registry import Method

METHOD = Method(
    kind="policy",
    name="default",
    title="The default policy",
    about="Takes the order of the search and corrects it by what rewards say (ours)",
    tags=("token", "factual", "experiential", "retrieval"),
    claim="The better of two notes comes first within ten rewards, and next to nothing is lost where rewards say nothing.",
    differs="Not published: this project's own.",
    parts=PARTS,
    make=default,
)
