"""The English that rules go by, from `english.toml`: patterns by section and name, compiled when they are first used."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_PART = re.compile(r"%(\w+)%")


class Patterns:
    """A section of the file: each pattern is an attribute."""

    def __init__(self, section: str) -> None:
        self._section = section

    def __getattr__(self, name: str) -> re.Pattern[str]:
        pattern = read_english()[self._section][name]
        compiled = compile_pattern(pattern, exact=name in read_english()["exact"])
        setattr(self, name, compiled)
        return compiled


@cache
def read_english() -> dict[str, Any]:
    """The whole file."""
    return tomllib.loads(files(__package__).joinpath("english.toml").read_text("utf-8"))


def compile_pattern(pattern: str | list[str], *, exact: bool = False) -> re.Pattern[str]:
    """A pattern, or its pieces, with the parts that it names. exact: capitals matter."""
    text = "".join(pattern)
    while _PART.search(text):
        text = _PART.sub(lambda part: "".join(read_english()["parts"][part[1]]), text)
    return re.compile(text, re.NOFLAG if exact else re.IGNORECASE)


@cache
def read_patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """A list of patterns."""
    return tuple(map(compile_pattern, read_english()["lists"][name]))


@cache
def read_words(name: str) -> frozenset[str]:
    """A list of words."""
    listed = read_english()["words"][name]
    return frozenset(listed.split() if isinstance(listed, str) else listed)


def read_numbers(name: str) -> dict[str, Any]:
    """What words stand for as numbers."""
    numbers: dict[str, Any] = read_english()["numbers"][name]
    return numbers
