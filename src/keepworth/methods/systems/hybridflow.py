"""HybridFlow (verl): one controller runs the loop and calls groups of workers."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="hybridflow",
    title="HybridFlow (verl)",
    paper="arXiv 2409.19256",
    about="One controller runs the loop and calls groups of workers",
    claim="Throughput is 1.53 to 20.57 times that of the stacks of 2024.",
    label="small",
    make=PaperSystem(
        here="One loop, with rollout workers and several learners as processes of one machine or a Ray cluster.",
        command="keepworth train strings --set workers=2 --set learners=2",
    ),
)
