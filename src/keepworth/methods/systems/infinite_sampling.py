"""Infinite Sampling: decodes a large group in few slots."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="infinite-sampling",
    title="Infinite Sampling",
    paper="arXiv 2506.22950",
    about="Decodes a large group in few slots",
    claim="Peak memory falls from 21.55 to 10.64 GB at more than 25 % more throughput.",
    label="small",
    make=PaperSystem(
        here="A group may be decoded in fewer slots than it has members (`slots`).",
        command="keepworth train strings --set sampling=turns --set slots=8",
    ),
)
