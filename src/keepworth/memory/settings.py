"""The rarer settings of a memory, and the check of all that it is opened with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypedDict

from keepworth.memory.by_name import DEFAULT, settings_of
from keepworth.memory.errors import InvalidFilter, UnknownOption, unknown_option
from keepworth.memory.item import Clock, now
from keepworth.memory.scan import Scan
from keepworth.memory.search.stages import Stage
from keepworth.memory.signals import find_signal
from keepworth.records.model import EncoderIdentity

if TYPE_CHECKING:
    from keepworth.memory.choose.slots import Policy
    from keepworth.memory.model_signals import ModelSignals

    PolicyLike = str | Policy | Callable[[], Policy] | None


class MemorySettings(TypedDict, total=False):
    """Settings of a memory that are rarely given when it is opened.

    Args:
        durability: "process" survives a killed process, "power" also a power failure (one disk sync per group of writes).
        log: "background" logs every search outside episodes, within a moment after it; "at once" before it returns, for a
            reward or an episode that may go on in another process; "off" none.
        scan: Looks for secrets in all that is written, and says what to do with them; None looks for nothing.
        reward_range: The lowest and the highest reward; others are refused. The file remembers it; a new file has (0, 1).
        clock: Returns the present time as canonical text.
        stages: Functions that change the hits of each search in turn, before the policy chooses among them, or names of them
            (see `keepworth.memory.search.stages.Stage`).
        model_signals: The most times in a day that OPENAI_MODEL behind OPENAI_BASE_URL is asked, in the background, what a user's
            next message says of the answer, where the rules of `signals` do not tell; or a
            `memory.model_signals.ModelSignals` with another model. 0, the default, never.
        exact: True scores all items in each search by meaning; else a memory of some 25,000 items or more begins with a first
            pass by codes of few bits, which names the few hundred items that are scored.
        signals: The names of what may count as an outcome where nobody gives a reward (see `keepworth.memory.signals`); () for
            nothing. All of them if not given.
        replaces: The policy in force so far, which `policy` replaces only as far as rewards prove it to be better; until then
            both choose, each with a share (`Memory.promotion`). A name, a policy, a function that makes one, or None for plain
            search. Not given: `policy` chooses from now on, whatever chose before.
        allowed_loss: What trying the policy may cost in the long run, as a part of the range of rewards at each rewarded search:
            .003, the default, is three rewards in a thousand. At first two are allowed besides.
    """

    durability: str
    log: str
    scan: Scan | None
    reward_range: tuple[float, float] | None
    clock: Clock
    stages: Sequence[Stage | str]
    signals: Collection[str]
    model_signals: ModelSignals | int
    exact: bool
    replaces: PolicyLike
    allowed_loss: float


def check_settings(
    opens: Callable[..., object], settings: MemorySettings, *, encoder: object, seed: int | None, writer: object
) -> None:
    """Raise UnknownOption or InvalidFilter for invalid settings.

    Args:
        opens: The function that was called with them.
        settings: What the caller gave.
        encoder, seed, writer: The other arguments of that function, with which some settings have no effect.
    """
    if unknown := [name for name in settings if name not in MemorySettings.__annotations__]:
        name, options = unknown[0], [*signature(opens).parameters][1:-1]
        if name in settings_of(DEFAULT):
            raise UnknownOption(f"Memory has no option {name}=: give policy=keepworth.policy({DEFAULT!r}, {name}=...)")
        raise unknown_option("Memory", name, [*options, *MemorySettings.__annotations__])
    if isinstance(signals := settings.get("signals", ()), str):
        raise InvalidFilter(f"signals={signals!r:.40} is a text: give a list of names, or () for none")
    for name in signals:
        find_signal(name)
    log = settings.get("log", "background")
    if log not in ("background", "at once", "off"):
        raise InvalidFilter(f"log={log!r} does not exist: use 'background', 'at once' or 'off'")
    if seed is not None and (not isinstance(seed, Integral) or seed < 0):
        raise InvalidFilter(f"seed must be a whole number of at least 0, got {seed!r:.40}")
    loss = settings.get("allowed_loss", 0.0)
    if not isinstance(loss, Real) or not 0.0 <= loss <= 1.0:
        raise InvalidFilter(f"allowed_loss must lie in [0, 1], got {loss!r:.40}: .01 is one point of a hundred")
    if "allowed_loss" in settings and "replaces" not in settings:
        raise InvalidFilter("allowed_loss is what trying a policy may cost: name the policy in force by replaces, too")
    if settings.get("exact", False) not in (True, False):
        raise InvalidFilter(f"exact must be True or False, got {settings['exact']!r:.40}: give one of them")
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
            "make one with keepworth.records.model.EncoderIdentity"
        )
