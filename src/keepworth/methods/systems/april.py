"""APRIL: starts more answers than needed, and parks the unfinished ones for the next update."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="april",
    title="APRIL",
    paper="arXiv 2509.18521",
    about="Starts more answers than needed, and parks the unfinished ones for the next update",
    claim="Throughput of rollouts rises by 22.5 % on average and at most by 44 %, and accuracy by 2.1 points.",
    label="small",
    make=PaperSystem(
        here="Answers that are unfinished when a batch is full go on after the update.",
        command="keepworth train strings --set sampling=turns --set pipeline_depth=3 --set max_staleness=4",
    ),
)
