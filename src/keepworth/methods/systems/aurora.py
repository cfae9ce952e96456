"""Aurora: a drafter learns from the traffic that it serves."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="aurora",
    title="Aurora",
    paper="arXiv 2602.06932",
    about="A drafter learns from the traffic that it serves",
    claim="Serving is 1.25 times as fast as with a good static drafter where traffic drifts.",
    label="small",
    make=PaperSystem(
        here="Decided against: it pays for one conversation at a time alone.",
    ),
)
