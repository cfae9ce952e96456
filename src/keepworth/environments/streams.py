"""Every stream by name. Generators and their parameters stand here before anything is compared on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from keepworth.environments import cards, corridor, events, keys, rules, workshop
from keepworth.environments.scene import Stream
from keepworth.episodes.errors import KeepworthError, UnknownName

Parameters = (
    rules.RuleStream
    | corridor.CorridorStream
    | cards.CardStream
    | keys.KeyStream
    | events.EventStream
    | workshop.WorkshopStream
)
FAMILIES: dict[str, Parameters] = {
    **rules.FAMILIES,
    **corridor.FAMILIES,
    **cards.FAMILIES,
    **keys.FAMILIES,
    **events.FAMILIES,
    **workshop.FAMILIES,
}
WORLDS = ("banking77", "updates", "household", "house", "science", "alfworld")
"""Streams made of other people's data and worlds."""
NAMES = (*FAMILIES, *WORLDS)
KINDS: dict[str, tuple[str, ...]] = {
    "one-step": (*rules.FAMILIES, "banking77"),
    "several-steps": (*workshop.FAMILIES, "household", "house", "science", "alfworld"),
    "seen-before": (*corridor.FAMILIES, *cards.FAMILIES, *keys.FAMILIES, *events.FAMILIES, "updates"),
}
"""What a memory has to do: answer one question, act several times, or remember what was seen earlier. Settings that are right for
one kind are wrong for another, so they are tuned for each."""


def kind_of(name: str) -> str:
    """The kind of the stream `name`."""
    for kind, names in KINDS.items():
        if name in names:
            return kind
    raise UnknownName("stream", name, NAMES)


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
    if isinstance(parameters, events.EventStream):
        told = parameters if length is None else replace(parameters, length=length)
        return events.generate(told, split=split, seed=seed, order=order)
    if isinstance(parameters, corridor.CorridorStream):
        maze = parameters if length is None else replace(parameters, episodes=length)
        return corridor.generate(maze, split=split, seed=seed, order=order)
    if isinstance(parameters, cards.CardStream):
        deck = parameters if length is None else replace(parameters, episodes=length)
        return cards.generate(deck, split=split, seed=seed, order=order)
    if isinstance(parameters, keys.KeyStream):
        house = parameters if length is None else replace(parameters, episodes=length)
        return keys.generate(house, split=split, seed=seed, order=order)
    shop = parameters if length is None else replace(parameters, episodes=length)
    return workshop.generate(shop, split=split, seed=seed, order=order)


def missing(name: str, data: Path | None = None) -> KeepworthError | None:
    """What keeps the stream `name` from running here, with its fix; None where nothing does.

    Raises UnknownName for a stream that there is not."""
    if name not in NAMES:
        raise UnknownName("stream", name, NAMES)
    if name == "banking77" and data is None:
        return KeepworthError("the stream banking77 needs its data.", "Give the folder with train.csv.gz as --data.")
    lacks = ""
    if name in ("household", "house"):
        from keepworth.environments.household import available

        lacks = available()
    elif name == "science":
        from keepworth.environments.science import available as ready

        lacks = ready()
    elif name == "alfworld":
        from keepworth.environments.alfworld import available as playable

        lacks = playable()
    if lacks:
        return KeepworthError(f"the stream {name} needs {lacks}.", "Install it, or choose a generated stream.")
    return None


def opened(
    name: str,
    *,
    split: str = "dev",
    seed: int = 0,
    order: str = "random",
    length: int | None = None,
    data: Path | None = None,
) -> Stream:
    """The stream `name`, generated or from other people's data and worlds. length: where not the stream's own.

    Errors: UnknownName; KeepworthError where a package, Java or data is missing, naming it and the fix."""
    lacks = missing(name, data)
    if lacks is not None:
        raise lacks
    if name == "household":
        from keepworth.environments.household import household

        return household(split=split, seed=seed, order=order, length=length or 300)
    if name == "house":
        from keepworth.environments.household import ROOMS
        from keepworth.environments.household import household as house

        return house(split=split, seed=seed, order=order, length=length or 120, held_out=30, rooms=ROOMS)
    if name == "science":
        from keepworth.environments.science import science

        return science(split=split, seed=seed, order=order, length=length or 120)
    if name == "alfworld":
        from keepworth.environments.alfworld import alfworld

        return alfworld(split=split, seed=seed, order=order, length=length or 200)
    if name == "updates":
        from keepworth.environments.updates import updates

        return updates(split=split, seed=seed, order=order, length=length)
    if name == "banking77":
        from keepworth.environments.banking import banking

        assert data is not None
        return banking(data, seed=seed, order=order, length=length or 300)
    return generated(name, split=split, seed=seed, order=order, length=length)
