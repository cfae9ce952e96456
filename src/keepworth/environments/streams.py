"""Every stream by name. Generators and their parameters stand here before anything is compared on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.environments import alfworld, data_sets, household, science, seen_before
from keepworth.environments import generated as generators
from keepworth.environments.dials import dialled, parsed
from keepworth.environments.scene import Stream
from keepworth.episodes.errors import KeepworthError, UnknownName

SEEN_BEFORE = ("t-maze", "repeat-previous", "key-door", "events")
_GENERATORS: Mapping[str, tuple[Callable[..., Stream], Any]] = {
    **{name: (generators.hidden_rules, parameters) for name, parameters in generators.FAMILIES.items()},
    "t-maze": (seen_before.corridors, seen_before.CorridorStream()),
    "repeat-previous": (seen_before.cards, seen_before.CardStream()),
    "key-door": (seen_before.keys, seen_before.KeyStream()),
    "events": (seen_before.events, seen_before.EventStream()),
    "tool-graph": (generators.tool_graph, generators.WorkshopStream()),
}
FAMILIES = tuple(_GENERATORS)
_WORLDS: Mapping[str, tuple[Callable[..., Stream], Mapping[str, Any], Callable[[], str]]] = {
    "updates": (data_sets.updates, {"length": None}, str),
    "household": (household.household, {"length": 300}, household.available),
    "house": (household.household, {"length": 120, "held_out": 30, "rooms": household.ROOMS}, household.available),
    "science": (science.science, {"length": 120}, science.available),
    "alfworld": (alfworld.alfworld, {"length": 200}, alfworld.available),
}
"""(what opens it, its own settings, what says what is missing)"""
WORLDS = (*data_sets.LABELLED, *_WORLDS)
"""Streams made of other people's data and worlds."""
NAMES = (*FAMILIES, *WORLDS)
KINDS: dict[str, tuple[str, ...]] = {
    "one-step": (*generators.FAMILIES, *data_sets.LABELLED),
    "several-steps": ("tool-graph", "household", "house", "science", "alfworld"),
    "seen-before": (*SEEN_BEFORE, "updates"),
}
"""What a memory has to do: answer one question, act several times, or remember what was seen earlier. Settings that are right for
one kind are wrong for another, so they are tuned for each."""

KIND_NAMES = {
    "one-step": "one decision a task",
    "several-steps": "several decisions a task",
    "seen-before": "something seen earlier has to be remembered",
}
_ABOUT = {
    "benign": "rules over words; tasks of one rule look alike, and nothing else is hard",
    "similarity-mid": "as benign, but tasks of one rule look half as alike",
    "similarity-low": "as benign, but tasks of one rule hardly look alike",
    "near-miss": "tasks that look alike need different answers",
    "near-miss-numbered": "near-miss; every answer ends with a running number",
    "near-miss-framed": "near-miss; every answer is inside another sentence",
    "near-miss-explained": "near-miss; every answer comes with a reason",
    "near-miss-mixed": "near-miss; answers numbered, framed or explained at random",
    "noisy-reward": "a quarter of the rewards are wrong",
    "drift": "half of the rules change on the way",
    "tampered-1": "benign; 1 % of the rewards are wrong",
    "tampered-5": "benign; 5 % of the rewards are wrong",
    "tampered-10": "benign; 10 % of the rewards are wrong",
    "partners": "right records come from other agents, none of them hostile",
    "injection": "as partners, with hostile records among them",
    "partners-late": "as partners; the trigger of an attack comes in the second half",
    "delayed-trigger": "as partners-late, with hostile records that are right until the trigger comes",
    "t-maze": "a sign at the start names the way out; the choice comes at the end",
    "repeat-previous": "say which card was turned some steps ago",
    "key-door": "notes on the way say which key opens which door",
    "events": "reports of who went where, then a question about one of them",
    "tool-graph": "find the chain of tools that gets a job done",
    "updates": "facts that a person corrects later; the question wants the later one (LongMemEval)",
    "household": "put things where they belong, in one room (TextWorld Commonsense)",
    "house": "the same in a house of several rooms",
    "science": "which things conduct, which animals live longest (ScienceWorld)",
    "alfworld": "find a thing in a kitchen, heat, cool or clean it, put it in its place (ALFWorld)",
}
_LABELS = {
    "banking77": "what a customer of a bank wants (BANKING77)",
    "tools": "which function a request needs first (BFCL)",
    "operations": "which operation solves a problem in words (SVAMP)",
    "subjects": "which subject a problem is of (MATH-500)",
    "question-types": "which type a question is of (LongMemEval)",
    "relations": "by which relation the answer is found (2WikiMultiHopQA)",
    "topics": "which topic a question is of (PrefEval)",
    "kinds": "which kind a question about time is of (TimeBench)",
}
_VARIANTS = {
    "clean": "",
    "near-miss": "; labels with texts that are alike",
    "drift": "; half of the labels change half way",
    "noise": "; a tenth of the rewards are wrong",
}
ABOUT: Mapping[str, str] = {
    **_ABOUT,
    **{name: f"{_LABELS[of]}{_VARIANTS[variant]}" for name, (of, variant) in data_sets.LABELLED.items()},
}
"""What each stream is, in one line."""


def kind_of(name: str) -> str:
    """The kind of the stream `name`, which its dials leave as it is."""
    name = name.partition("~")[0]
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
    generate, parameters = _GENERATORS[family]
    if length is not None:
        tasks = "episodes" if hasattr(parameters, "episodes") else "length"
        parameters = replace(parameters, **{tasks: length})
    return generate(parameters, split=split, seed=seed, order=order)


def missing(name: str, data: Path | None = None) -> KeepworthError | None:
    """What keeps the stream `name` from running here, with its fix; None where nothing does.

    Raises UnknownName for a stream or a dial that there is not, and KeepworthError for a dial out of range."""
    name, _, dials = name.partition("~")
    if dials:
        parsed(dials, length=2)
    if name not in NAMES:
        raise UnknownName("stream", name, NAMES)
    if name in data_sets.LABELLED and data is None:
        folder = data_sets.LABEL_SETS[data_sets.LABELLED[name][0]].folder
        if folder:
            return KeepworthError(f"the stream {name} needs its data.", f"Give {folder}, or what holds it, as --data.")
    lacks = _WORLDS[name][2]() if name in _WORLDS else ""
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

    NAME~swap, NAME~hidden=0.5~event ... is that stream under dials of chance (`keepworth.environments.dials`).
    Errors: UnknownName; KeepworthError where a package, Java or data is missing, naming it and the fix."""
    lacks = missing(name, data)
    if lacks is not None:
        raise lacks
    plain, _, dials = name.partition("~")
    if dials:
        stream = opened(plain, split=split, seed=seed, order=order, length=length, data=data)
        return replace(dialled(stream, parsed(dials, len(stream.tasks))), family=name)
    if name in data_sets.LABELLED:
        of, variant = data_sets.LABELLED[name]
        return data_sets.labelled(of, data, variant=variant, split=split, seed=seed, order=order, length=length)
    if name in _WORLDS:
        open_world, settings, _ = _WORLDS[name]
        own = {**settings, "length": length or settings["length"]}
        return open_world(split=split, seed=seed, order=order, **own)
    return generated(name, split=split, seed=seed, order=order, length=length)
