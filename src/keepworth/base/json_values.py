"""Values of JSON that somebody else wrote: what is not of the kind that is looked for reads as empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from keepworth.base.errors import KeepworthError


def as_object(value: object) -> dict[str, Any]:
    """Return an object as it is, and {} for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list as it is, and [] for any other value."""
    return value if isinstance(value, list) else []


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects among the elements of a list, and [] for any other value."""
    return [element for element in as_list(value) if isinstance(element, dict)]


def parse(text: str | bytes) -> Any:
    """Return the value of a text. Raises ValueError, which says what is wrong with it, also where it nests without end or holds
    a number of thousands of digits."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects nest too deep in it") from None
    except ValueError as error:
        if type(error) is ValueError:  # neither a mistake of syntax nor one of UTF-8
            raise ValueError("a number in it has too many digits") from None
        raise


def parsed(text: str | bytes) -> Any:
    """Return the value of a text, and None if it is no JSON."""
    try:
        return parse(text)
    except ValueError:
        return None


def read_json(path: Path, fix: str, kind: type[KeepworthError] = KeepworthError) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: The file.
        fix: What the error advises.
        kind: The error that is raised where the file cannot be read, is no JSON or not an object.
    """
    try:
        value = parse(path.read_bytes().decode())
    except (OSError, ValueError) as error:
        raise kind(f"{path} cannot be read ({error}).", fix) from error
    if not isinstance(value, dict):
        raise kind(f"{path} does not hold a JSON object.", fix)
    return value
