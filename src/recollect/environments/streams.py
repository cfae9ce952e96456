"""Every stream by name. Generators and their parameters stand here before anything is compared on them."""

from __future__ import annotations

from dataclasses import replace

from recollect.environments import corridor, rules, workshop
from recollect.environments.scene import Stream
from recollect.episodes.errors import UnknownName

Parameters = rules.RuleStream | corridor.CorridorStream | workshop.WorkshopStream
FAMILIES: dict[str, Parameters] = {**rules.FAMILIES, **corridor.FAMILIES, **workshop.FAMILIES}


def generated(
    family: str, *, split: str = "dev", seed: int = 0, order: str = "random", length: int | None = None
) -> Stream:
    """The generated stream `family`. split: "dev" rules are for tuning, "held-out" rules for the final run.

    length: number of tasks, where not the family's own (300; 100 for tool-graph episodes).
    """
    if family not in FAMILIES:
        raise UnknownName("stream", family, FAMILIES)
    parameters = FAMILIES[family]
    if isinstance(parameters, rules.RuleStream):
        chosen = parameters if length is None else replace(parameters, length=length)
        return rules.generate(chosen, split=split, seed=seed, order=order)
    if isinstance(parameters, corridor.CorridorStream):
        maze = parameters if length is None else replace(parameters, episodes=length)
        return corridor.generate(maze, split=split, seed=seed, order=order)
    shop = parameters if length is None else replace(parameters, episodes=length)
    return workshop.generate(shop, split=split, seed=seed, order=order)
