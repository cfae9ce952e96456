"""Finds encoders, policies, writers and stages by name. They are looked up in the registry, so that nothing in `keepworth.memory`
imports a model or a method."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from keepworth import registry
from keepworth.base.errors import UnknownEncoder, UnknownName
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.ready_slots import seeing_the_episode
from keepworth.memory.choose.slots import Policy, Writer
from keepworth.memory.errors import EncoderMismatch, InvalidFilter, InvalidPolicy, UnknownPolicy
from keepworth.memory.search.stages import NamedStage
from keepworth.records.model import Encoder, EncoderIdentity

DEFAULT = "default"
"""The name of the policy of a memory that is opened without one."""
EPISODE_SETTINGS = ("here", "recent")
"""Settings of `seeing_the_episode`. Every policy takes them that stores cases and retrieves them itself."""


def encoder(name: str, on_file: EncoderIdentity | None = None) -> Encoder:
    """Return the encoder called `name`.

    Args:
        on_file: The identity of the encoder that made the vectors of a memory. If given, that encoder is opened instead.

    Raises:
        EncoderMismatch: No encoder of this package has that identity.
    """
    if on_file is None:
        made: Encoder = registry.part("encoder")(name)
        return made
    if on_file.model == "hashed-words":
        return HashedWords(on_file.dimension)
    try:
        made = registry.part("encoder of vectors")(on_file)
    except UnknownEncoder as error:
        raise EncoderMismatch(error.message, error.fix) from error
    return made


def policy(name: str = DEFAULT, **settings: Any) -> Policy:
    """Make a policy by name, with its settings: `policy("default", withhold=0.05)`.

    Args:
        settings: Those that the method's `make` takes. A policy that stores cases and retrieves them itself also takes `here`
            and `recent` of `seeing_the_episode`.

    Raises:
        UnknownPolicy: There is no policy with this name.
        InvalidPolicy: A setting does not exist, or makes no sense.
    """
    make = _maker(name)
    taken = signature(make).parameters
    around = {key: settings.pop(key) for key in EPISODE_SETTINGS if key in settings and key not in taken}
    for setting, value in settings.items():
        if setting not in taken:
            unknown = UnknownName("setting", setting, (*taken, *EPISODE_SETTINGS), f"policy {name!r}")
            raise InvalidPolicy(unknown.message, unknown.fix)
        if fix := _number_problem(value, taken[setting]):
            raise InvalidPolicy(f"{setting} of policy {name!r} is {value!r:.40}.", fix)
    made = make(**settings)
    if made.keeps and made.retriever is not None:
        return seeing_the_episode(made, **around)
    if around:
        raise InvalidPolicy(f"policy {name!r} keeps no cases, so {next(iter(around))} has no effect.", "Leave it out.")
    return made


def _number_problem(value: object, setting: Parameter) -> str:
    """Return what to give instead of a value that is no number where a setting takes one, or ""."""
    if setting.annotation in ("float", float) and not (isinstance(value, Real) and math.isfinite(value)):
        return "Give a finite number."
    least = min(1, setting.default) if isinstance(setting.default, int) else 1
    if setting.annotation in ("int", int) and not (isinstance(value, Integral) and int(value) >= least):
        return f"Give a whole number of at least {least}."
    return ""


FORMER = dict.fromkeys(("effect", "advantage"), "The default policy has learned to do what it did, from the same log")
"""Names of policies that no longer exist, and what replaces them."""


def policies() -> tuple[str, ...]:
    """Return the names of all policies, the default one first."""
    return tuple(dict.fromkeys((DEFAULT, *registry.methods("policy"))))


def policies_of_cases() -> tuple[str, ...]:
    """Return the names of the policies that store what happened in episodes as cases."""
    return tuple(name for name in policies() if policy(name).keeps)


def settings_of(name: str) -> frozenset[str]:
    """Return the names of a policy's settings. Raises UnknownPolicy."""
    return frozenset(signature(_maker(name)).parameters)


def seeded(name: str, seed: int, **settings: Any) -> Policy:
    """Make a policy for a run with a seed.

    Args:
        name: The name of the policy.
        seed: The seed, which is passed on only if the policy takes one: some draw nothing at random.
        **settings: Further settings of the policy.
    """
    if "seed" in settings_of(name):
        settings["seed"] = seed
    return policy(name, **settings)


def writer(name: str) -> Writer:
    """Return the writer, which decides what to keep of messages, by name.

    Args:
        name: "statements", which keeps what people state as notes; "default", which is that, and facts by a chat model beside
            it if OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL are all set; "model", the facts by that model alone; "rules",
            facts by rules alone; another writer of the registry; or the folder of a run that trained a memory manager, or of
            its export: the manager decides about each fact that the model, or else the rules, find.

    Raises:
        UnknownName: There is no writer with this name, and no such folder.
        KeepworthError: The model is not configured, the folder holds no manager, or the writer needs settings.
    """
    if name == "default":
        made: Writer = registry.part("notes of statements")(facts=writer("model") if _chat_is_configured() else None)
        return made
    if name == "rules":
        rules: Writer = registry.part("facts by rules")()
        return rules
    try:
        make: Callable[..., Any] | None = registry.method("writer", name).make
    except UnknownName:
        make = None
    if make is not None:
        needed = [p.name for p in signature(make).parameters.values() if p.default is p.empty]
        if needed:
            raise InvalidPolicy(
                f"the writer {name!r} needs {', '.join(needed)}, which a name does not say.",
                f'Give the writer itself: writer=keepworth.registry.method("writer", {name!r}).make(...).',
            )
        made = make()
        assert callable(made)
        return made
    if not name.strip() or not Path(name).expanduser().is_dir():
        unknown = UnknownName("writer", name, ("default", *registry.methods("writer")))
        unknown.fix += " The folder of a run that trained a manager works too."
        raise unknown
    facts: Any = writer("model" if _chat_is_configured() else "rules")
    made = registry.method("writer", "trained").make(folder=name, facts=replace(facts, updates=False))
    assert callable(made)
    return made


def stages(chosen: object) -> tuple[NamedStage, ...]:
    """Return stages, each of which is a function or the name of one.

    Raises:
        UnknownName: There is no stage with this name.
        InvalidFilter: One is neither, or they are no sequence.
    """
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise InvalidFilter(f"stages takes several, got {chosen!r:.60}: give a list such as [{'my_stage'!r}]")
    named = list[NamedStage]()
    for stage in chosen:
        if isinstance(stage, str):
            declared = registry.method("stage", stage)
            named.append(NamedStage(declared.name, declared.make()))
        elif callable(stage):
            named.append(NamedStage(getattr(stage, "__name__", type(stage).__name__), stage))
        else:
            raise InvalidFilter(f"a stage must be a function (request, hits) -> hits, got {stage!r:.60}")
    return tuple(named)


def _chat_is_configured() -> bool:
    return all(os.environ.get(f"OPENAI_{part}") for part in ("BASE_URL", "API_KEY", "MODEL"))


def _maker(name: str) -> Callable[..., Policy]:
    try:
        return registry.method("policy", name).make
    except UnknownName as error:
        unknown = UnknownPolicy("policy", name, policies())
        if name in FORMER:
            unknown.fix = f"{FORMER[name]}: open the memory without policy=."
        if failed := registry.not_loaded():
            unknown.fix += f" {failed}"
        raise unknown from error


def policy_maker(
    given: str | Policy | Callable[[], Policy], setting: str = "policy"
) -> tuple[Callable[[], Policy], str]:
    """Return a function that makes a policy, which is given by its name, as itself or as such a function, and its name. Raises
    InvalidPolicy, which names the setting."""
    if isinstance(given, str):
        _maker(given)  # raises UnknownPolicy
        return partial(policy, given), registry.method("policy", given).name
    if isinstance(given, Policy):
        return partial(deepcopy, given), given.name  # every memory that is opened learns in its own copy
    if not callable(given):
        raise InvalidPolicy(
            f"{setting} is {given!r:.60}.", "Give a name, a policy, a function that makes one, or None."
        )
    made = _make_policy(given)
    if _make_policy(given) is made:
        raise InvalidPolicy(
            f"what should make policy {made.name!r} gave the same policy twice, which would learn each reward again and again.",
            "Let it make a fresh one at each call, or give the policy itself.",
        )
    return partial(_make_policy, given), made.name


def _make_policy(make: Callable[[], Policy]) -> Policy:
    policy = make()
    if not isinstance(policy, Policy):
        raise InvalidPolicy(f"what should make the policy gave {policy!r:.60}.", "Give a function that makes a policy.")
    return policy
