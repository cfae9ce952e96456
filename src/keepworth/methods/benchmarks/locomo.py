"""LoCoMo: questions about ten very long conversations of two people; `tasks.locomo` reads them."""

from __future__ import annotations

from keepworth.registry import Method
from keepworth.tasks.benchmark import Benchmark
from keepworth.tasks.locomo import locomo

METHODS = (
    Method(
        kind="benchmark",
        name="locomo",
        title="LoCoMo",
        paper="arXiv 2402.17753",
        about="questions about ten very long conversations of two people",
        make=Benchmark("locomo", locomo, licence="CC BY-NC 4.0", fields=({"qa", "conversation"},)),
    ),
    Method(
        kind="benchmark",
        name="locomo-corrected",
        title="LoCoMo, corrected",
        paper="arXiv 2402.17753",
        about="the same with the answer key corrected by an audit",
        differs="the answer key of an audit in place of the published one",
        make=Benchmark("locomo-corrected", locomo, licence="CC BY-NC 4.0", dials={"corrected": True}),
    ),
)
