"""`from keepworth.base.needs import needs_llm` declares the extra that a file needs, before the file imports from it."""

from __future__ import annotations

from keepworth.base.extras import EXTRAS, Extra, require


def __getattr__(name: str) -> Extra:
    """Returns the extra that `needs_train` or the like names. Raises MissingExtra where a package of it is missing."""
    extra = name.removeprefix("needs_")
    if extra == name or extra not in EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    purpose = EXTRAS[extra].purpose
    require(extra, purpose[0].upper() + purpose[1:])
    return EXTRAS[extra]
