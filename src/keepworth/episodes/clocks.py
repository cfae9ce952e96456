"""Whether the clock of another machine says what ours says."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import timedelta

APART = 10.0
"""Seconds by which clocks may differ. Those that a time service sets differ by thousandths."""


class ClockDiffers(UserWarning):
    """Two machines that write times of one record have different times."""


def compared(ask: Callable[[], float], whose: str, why: str) -> None:
    """Warn with ClockDiffers where the clock that `ask` reads, in seconds since 1970, is surely more than APART off ours.

    The other clock was read at some moment of the journey, however long that took, so a slow answer is no difference. whose: the
    other machine; why: what goes wrong."""
    before = time.time()
    there = ask()
    warn(before, there, time.time(), whose, why)


def warn(before: float, there: float, after: float, whose: str, why: str) -> None:
    """As `compared`, of a clock that was read between `before` and `after` of ours."""
    ahead, behind = there - after, before - there
    if max(ahead, behind) > APART:
        off = timedelta(seconds=round(max(ahead, behind)))
        warnings.warn(
            f"the clock of {whose} is {off} {'ahead of' if ahead > behind else 'behind'} this machine's: {why}. "
            "Let a time service (NTP) set both.",
            ClockDiffers,
            stacklevel=3,
        )
