"""Values of JSON that somebody else wrote: what is not of the kind that is looked for reads as empty."""

from __future__ import annotations

import json
from typing import Any


def as_object(value: object) -> dict[str, Any]:
    """Return an object as it is, and {} for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list as it is, and [] for any other value."""
    return value if isinstance(value, list) else []


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects among the elements of a list, and [] for any other value."""
    return [element for element in as_list(value) if isinstance(element, dict)]


def parsed(text: str | bytes) -> Any:
    """Return the value of a text, and None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
