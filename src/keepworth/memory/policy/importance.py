"""How much a statement matters, judged before anybody asks: a small policy over features of its text, learned from reward.

The policy gives each statement a number; a bank that is full gives up the lowest. Drawn with Gumbel noise the choice of what
stays is a Plackett-Luce draw without replacement, whoever came first, so that its probability is known and reward can reach it
(Efraimidis and Spirakis, weighted reservoir sampling, 2006; Kool et al., arXiv 1903.06059).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from keepworth.episodes.model import Encoder

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_TIME = re.compile(r"\b(?:yesterday|today|last|ago|weeks?|months?|years?|monday|friday|recently|just|since|now)\b")
_WANTING = re.compile(r"\b(?:need|want|looking|thinking|interested|planning|consider|hoping|curious)\b")
_DONE = re.compile(
    r"\b(?:bought|got|went|attended|visited|finished|started|moved|took|met|received|graduated|work|live|have been|completed)\b"
)
_KIN = re.compile(
    r"\bmy (?:sister|brother|mother|mom|father|dad|wife|husband|friend|cousin|son|daughter|cat|dog|niece|nephew)\b"
)
_I, _DIGIT = re.compile(r"I\b"), re.compile(r"\d")
_NUMBER_WORD = re.compile(r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|twice|half)\b")

FEATURES = (
    *("words", "digits", "numbers in words", "names", "quoted", "times", "money"),
    *("starts with I am", "my", "kin", "wanting", "done"),
)


def hand_features(statement: str) -> Floats:
    """[len(FEATURES)]: counts and marks of one statement that need no model, each of order 1."""
    low, spoken = statement.lower(), statement.split()
    return np.array(
        [
            len(spoken) / 20,
            min(4, sum(letter.isdigit() for letter in statement)) / 2,
            float(bool(_NUMBER_WORD.search(low))),
            min(6, sum(word[:1].isupper() and word not in ("I", "I'm", "I've", "I'd", "I'll") for word in spoken[1:]))
            / 3,
            float('"' in statement),
            float(bool(_TIME.search(low))),
            float("$" in statement),
            float(low.startswith(("i'm", "i am"))),
            float(" my " in f" {low}"),
            float(bool(_KIN.search(low))),
            float(bool(_WANTING.search(low))),
            float(bool(_DONE.search(low))),
        ]
    )


def features(statements: Sequence[str], encoder: Encoder | None = None) -> Floats:
    """[n, len(FEATURES) + 1 (+ dimension)]: the hand features, a constant, and the vectors of `encoder` where there is one."""
    if not statements:
        return np.zeros((0, len(FEATURES) + 1 + (encoder.identity.dimension if encoder else 0)))
    hand = np.stack([hand_features(each) for each in statements])
    parts = [hand, np.ones((len(statements), 1))]
    if encoder is not None:
        parts.append(np.asarray(encoder.encode(list(statements)), dtype=np.float64))
    return np.concatenate(parts, axis=1)


MARKS = ("length", "very long", "digits", "a name", "asks", "a time", "a number in words", "my", "done")
"""What `Keeper` looks at. The first five ask for no language; the others know English words."""
WORDY, LONG = 30, 60
"""Words up to which a longer text is more often asked for, and from which on it is less often."""
PRIOR = (1.03, -1.09, 0.97, 0.44, -0.5, 0.67, 0.39, 0.46, 0.55)
"""Of each mark, how much it adds to the logarithm of the odds that a fact is asked for: a conditional logistic regression on the
evidence of LongMemEval and of BFCL's memory tasks, shrunk towards "has digits; of equals the longer, but nothing very long" (see
`benchmarks/writing/keeping.py`, which fits and prints them)."""
_ASKS = ("?", "\uff1f", "\u061f")


def marks(texts: Sequence[str]) -> Floats:
    """[n, len(MARKS)]: each of order 1. Length is half of log(1 + words), very long the logarithm of words over `LONG`; a name is
    a capital inside a sentence."""
    return np.array([_marks(text) for text in texts], dtype=np.float64).reshape(len(texts), len(MARKS))


@lru_cache(maxsize=20_000)
def _marks(text: str) -> tuple[float, ...]:
    low, words = text.lower(), text.split()
    name = any(
        word[0].isupper() and before[-1] not in ".!?:" and not _I.match(word) for before, word in pairwise(words)
    )
    return (
        math.log1p(min(len(words), WORDY)) / 2,
        math.log(max(len(words), LONG) / LONG),
        bool(_DIGIT.search(text)),
        name,
        text.rstrip().endswith(_ASKS),
        bool(_TIME.search(low)),
        bool(_NUMBER_WORD.search(low)),
        " my " in f" {low}",
        bool(_DONE.search(low)),
    )


def drawn(scores: Floats, budget: int, generator: np.random.Generator) -> tuple[int, ...]:
    """Places of the `budget` statements that stay, in the order of their keys (score plus Gumbel noise), highest first: a
    Plackett-Luce draw. Whether all scores are known at once or come one by one, with the lowest key given up, is the same."""
    keys = scores + generator.gumbel(size=len(scores))
    return tuple(int(place) for place in np.argsort(-keys)[:budget])


def best(scores: Floats, budget: int) -> tuple[int, ...]:
    """The same without noise; of equal scores the latest stays, as in a bank that gives up the oldest."""
    places = sorted(range(len(scores)), key=lambda place: (scores[place], place), reverse=True)
    return tuple(places[:budget])


def log_probability(scores: Floats, order: Sequence[int]) -> float:
    """Of an ordered Plackett-Luce draw: the sum over its places of score minus logsumexp of what was left then."""
    left, total = np.ones(len(scores), dtype=bool), 0.0
    for place in order:
        total += float(scores[place] - _logsumexp(scores[left]))
        left[place] = False
    return total


def gradient(scores: Floats, order: Sequence[int]) -> Floats:
    """[n]: the derivative of `log_probability` by the scores; it sums to 0."""
    left, found = np.ones(len(scores), dtype=bool), np.zeros(len(scores))
    for place in order:
        found[left] -= np.exp(scores[left] - _logsumexp(scores[left]))
        found[place] += 1.0
        left[place] = False
    return found


def _logsumexp(values: Floats) -> float:
    top = float(values.max())
    return top + float(np.log(np.exp(values - top).sum()))


@dataclass(frozen=True, slots=True)
class LoggedBank:
    """One entry of a decision log. features: [n, d] of all statements that came; stayed: places of those in the bank when the
    question came; reward: of its answer; group: banks of equal group saw the same statements and the same question."""

    features: Floats
    stayed: tuple[int, ...]
    reward: float
    group: str


class WorthFit:
    """A linear worth of statements, so that the reward of a bank is that of its group plus the worth of what stayed: ridge
    regression within groups. What a question is worth anyway drops out, and no mark of evidence is needed.

    Banks must have been drawn so that what stays varies within a group; a group of one says nothing. Source: the additive
    (main-effects) regression of a randomised factorial design."""

    def __init__(self, dimension: int) -> None:
        self._gram, self._cross = np.zeros((dimension, dimension)), np.zeros(dimension)

    def add(self, group: Sequence[LoggedBank]) -> None:
        """Banks of one group; groups are added once and whole."""
        sums = np.stack([bank.features[list(bank.stayed)].sum(axis=0) for bank in group])
        rewards = np.array([bank.reward for bank in group])
        sums, rewards = sums - sums.mean(axis=0), rewards - rewards.mean()
        self._gram += sums.T @ sums
        self._cross += sums.T @ rewards

    def weights(self, ridge: float) -> Floats:
        """[d]: the worth of a unit of each feature."""
        penalty = ridge * np.eye(len(self._cross))
        return np.asarray(np.linalg.solve(self._gram + penalty, self._cross), dtype=np.float64)


def fitted_worth(log: Sequence[LoggedBank], ridge: float) -> Floats:
    """[d]: the weights of `WorthFit` after the whole of `log`."""
    groups: dict[str, list[LoggedBank]] = {}
    for bank in log:
        groups.setdefault(bank.group, []).append(bank)
    fit = WorthFit(log[0].features.shape[1])
    for group in groups.values():
        fit.add(group)
    return fit.weights(ridge)


_SPECIFIC = ("digits", "numbers in words", "names", "times", "money", "quoted")


def specificity(statement: str) -> float:
    """The rule `most specific`: how much of a statement is numbers, names, times and quoted words; of equals, the longer."""
    hand = hand_features(statement)
    return float(sum(hand[FEATURES.index(name)] for name in _SPECIFIC) + 0.001 * hand[FEATURES.index("words")])
