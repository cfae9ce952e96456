"""A memory manager that a run trained decides about each fact of messages: ADD, UPDATE, DELETE or NOOP."""

from __future__ import annotations

from pathlib import Path

from keepworth.memory.policy.slots import Writer
from keepworth.memory.policy.writers import Facts
from keepworth.registry import Method


def trained(*, folder: str | Path, facts: Facts | None = None) -> Writer:
    """The manager of a run.

    Args:
        folder: Of the run.
        facts: What finds the facts; None for the rules.

    Raises:
        MissingExtra: The extra "train" is not installed.
        KeepworthError: The folder holds no manager.
    """
    from keepworth.episodes.extras import require

    require("train", f"The writer {folder}")
    from keepworth.recipes.trained import manager_of

    return manager_of(Path(folder).expanduser(), facts=facts or Facts(updates=False))


METHOD = Method(
    kind="writer",
    name="trained",
    title="Memory manager of a run",
    paper="arXiv 2508.19828",
    about=("Lets a trained manager add, update, delete or ignore each fact; it is named by the folder of its run"),
    tags=("token", "factual", "formation", "evolution"),
    differs="The default writer extracts the facts, where the paper asks a model.",
    extra="train",
    make=trained,
)
