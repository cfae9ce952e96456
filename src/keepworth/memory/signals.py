"""Signals: what counts as an outcome where nobody gives a reward.

A check that passes, a tool that fails, a commit, the user's next message: each is a `Signal`, with the reward that it stands
for, 1 or 0, and a weight that follows from how often it is right. `LiveEpisode.signal` makes it the reward of what was shown
before it, in the name of the person whose turn it was, and under a source of its own ("signal:NAME"). So it can be rolled back
alone, never replaces what a person said, and counts nothing where a person said something.

Hooks, the gateway, MCP, adapters and the reader of logs all use this table. Everything here is rules over text, without a model;
the words and commands are in `signals.toml`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from keepworth.base.errors import UnknownName
from keepworth.memory.item import EVALUATION, SIGNAL, signal_of, whose
from keepworth.memory.patterns import read_file

LONGEST = 4_000
"""The most characters of a message, a command or an output that are read."""
OPENING = 400
"""The most characters at the beginning of a message in which a word about the last answer is looked for."""
SHORT = 160
"""The most characters of a message in which thanks count wherever they stand."""
MOST_WEIGHT = 0.99
"""How much what nobody said counts at most; so what somebody said outweighs it."""
SAME, OTHER = 0.6, 0.08
"""The shares of common words from which on a message asks the same again, and below which it is about something else."""
_TOKEN = re.compile(r"[^\W\d_]{2,}|\d+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_QUOTE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|^\s*>.*$|“[^”]*”|„[^“]*“|\"[^\"\n]{12,}\"", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*|\n+")
_ENDING = re.compile(r"[\s.!。！~…:)(]+$|\s*\b(?:lol|haha\w*|kkk+|jaja\w*|rs|lg|mfg)$", re.IGNORECASE)
_SHELL = re.compile(r"""(?:\S*/)?(?:ba|da|z|k)?sh(?: -\w+)*? -\w*c (["'])(.*?)\1""", re.DOTALL)
"""A shell that is given its commands as text."""
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:^\s*\2\b|\Z)", re.DOTALL | re.MULTILINE)
"""A text that stands in a command line and goes to a command, up to a line with its mark."""
_QUOTED = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'""", re.DOTALL)
_SEPARATOR = re.compile(r"\s*(?:&&|\|\||;|\n|(?<!\|)\|(?!\|))\s*")


@dataclass(frozen=True, slots=True)
class Signal:
    """A kind of outcome.

    Args:
        name: Its name; the source of its rewards is "signal:" and this name.
        about: What is seen.
        family: A later signal of the same family replaces an earlier one about the same search.
        of: "search" where it is about the newest search before it, "turn" where it is about all searches of the turn.
        value: The reward: 1 for a good outcome, 0 for a bad one.
        weight: Its share of the count where signals alone speak (see `divide`); 0 where it says nothing.
    """

    name: str
    about: str
    family: str
    of: str
    value: float
    weight: float

    @property
    def source(self) -> str:
        """The source of its rewards."""
        return SIGNAL + self.name


@cache
def load_signals() -> Mapping[str, Signal]:
    """Load the table of signals, by name."""
    return {name: Signal(name, **row) for name, row in _data()["signal"].items()}


def find_signal(name: str) -> Signal:
    """Return the signal of a name. Raises UnknownName."""
    table = load_signals()
    if name not in table:
        raise UnknownName("signal", name, table)
    return table[name]


@cache
def read_weight(source: str) -> float:
    """Return how much a reward from a source counts beside others about the same search: 1 if somebody gave it, next to that if
    an evaluator did, and a half for a signal that is in no table."""
    if source.startswith(EVALUATION):
        return MOST_WEIGHT
    name = signal_of(source)
    if not name:
        return 1.0
    table = load_signals()
    return min(MOST_WEIGHT, table[name].weight) if name in table else 0.5


@cache
def find_channel(source: str) -> str:
    """Return the channel of a source: rewards about one search replace each other within it. Signals of a family share one."""
    name = signal_of(source)
    if name not in load_signals():
        return source
    return f"{SIGNAL}{load_signals()[name].family} of {whose(source)}"


@cache
def describe_version() -> str:
    """Name the weights of the table, by which rewards are counted."""
    return " ".join(f"{signal.family}:{signal.weight:g}" for signal in load_signals().values())


def divide(claims: Sequence[float]) -> list[float]:
    """Return how much each of several rewards about one search counts: together at most 1.

    What people said counts equally, and signals and evaluators nothing beside it. Where signals alone
    speak, they share the count of 1 by their weights, so that a weak signal without others counts as a whole reward.

    Args:
        claims: The weights of their sources, see `read_weight`.
    """
    people = sum(claim == 1.0 for claim in claims)
    if people:
        return [1.0 / people if claim == 1.0 else 0.0 for claim in claims]
    return [claim / (sum(claims) or 1.0) for claim in claims]


def last_of_families(signals: Iterable[Signal]) -> list[Signal]:
    """Return the last signal of each family, in order."""
    return list({signal.family: signal for signal in signals}.values())


def sum_up(signals: Iterable[Signal]) -> float | None:
    """Return what signals say of an outcome, from 0 to 1: the last one of each family by its weight; None if they say nothing."""
    last = [signal for signal in last_of_families(signals) if signal.weight > 0.0]
    shares = divide([signal.weight for signal in last])
    return sum(share * signal.value for share, signal in zip(shares, last, strict=True)) if last else None


# What tools say.


def tell_mended(name: str, earlier: Container[str]) -> str:
    """Return the name of a signal, where a check that passes after one that failed has mended it.

    Args:
        name: What `read_tool` returned.
        earlier: The names of the signals before it in the same turn.
    """
    return "check-mended" if name == "check-passed" and "check-failed" in earlier else name


def read_tool(command: str, *, failed: bool, output: str = "") -> str:
    """Return the signal in the end of a tool; "" where it says nothing.

    Args:
        command: The command line that a shell ran; "" for another tool.
        failed: Whether the host says that it failed, for instance by its exit code.
        output: What it printed: an exit code is lost behind a pipe.
    """
    parts = list(_split_commands(command[:LONGEST]))
    if not parts:
        return "tool-failed" if failed else ""
    if any(_pattern("checks").match(part) for part in parts):
        broken = failed or bool(_pattern("failed").search(output[-LONGEST:]))
        return "check-failed" if broken else "check-passed"
    if any(_pattern("revert").match(part) for part in parts):
        return "" if failed else "revert"
    if any(_pattern("commit").match(part) for part in parts):
        return "tool-failed" if failed else "commit"
    if failed:
        answers = _pattern("answering").match(parts[-1]) and len(output.strip()) < OPENING
        return "" if answers else "tool-failed"
    return "" if all(_pattern("reading").match(part) for part in parts) else "tool-succeeded"


def is_check(command: str) -> bool:
    """Return whether a command line runs a test, a build or a linter."""
    return any(_pattern("checks").match(part) for part in _split_commands(command[:LONGEST]))


def _split_commands(line: str) -> Iterator[str]:
    """Yield the commands of a command line, without what starts another command, such as `sudo` or `uv run`."""
    plain = _QUOTED.sub(lambda quoted: _SEPARATOR.sub(" ", quoted[0]), _SHELL.sub(r"\2", _HERE.sub(r"\3", line)))
    for part in _SEPARATOR.split(plain):
        plain = part.strip().lstrip("({").strip()
        while plain:
            start = _pattern("starters").match(plain)
            if start is None or start.end() == 0:
                break
            plain = plain[start.end() :].lstrip()
        if plain and not plain.startswith("#"):
            yield plain


# What the user says next.


def read_reply(message: str, before: str = "", answer: str = "") -> str:
    """Return the signal in the user's next message; "" where it says nothing of the last answer.

    Some hundred signs are weighed: words of praise, of failure and the like in eight languages, how far the message says again
    what the one before it said, and what rules for single wordings make of it.

    Args:
        message: The message, as the user wrote it.
        before: The user's message before it, which the answer answered; "" if unknown.
        answer: The answer; "" if unknown. Where it ends in a question, "nope" may say no to it.
    """
    text = spoken(message)
    if name := _read_sure(text, asked=answer.rstrip()[-1:] in _ASKS):
        return name
    rest = _without_thanks_to_others(text)
    if not rest.strip():
        return "new-subject" if before and _compare(text, spoken(before)) == "new-subject" else ""
    rule = read_rules(rest, before)
    name = _weigh(rest, spoken(before), rule)
    return name or ("new-subject" if rule == "new-subject" else "")


_ASKS = ("?", "？", "؟")


def _read_sure(text: str, *, asked: bool) -> str:
    """Return the signal of a wording that leaves no doubt, which no sign outweighs; "" for none.

    Args:
        text: The message.
        asked: Whether the answer before it ended in a question.
    """
    opening = text[:OPENING]
    if not opening or _words("self", "any").search(opening):
        return ""
    plain = _ENDING.sub("", opening)
    if len(text) <= SHORT and (
        _words("scorn", "any").search(opening)
        or _words("scorn", "whole").fullmatch(plain)
        or (not asked and _words("scorn", "alone").fullmatch(plain))
    ):
        return "correction"
    first, _, second = _divide_first(opening)
    follows = _words("thanks", "first").fullmatch(_ENDING.sub("", first)) and _words("thanks", "next").match(second)
    return "thanks" if follows else ""


def _without_thanks_to_others(text: str) -> str:
    """Return a message without its first sentence where that thanks somebody else: "Please thank Bob for me."."""
    first, _, rest = _divide_first(text)
    return rest if _words("other", "begin").match(first) else text


def _divide_first(text: str) -> tuple[str, str, str]:
    """Return the first sentence of a text, what is between, and the rest."""
    end = _SENTENCE.search(text)
    return (text, "", "") if end is None else (text[: end.start()], end[0], text[end.end() :])


def _weigh(text: str, before: str, rule: str) -> str:
    """Return "thanks", "correction" or "repetition" where the signs of a message make it likely enough; "" else."""
    from keepworth.memory.reply_signs import list_words, signs

    if not text:
        return ""
    weights = read_file("reply_weights")
    present = signs(text, before, rule) | dict.fromkeys(list_words(text), 1.0)
    scores = {
        name: math.exp(constant + sum(weight * present.get(sign, 0.0) for sign, weight in weights[name].items()))
        for name, constant in weights["constant"].items()
    }
    name = max(scores, key=scores.__getitem__)
    if name != "repetition" and _words("self", "any").search(text[:OPENING]):
        return ""
    least = weights["least"]["the rules say so" if name == rule != "repetition" else name]
    return name if scores[name] >= least * (1.0 + sum(scores.values())) else ""


def read_rules(message: str, before: str = "") -> str:
    """Return the signal in a message by rules for single wordings alone; "" where they know none.

    Args:
        message: The message, as the user wrote it.
        before: The user's message before it; "" if unknown.
    """
    text = spoken(message)
    if not text:
        return ""
    lead = re.match(_data()["words"]["lead"], text, re.IGNORECASE)
    rest = text[lead.end() :] if lead is not None else text
    opening = text[:OPENING]
    if not _words("self", "any").search(opening) and (name := _read_judgement(opening, rest[:OPENING])):
        return name
    if before:
        return _compare(text, spoken(before))
    return ""


def _read_judgement(text: str, rest: str) -> str:
    """Return "thanks" or "correction" if a message says so in words; "" else. rest: the text without sounds at its beginning."""
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence.strip(" .!?。！？")]
    first = _ENDING.sub("", sentences[0]) if sentences else ""
    confirms = _words("thanks", "begin").match(text) or _words("thanks", "begin").match(rest)
    confirms = confirms or _words("thanks", "whole").fullmatch(first)
    if not confirms and len(text) <= SHORT and "?" not in text and "？" not in text:
        confirms = _words("thanks", "any").search(text)
    if confirms:
        if not any(map(_words("thanks", "but").search, sentences[:2])):
            ironic = len(sentences) > 1 and re.match(_data()["words"]["thanks"]["praise"], rest, re.IGNORECASE)
            return "" if ironic else "thanks"
        if _words("thanks", "contrast").search(text) and "?" not in text:
            return "correction"
    if _words("correction", "begin").match(rest) or _words("correction", "any").search(text):
        return "correction"
    return ""


def _compare(text: str, before: str) -> str:
    """Return "repetition" if a message says again what the one before said, "new-subject" if they have next to nothing in common;
    "" else."""
    words, others = _TOKEN.findall(text), {word.lower() for word in _TOKEN.findall(before)}
    shared = {word.lower() for word in words} & others
    raised = [word for word in words if len(word) > 2 and word.isupper() and word.lower() in shared]
    if any(word not in before for word in raised):
        return "repetition"
    every = {word.lower() for word in words}
    common = len(shared) / max(1, len(others | every))
    said_again = len(words) <= 6 and "!" in text and len(shared) >= max(1, len(words) // 3)
    said_again = said_again or (len(shared) >= max(3, 0.8 * len(others)) and len(every - others) <= 3)
    if common >= SAME or said_again:
        return "repetition"
    return "new-subject" if common <= OTHER and len(words) >= 4 else ""


def spoken(message: str) -> str:
    """Return what a message says itself, without quotes and code, and with plain apostrophes."""
    return " ".join(_QUOTE.sub(" ", message[:LONGEST].replace("’", "'")).split())


@cache
def _data() -> dict[str, Any]:
    return read_file("signals")


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Compile a pattern for commands or their output."""
    text = _data()["command"][name].replace("\n", "").removeprefix("|")
    if name == "failed":
        return re.compile(text, re.MULTILINE)
    if name == "starters":
        return re.compile(rf"(?:{text})\s*", re.IGNORECASE)
    return re.compile(rf"(?:{text})(?![\w-])" if name != "checks" else rf"(?:\S*/)?(?:{text})(?![\w.])")


@cache
def _words(section: str, name: str) -> re.Pattern[str]:
    """Compile a list of patterns for words of a message."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in _data()["words"][section][name]), re.IGNORECASE)
