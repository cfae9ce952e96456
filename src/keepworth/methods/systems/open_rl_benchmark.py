"""Open RL Benchmark: runs are kept with all their settings and curves, and drawn by command."""

from keepworth.evaluation.paper_system import PaperSystem
from keepworth.registry import Method

METHOD = Method(
    kind="system",
    name="open-rl-benchmark",
    title="Open RL Benchmark",
    paper="arXiv 2402.03046",
    about="Runs are kept with all their settings and curves, and drawn by command",
    claim="It holds more than 25,000 runs (no number checked).",
    label="protocol",
    make=PaperSystem(
        here="A folder for each run with settings, curves, versions and episodes, and trackers by `--track`.",
        command="keepworth report RUN",
    ),
)
