"""The elements of a list in a JSON file, each with the line on which it begins, for messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any

from keepworth.base.json_values import parse
from keepworth.memory.errors import MemoryProblem

_decode = json.JSONDecoder().raw_decode
_SEPARATOR = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


def parsed_whole(text: str, fix: str) -> Any:
    """Return the JSON of a file. Raises MemoryProblem, which names the line of the mistake."""
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise MemoryProblem(
            f"This is no JSON: {error.msg} (line {error.lineno}).", f"{fix}; nothing was imported."
        ) from error
    except ValueError as error:
        raise MemoryProblem(f"This is no JSON ({error}).", f"{fix}; nothing was imported.") from error


def elements_of(text: str, *names: str) -> Iterator[tuple[int, Any]]:
    """Yield the elements of a list in sound JSON, each with the number of its line: of the whole, or of the first of `names` that
    is in the object."""
    place = _skip(text, 0)
    if text[place] == "{":
        place = _list_in(text, place, names)
    place = _skip(text, place + 1)
    line, counted = 1, 0
    while text[place] != "]":
        value, end = _decode(text, place)
        line, counted = line + text.count("\n", counted, place), place
        yield line, value
        between = _SEPARATOR.match(text, end)
        place = between.end() if between else _skip(text, end)


def _list_in(text: str, place: int, names: tuple[str, ...]) -> int:
    """Return where the list begins that the object has under the first of `names` that it has."""
    begins: dict[str, int] = {}
    place = _skip(text, place + 1)
    while text[place] != "}":
        name, end = _decode(text, place)
        place = _skip(text, _skip(text, end) + 1)
        begins[name] = place
        _, end = _decode(text, place)
        between = _SEPARATOR.match(text, end)
        place = between.end() if between else _skip(text, end)
    return next(begins[name] for name in names if name in begins)


def _skip(text: str, place: int) -> int:
    """Return the place after the white space that begins at `place`."""
    match = WHITESPACE.match(text, place)
    return int(match.end())
