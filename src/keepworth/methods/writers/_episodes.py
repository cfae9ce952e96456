"""What writers of episodes share: which choices there are to keep, how they ended, and how a model's reply is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keepworth.memory.policy.hashed_words import WORD
from keepworth.memory.policy.pool import Advice
from keepworth.memory.policy.slots import Finished, Use


def judged(finished: Finished, steps: bool) -> list[tuple[Use, bool]]:
    """What there is to keep of an episode, in order, each with whether it was good.

    steps: every step by its own reward. Else, as papers do it, the last choice made in each situation (where a step was tried
    again, what ended up being done) by how the episode ended.
    """
    last: dict[tuple[str, ...], tuple[Use, bool]] = {}
    for use in finished.choices:
        key = (use.query.text, use.taken) if steps else (use.query.text,)
        last.pop(key, None)
        last[key] = (use, use.good if steps else finished.success)
    return list(last.values())


def ended(use: Use, good: bool) -> str:
    """How it ended, in words; the number where the reward was neither the best nor the worst."""
    if 0.0 < use.reward < 1.0:
        return f"it earned {use.reward:.2g} of 1"
    return "it worked" if good else "it failed"


@dataclass(frozen=True, slots=True)
class RawCases:
    """The situation, the action and how it ended. failures: kept too, as warnings; else successes alone are kept. steps: of
    every step by its own reward (see `judged`)."""

    failures: bool = True
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        return [
            Advice(
                use.query.text,
                f"{use.query.text} -> {use.taken}: {ended(use, good)}",
                do=(use.taken,) if good else (),
                avoid=() if good else (use.taken,),
                good=good,
            )
            for use, good in judged(finished, self.steps)
            if good or self.failures
        ]


def keywords(text: str) -> list[str]:
    """The five longest different words, in order of appearance: the rule form of a keyword extractor."""
    result = list(dict.fromkeys(WORD.findall(text.lower())))
    longest = set(sorted(result, key=lambda word: (-len(word), result.index(word)))[:5])
    return [word for word in result if word in longest]


AskModel = Callable[[str], str]
"""A chat model as a function: the prompt in, the reply out."""
_BLOCK = re.compile(r"[\[{].*[\]}]", re.DOTALL)


def parsed(reply: str) -> Any:
    """The first JSON value in a reply, fences and talk around it allowed; None where there is none."""
    result = _BLOCK.search(reply)
    if result is None:
        return None
    try:
        return json.JSONDecoder().raw_decode(result.group())[0]
    except (ValueError, RecursionError):  # a model may nest without end
        return None
