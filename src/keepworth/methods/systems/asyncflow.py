"""AsyncFlow: streams experience through a table whose columns are filled by several tasks."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="asyncflow",
    title="AsyncFlow",
    paper="arXiv 2507.01663",
    about="Streams experience through a table whose columns are filled by several tasks",
    claim="Throughput is 1.59 times that of leading baselines on average, at most 2.03.",
    label="small",
    make=PaperSystem(
        here="A journal of finished groups, from which a killed run goes on; no table of columns, no deferred update.",
        command="keepworth train strings --set sampling=turns",
    ),
)
