"""Reasoning Language Model Inference Serving Unveiled: nine observations on serving models that reason."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="serving-unveiled",
    title="Reasoning Language Model Inference Serving Unveiled",
    paper="arXiv 2510.18672",
    about="Nine observations on serving models that reason",
    claim="Memory fluctuates and stragglers appear; 8 bits and kept beginnings cost little accuracy (no number checked).",
    label="protocol",
    make=PaperSystem(
        here="Five of the nine were looked at on the engine of this package.",
        command="keepworth serve smollm2-135m-instruct",
    ),
)
