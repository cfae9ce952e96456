"""What a memory is told when it is opened, and what of that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from numbers import Integral
from typing import TypedDict

from keepworth.episodes.model import EncoderIdentity
from keepworth.memory.by_name import settings_of
from keepworth.memory.errors import InvalidFilter, UnknownOption, unknown_option
from keepworth.memory.item import Clock, now
from keepworth.memory.policy.default import NAME
from keepworth.memory.scan import Scan


class MemorySettings(TypedDict, total=False):
    """What a memory is rarely told when it is opened.

    durability: "process" survives a killed process, "power" a lost machine (one disk sync per group of writes).
    log: "background" logs every search outside episodes, "off" none. scan: what looks for secrets in all that is written, and
    what becomes of an item with one (`keepworth.memory.scan.Scan`); None for nothing. reward_range: rewards outside are refused;
    (0, 1) where it is not given.
    clock: gives the time as canonical text."""

    durability: str
    log: str
    scan: Scan | None
    reward_range: tuple[float, float] | None
    clock: Clock


def check_settings(
    opens: Callable[..., object], settings: MemorySettings, *, encoder: object, seed: int | None, writer: object
) -> None:
    """Raise UnknownOption, InvalidFilter for what cannot be. opens: the function that was called."""
    if unknown := [name for name in settings if name not in MemorySettings.__annotations__]:
        name, options = unknown[0], [*signature(opens).parameters][1:-1]
        if name in settings_of(NAME):
            raise UnknownOption(f"Memory has no option {name}=: give policy=keepworth.policy({NAME!r}, {name}=...)")
        raise unknown_option("Memory", name, [*options, *MemorySettings.__annotations__])
    log = settings.get("log", "background")
    if log not in ("background", "off"):
        raise InvalidFilter(f"log={log!r} does not exist: use 'background' or 'off'")
    if seed is not None and (not isinstance(seed, Integral) or seed < 0):
        raise InvalidFilter(f"seed must be a whole number of at least 0, got {seed!r:.40}")
    for name, function in (("clock", settings.get("clock", now)), ("writer", writer)):
        if not callable(function):
            raise InvalidFilter(f"{name} must be a function, got {function!r:.40}")
    if encoder is None or isinstance(encoder, str):
        return
    if not (hasattr(encoder, "identity") and hasattr(encoder, "encode")):
        raise InvalidFilter(
            f"encoder must be a name, something with `identity` and `encode`, or None, got {encoder!r:.40}"
        )
    if not isinstance(encoder.identity, EncoderIdentity):
        raise InvalidFilter(
            f"the encoder's identity must be an EncoderIdentity(model, dimension, normalised), got {encoder.identity!r:.40}: "
            "make one with keepworth.episodes.model.EncoderIdentity"
        )
