"""Words and patterns that rules read from the .toml files beside them. A pattern is compiled when it is first used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

_PART = re.compile(r"%(\w+)%")


class Patterns:
    """The patterns of one section of `english.toml`, each an attribute."""

    def __init__(self, section: str) -> None:
        self._section = section

    def __getattr__(self, name: str) -> re.Pattern[str]:
        pattern = read_english()[self._section][name]
        compiled = compile_pattern(pattern, exact=name in read_english()["exact"])
        setattr(self, name, compiled)
        return compiled


@cache
def read_file(name: str) -> dict[str, Any]:
    """Read a whole file, given its name without the ending."""
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def read_english() -> dict[str, Any]:
    """Read the whole of `english.toml`."""
    return read_file("english")


def compile_pattern(
    pattern: str | list[str], *, exact: bool = False, parts: Mapping[str, str | list[str]] | None = None
) -> re.Pattern[str]:
    """Compile a pattern.

    Args:
        pattern: The pattern, whole or in pieces. Each %name% in it stands for a part.
        exact: Whether case matters.
        parts: The parts by name; those of `english.toml` if not given.
    """
    text, named = "".join(pattern), read_english()["parts"] if parts is None else parts
    while _PART.search(text):
        text = _PART.sub(lambda part: "".join(named[part[1]]), text)
    return re.compile(text, re.NOFLAG if exact else re.IGNORECASE)


def split_alternatives(text: str) -> list[str]:
    """Return the alternatives in a text, which are divided by " / " and may stand in several lines."""
    return " ".join(text.split()).split(" / ")


@cache
def read_patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """Read and compile a list of patterns."""
    return tuple(map(compile_pattern, read_english()["lists"][name]))


@cache
def read_words(name: str) -> frozenset[str]:
    """Read a list of words."""
    listed = read_english()["words"][name]
    return frozenset(listed.split() if isinstance(listed, str) else listed)


def read_numbers(name: str) -> dict[str, Any]:
    """Read a table that maps words to numbers, such as the names of months."""
    numbers: dict[str, Any] = read_english()["numbers"][name]
    return numbers
