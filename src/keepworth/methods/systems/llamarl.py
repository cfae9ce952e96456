"""LlamaRL: a single controller of executors and channels in native PyTorch."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="llamarl",
    title="LlamaRL",
    paper="arXiv 2505.24034",
    about="A single controller of executors and channels in native PyTorch",
    claim="At 405B it is up to 10.7 times as fast as a synchronous baseline.",
    label="small",
    make=PaperSystem(
        here="The controller of `hybridflow`; weights go through files instead of channels, killed parts begin again.",
        command="keepworth train strings --set workers=2",
    ),
)
