"""SAPO, Sharing is Caring: independent nodes share experience, with its provenance."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="sapo",
    title="SAPO, Sharing is Caring",
    paper="arXiv 2509.08721",
    about="Independent nodes share experience, with its provenance",
    claim="Cumulative reward is up to 94 % higher, with four answers of its own and four of others.",
    label="small",
    make=PaperSystem(
        here="Decided against: the settings `share` and `foreign` were taken out.",
    ),
)
