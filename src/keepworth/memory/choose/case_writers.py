"""Shared code of writers of episodes: the choices to store, their outcomes in words, and the parsing of a model's reply."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keepworth.memory.choose.hashed_words import WORD
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished, Use


def judged(finished: Finished, steps: bool) -> list[tuple[Use, bool]]:
    """Returns the choices of an episode to store, in order, each with whether it was good.

    steps: judges every step by its own reward. Else, as in papers, the last choice made in each situation (where a step was tried
    again, the final action) is judged by how the episode ended.
    """
    last: dict[tuple[str, ...], tuple[Use, bool]] = {}
    for use in finished.choices:
        key = (use.query.text, use.taken) if steps else (use.query.text,)
        last.pop(key, None)
        last[key] = (use, use.good if steps else finished.success)
    return list(last.values())


def ended(use: Use, good: bool) -> str:
    """Returns the outcome in words, with the number where the reward is strictly between 0 and 1."""
    if 0.0 < use.reward < 1.0:
        return f"it earned {use.reward:.2g} of 1"
    return "it worked" if good else "it failed"


def case_text(use: Use, good: bool) -> str:
    """Returns situation, action and outcome of a choice as a text."""
    return f"{use.query.text} -> {use.taken}: {ended(use, good)}"


def advised(action: str, good: bool, key: str, text: str, **rest: Any) -> Advice:
    """Returns the advice to do an action, or to avoid it.

    Args:
        action: What is to be done or avoided.
        good: Whether it was good, and is to be done.
        key: What the advice is found by.
        text: What a reader is shown.
        **rest: Other fields of `Advice`.
    """
    return Advice(key, text, (action,) if good else (), () if good else (action,), good, **rest)


@dataclass(frozen=True, slots=True)
class RawCases:
    """Writes the situation, the action and the outcome of each choice. With `failures` failed choices are written too, as
    warnings; with `steps` every step is judged by its own reward (see `judged`)."""

    failures: bool = True
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        return [
            advised(use.taken, good, use.query.text, case_text(use, good))
            for use, good in judged(finished, self.steps)
            if good or self.failures
        ]


def keywords(text: str) -> list[str]:
    """Returns the five longest different words, in order of appearance: the rule form of a keyword extractor."""
    result = list(dict.fromkeys(WORD.findall(text.lower())))
    longest = set(sorted(result, key=lambda word: (-len(word), result.index(word)))[:5])
    return [word for word in result if word in longest]


AskModel = Callable[[str], str]
"""A chat model as a function: the prompt in, the reply out."""
_BLOCK = re.compile(r"[\[{].*[\]}]", re.DOTALL)


def parsed(reply: str) -> Any:
    """Returns the first JSON value in a reply, whatever stands around it, or None."""
    result = _BLOCK.search(reply)
    if result is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(result.group())[0]
    except (ValueError, RecursionError):  # a model may nest without limit
        return None
