"""AEPO: deviations by type of task; negative episodes are left out while the entropy is high."""

from __future__ import annotations

from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import EntropyGate, Outcome, TaskStd
from keepworth.learning.objective.presets import Citation, preset_method

METHOD = preset_method(
    "AEPO",
    "Normalises rewards by type of task, and leaves failed episodes out while the entropy is high",
    Objective(
        name="aepo",
        advantage=Outcome("group", TaskStd()),
        denominator="kept",
        negatives=EntropyGate(0.15, 0.25),
    ),
    Citation(
        "QwenLong-L1.5: Post-Training Recipe for Long-Context Reasoning and Memory Management",
        "2512.12967",
        "text",
        (
            "the numbers of the EntropyGate: not published, read off the plotted range; set them from a warm-up run",
            "that it must run strictly on-policy, as it does here",
            "a released snippet filters between the thresholds; the hysteresis of the text is implemented",
        ),
        "Masked episodes leave the denominator too, or the step would shrink when the gate closes.",
        "Batch.task_type; the batch entropy handed to `advanced` once per update",
    ),
    claim="It gains 9.9 points over its base on long-context suites.",
)
