"""The tables of `objectives.json` in docs/objectives.md."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from benchmarks.tables import DOCS, markdown, read, spread
from keepworth.registry import methods
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import kinds_in, signature

SHOWN = ("all", "stale")
"""Settings that have a table."""


def axes() -> str:
    methods("objective")  # their files declare parts, too
    rows = []
    for axis, field in Objective.model_fields.items():
        inner = [part for kind in kinds_in(field.annotation) for part in (kind, *inside(kind))]
        for number, kind in enumerate(dict.fromkeys(kind for kind in inner if ".recipes." not in kind.__module__)):
            meaning = " ".join(str(inspect.getdoc(kind)).split("\n\n")[0].split()).removesuffix(".")
            rows.append(("" if number else f"`{axis}`", f"`{signature(kind)}`", meaning.replace("|", "\\|")))
    return markdown(("axis", "part", "what it says"), rows, align="---")


def inside(kind: type) -> tuple[type, ...]:
    """The parts that stand in a part."""
    return tuple(part for hint in get_type_hints(kind).values() for part in kinds_in(hint))


def verdict(gap: dict[str, float]) -> str:
    """What the interval of a difference shows; nothing where it holds 0."""
    if gap["low"] > 0:
        return "better"
    return "worse" if gap["high"] < 0 else ""


def table(one: dict[str, Any]) -> str:
    """Of one setting, what it measured."""
    rows = []
    for arm in one["arms"]:
        gap = arm["area_beyond_baseline"]
        base = arm["name"] == one["baseline"]
        rows.append(
            (
                arm["name"],
                f"{np.mean(arm['final']):.2f}",
                f"{np.mean(arm['area']):.2f}",
                "" if base else spread(gap, "+.3f"),
                "baseline" if base else verdict(gap),
            )
        )
    head = ("arm", "reward at the end", "area", "area beyond the baseline, 95 %", "verdict")
    seeds = len(one["arms"][0]["final"])
    lag = f", sampler {one['lag']} updates behind" if one["lag"] else ""
    rank = f", LoRA of rank {one['adapter_rank']}" if one["adapter_rank"] else ", all weights"
    about = (
        f"{one['steps']} updates of {one['passes']} steps, groups of {one['group']}{lag}{rank}, "
        f"{seeds} seeds; revision {one['machine']['revision']}."
    )
    twins = [
        " and ".join((", ".join(f"`{name}`" for name in names[:-1]), f"`{names[-1]}`")) for names in one["coincide"]
    ]
    sentence = f" The same update to the last bit: {'; '.join(twins)}." if twins else ""
    return markdown(head, rows) + "\n\n" + about + sentence


def tables() -> Iterator[tuple[Path, str, str]]:
    settings = read("objectives/objectives")["settings"]
    parts = {"parts": axes(), **{name: table(settings[name]) for name in SHOWN}}
    for name, content in parts.items():
        yield DOCS / "objectives.md", name, content
