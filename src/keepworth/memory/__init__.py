"""What an agent keeps: items, the operations on them, and how they are found again.

`Bank` is what agents hold. Names are loaded when first used, so importing the room costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Bank": "overlay",
    "Item": "item",
    "ItemKind": "item",
    "Provenance": "item",
    "Status": "item",
    "ValueStatistics": "item",
    "Scope": "item",
    "Draft": "operations",
    "OperationOutcome": "operations",
    "Hit": "search.search",
    "Explanation": "search.search",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
