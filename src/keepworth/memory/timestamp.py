"""Times as text: ISO 8601 in UTC without a suffix, so that text order is time order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from keepworth.memory.errors import InvalidTime

Clock = Callable[[], str]
Timestamp = str | datetime | float | int


def timestamp(value: Timestamp | None) -> str:
    """The canonical text of a time; "" for None or "". Times with an offset are converted to UTC, naive ones are taken as UTC.

    >>> timestamp("2026-01-01"), timestamp("2023-05-20T02:21+02:00")
    ('2026-01-01T00:00:00', '2023-05-20T00:21:00')
    """
    if value is None or value == "":
        return ""
    try:
        if isinstance(value, bool):
            raise TypeError
        if isinstance(value, (int, float)):
            parsed = datetime.fromtimestamp(value, tz=timezone.utc)
        elif isinstance(value, datetime):
            parsed = value
        else:
            # Python 3.10 does not read the suffix Z.
            parsed = datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value)
        if parsed.tzinfo is not None:
            parsed = parsed.astimezone(timezone.utc).replace(tzinfo=None)
        return parsed.isoformat()
    except (ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise InvalidTime(
            f"{value!r:.60} is not a time: give ISO 8601 text such as '2026-01-31T09:00', or a datetime"
        ) from error


def now() -> str:
    return datetime.now(timezone.utc).replace(tzinfo=None).isoformat()


def later(start: str, seconds: float) -> str:
    """The canonical time `seconds` after the canonical time `start`. Raises InvalidTime."""
    try:
        if isinstance(seconds, bool) or not seconds > 0:
            raise ValueError
        return (datetime.fromisoformat(start) + timedelta(seconds=seconds)).isoformat()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidTime(f"ttl must be a positive number of seconds, got {seconds!r:.40}") from error


def checked_interval(start: str, end: str) -> None:
    """Raise InvalidTime where canonical times leave no moment between them: what was never true is never found."""
    if start and end and end <= start:
        raise InvalidTime(f"valid_to ({end}) must come after valid_from ({start}): the item would never be valid")
