"""LongVILA-R1 (MR-SP): shares encoded inputs in a group and divides long sequences over accelerators."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="mr-sp",
    title="LongVILA-R1 (MR-SP)",
    paper="arXiv 2507.07966",
    about="Shares encoded inputs in a group and divides long sequences over accelerators",
    claim="Reinforcement on long videos is up to 2.1 times as fast.",
    label="small",
    make=PaperSystem(
        here="A prompt is read once for its group; sequences are not divided.",
        command="keepworth train strings",
    ),
)
