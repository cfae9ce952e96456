"""V-Triune, One RL to See Them All: samples bring their format, their verifier and their metrics."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="v-triune",
    title="V-Triune, One RL to See Them All",
    paper="arXiv 2505.18129",
    about="Samples bring their format, their verifier and their metrics",
    claim="One model learns tasks of seeing and of reasoning together (no number checked).",
    label="small",
    make=PaperSystem(
        here="Rewards by sample and metrics by source; no mixed run.",
        command="keepworth train FILE.jsonl",
    ),
)
