"""AReaL: sampling never waits for the learner, and staleness is bounded."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="areal",
    title="AReaL",
    paper="arXiv 2505.24298",
    about="Sampling never waits for the learner, and staleness is bounded",
    claim="It is up to 2.57 times as fast as the best synchronous system.",
    label="small",
    make=PaperSystem(
        here="Sampling ahead with a bound on staleness; its objective is `areal`.",
        command="keepworth train strings --set sampling=overlap --set max_staleness=4",
    ),
)
