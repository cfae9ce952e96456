"""`from keepworth.episodes.needs import needs_llm`: a file says which extra it needs, before it imports anything of it."""

from __future__ import annotations

from keepworth.episodes.extras import EXTRAS, Extra, require


def __getattr__(name: str) -> Extra:
    """`needs_train`: the extra of that name, all of which must be installed."""
    extra = name.removeprefix("needs_")
    if extra == name or extra not in EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    purpose = EXTRAS[extra].purpose
    require(extra, purpose[0].upper() + purpose[1:])
    return EXTRAS[extra]
