"""What simple rules solve of word problems, without a model: two numbers of the problem and a sign.

The sign is the same for every problem (`best_sign`), or chosen by the problem's words (`by_words`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from math import log

Problem = tuple[str, float]
"""The text, and the number that is right."""
Rule = Callable[[str], float | None]
"""From the text of a problem to a number; None where it says nothing."""
SIGNS: dict[str, Callable[[float, float], float]] = {
    "first + second": lambda one, two: one + two,
    "first - second": lambda one, two: one - two,
    "second - first": lambda one, two: two - one,
    "first * second": lambda one, two: one * two,
    "first / second": lambda one, two: one / two if two else 0.0,
    "second / first": lambda one, two: two / one if one else 0.0,
}
PAIRS: dict[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "": lambda numbers: numbers[:2],
    ", of the last two": lambda numbers: numbers[-2:],
}
"""Which two numbers of the problem are reckoned with."""
WAYS = {sign + pair: (reckon, chosen) for pair, chosen in PAIRS.items() for sign, reckon in SIGNS.items()}


def reckoned(problem: str, way: str) -> float | None:
    numbers = [float(match) for match in re.findall(r"\d+(?:\.\d+)?", problem)]
    reckon, chosen = WAYS[way]
    return reckon(*chosen(numbers)) if len(numbers) > 1 else None


def right(rule: Rule, problem: Problem) -> float:
    answer = rule(problem[0])
    return float(answer is not None and abs(answer - problem[1]) < 1e-6)


def best_sign(train: Sequence[Problem]) -> Rule:
    """The first two numbers with the sign that is right most often."""
    way = max(SIGNS, key=lambda sign: sum(right(partial(reckoned, way=sign), one) for one in train))
    return partial(reckoned, way=way)


def naive_bayes(examples: Sequence[tuple[str, str]], common: int = 1) -> Callable[[str], str]:
    """From a text to the label that its words make most probable, with add-one smoothing. examples: (text, label). common: words
    of fewer texts do not count."""
    stand = Counter(word for text in {text for text, _ in examples} for word in words_of(text))
    known = {word for word, count in stand.items() if count >= common}
    seen, often = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for text, label in examples:
        seen[label] += 1
        often[label].update(words_of(text) & known)

    def likely(label: str, words: set[str]) -> float:
        return log(seen[label] + 1) + sum(log((often[label][word] + 1) / (seen[label] + 2)) for word in words)

    def label_of(text: str) -> str:
        words = words_of(text) & known
        return max(seen, key=lambda label: likely(label, words))

    return label_of


def by_words(train: Sequence[Problem], common: int, ways: Sequence[str]) -> Rule:
    """The words of the problem choose the way, as they do in problems where that way is right."""
    examples = [(one[0], way) for one in train for way in ways if right(partial(reckoned, way=way), one)]
    way_of = naive_bayes(examples, common)
    return lambda text: reckoned(text, way_of(text))


def rules(train: Sequence[Problem]) -> dict[str, Rule]:
    """All rules here, learned on `train`, by name."""
    named = {"the sign that is right most often": best_sign(train)}
    for common in (1, 5, 20):
        for pairs, ways in (
            ("the first two numbers", tuple(SIGNS)),
            ("the first or the last two numbers", tuple(WAYS)),
        ):
            name = f"naive Bayes over words of at least {common} problems, which chooses the sign of {pairs}"
            named[name] = by_words(train, common, ways)
    return named


def best_of(train: Sequence[Problem], asked: Sequence[Problem]) -> tuple[str, list[float]]:
    """The rule that is right most often of what is asked, which favours it; its name, and whether it is right of each."""
    values = {name: [right(rule, problem) for problem in asked] for name, rule in rules(train).items()}
    return max(values.items(), key=lambda pair: sum(pair[1]))


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))
