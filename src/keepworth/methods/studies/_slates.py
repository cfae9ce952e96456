"""Slates of evidence, a small version of Memory-T1 (arXiv 2512.20092): entries are pruned to the time window of the question,
then a policy trained by reward chooses among them.

    question, day of asking -> window -> pruned -> the best 20 by BM25 -> a slate of at most 5, drawn by the policy -> reward

As in the paper: time before words, K = 8 slates a question, a slate's reward minus the mean of its group, the three terms of
`keepworth.methods.studies.memory_t1`, and gold ranges and gold evidence in training alone.

Different from the paper: the model is frozen, and 2,200 parameters over features of an entry choose, where the paper trains 3B
and 7B models that choose and answer in one text; so no output can be malformed, and its reward of -0.5 never occurs. Rules find
the window, where a model predicts it. Entries of 60 words are chosen among 20, where the paper chooses sessions among 10. The
answer's term is `answer_coverage`. There is no clip and no KL term: each slate is used once, and the policy begins as BM25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.base.metrics import tokens
from keepworth.memory.choose.slates import gumbel_top_k
from keepworth.memory.search.index import InvertedIndex
from keepworth.memory.search.terms import asked_terms
from keepworth.memory.time_window import DAY, TimeWindow, window_of

POOL, MOST, HIDDEN = 20, 5, 128
GROUP, BATCH, DECAY = 8, 16, 0.001
"""Slates of a question, questions of a step, and weight decay of `W` and `v` per step."""


@dataclass(frozen=True, slots=True)
class CandidateEvidence:
    """An entry that the policy may choose. lexical: BM25; dense: cosine with the question."""

    text: str
    said_at: datetime
    speaker: str
    lexical: float
    dense: float


FEATURES = (
    *("words", "rank by words", "meaning", "words of its session", "length", "speaker asked about"),
    *("window known", "inside", "days before", "days after", "length of the window", "recency"),
    *("speaks of a time", "of one in the window", "asks for several"),
)


def features(question: str, asked_at: str, candidates: Sequence[CandidateEvidence]) -> Floats:
    """Returns the features of each candidate, shape (candidates, FEATURES), each about in [0, 1], without anything of the key."""
    if not candidates:
        return np.zeros((0, len(FEATURES)))
    window = window_of(question, asked_at)
    question_time = datetime.fromisoformat(asked_at) if asked_at else max(candidate.said_at for candidate in candidates)
    lexical = np.array([candidate.lexical for candidate in candidates])
    best = max(float(lexical.max()), 1e-9)
    ranks = np.argsort(np.argsort(-lexical, kind="stable"), kind="stable")
    days = [candidate.said_at.date() for candidate in candidates]
    asks = set(tokens(question))
    several = float(bool(asks & {"many", "much", "order", "total", "all", "most", "different"}))
    rows = []
    for index, evidence in enumerate(candidates):
        gap = 0.0 if window is None else window.gap(evidence.said_at)
        event = window_of(evidence.text, evidence.said_at.isoformat())
        rows.append(
            (
                lexical[index] / best,
                1.0 / (1.0 + ranks[index]),
                evidence.dense,
                max(value for value, day in zip(lexical, days, strict=True) if day == days[index]) / best,
                min(1.0, len(evidence.text.split()) / 60.0),
                float(evidence.speaker == "user" or evidence.speaker.lower() in asks),
                float(window is not None),
                float(window is not None and gap == 0.0),
                _scaled(-gap),
                _scaled(gap),
                0.0 if window is None else _scaled(window.days),
                1.0 - _scaled((question_time - evidence.said_at) / DAY),
                float(event is not None),
                float(event is not None and window is not None and _meet(event, window)),
                several,
            )
        )
    return np.array(rows)


def _scaled(days: float) -> float:
    """Scales days logarithmically: 0 for none or fewer, 1 for a year and more."""
    return float(min(1.0, np.log1p(max(0.0, days)) / np.log1p(365.0)))


def _meet(one: TimeWindow, other: TimeWindow) -> bool:
    return one.start <= other.end and other.start <= one.end


def lexical_scores(question: str, texts: Iterable[str]) -> Floats:
    """Returns BM25 of each text with a question."""
    index = InvertedIndex()
    for text in texts:
        index.add(text)
    terms = asked_terms(question, index.languages)
    return np.asarray(index.scores(terms, index.statistics(terms, np.zeros(0, dtype=np.intp))), dtype=np.float64)


class EvidencePolicy:
    """Scores each candidate and stopping: slates have the Plackett-Luce distribution, and end where stopping is drawn.

    score = X a + tanh(X W + b) v. It begins as the first feature (here BM25): `a` is `first` for it and 0 for the rest, `v` is 0.
    names: the features, where something else is chosen.
    """

    def __init__(
        self, seed: int = 0, hidden: int = HIDDEN, names: Sequence[str] = FEATURES, first: float = 4.0
    ) -> None:
        draws = np.random.default_rng(seed)
        self.names, width = tuple(names), len(names)
        self.parameters: dict[str, Floats] = {
            "a": np.zeros(width),
            "W": draws.normal(size=(width, hidden)) / np.sqrt(width),
            "b": np.zeros(hidden),
            "v": np.zeros(hidden),
            "stop": np.array([1.0]),
        }
        self.parameters["a"][0] = first

    def scores(self, x: Floats) -> Floats:
        """Returns the score of each candidate, then of stopping. x: (candidates, FEATURES)."""
        p = self.parameters
        return np.append(x @ p["a"] + np.tanh(x @ p["W"] + p["b"]) @ p["v"], p["stop"])

    def gradient(self, x: Floats, of_scores: Floats) -> dict[str, Floats]:
        """Returns the gradient of a loss by the parameters, from its gradient by the scores."""
        p = self.parameters
        inner = np.tanh(x @ p["W"] + p["b"])
        of_items = of_scores[:-1]
        before = of_items[:, None] * p["v"] * (1.0 - inner**2)
        return {
            "a": x.T @ of_items,
            "W": x.T @ before,
            "b": before.sum(0),
            "v": inner.T @ of_items,
            "stop": of_scores[-1:],
        }

    def draws(self, x: Floats, most: int, generator: np.random.Generator) -> list[tuple[int, ...]]:
        """Draws `GROUP` slates of at most `most` candidates, the first drawn first."""
        scores = self.scores(x)
        orders = [gumbel_top_k(scores, most, generator) for _ in range(GROUP)]
        return [order[: order.index(len(x))] if len(x) in order else order for order in orders]

    def ranked(self, x: Floats) -> list[int]:
        """Returns the candidates, the best first, of equal ones the earlier."""
        return [int(index) for index in np.argsort(-self.scores(x)[:-1], kind="stable")]


def slate_gradient(scores: Floats, slate: Sequence[int], most: int) -> Floats:
    """Returns the gradient of the log-probability of `slate` by the scores, stopping last. A short slate ended by stopping."""
    drawn = list(slate) + ([len(scores) - 1] if len(slate) < min(most, len(scores) - 1) else [])
    left, out = scores.copy(), np.zeros(len(scores))
    for index in drawn:
        odds = np.exp(left - left.max())
        out -= odds / odds.sum()
        out[index] += 1.0
        left[index] = -np.inf
    return out


@dataclass(frozen=True, slots=True)
class EvidenceQuestion:
    """A training question. x: features of its candidates; reward: returns the reward of a slate."""

    x: Floats
    reward: Callable[[tuple[int, ...]], float]


def train_evidence(
    questions: Sequence[EvidenceQuestion],
    *,
    seed: int = 0,
    epochs: int = 15,
    rate: float = 0.01,
    most: int = MOST,
    permuted: bool = False,
    names: Sequence[str] = FEATURES,
    first: float = 4.0,
) -> EvidencePolicy:
    """Trains a policy by REINFORCE with the group's mean as the baseline (A = R - mean, as in the paper, not divided by the
    deviation) and Adam.

    permuted: a control in which each question gets the advantages of another one of its batch, so that nothing can be learned
    from rewards. names: the features of `x`; first: as in `EvidencePolicy`.
    """
    generator = np.random.default_rng(seed)
    policy = EvidencePolicy(seed, names=names, first=first)
    usable = [question for question in questions if len(question.x)]
    mean = {name: np.zeros_like(value) for name, value in policy.parameters.items()}
    square = {name: np.zeros_like(value) for name, value in policy.parameters.items()}
    step = 0
    for _ in range(epochs):
        order = generator.permutation(len(usable))
        for begin in range(0, len(order), BATCH):
            batch_questions = [usable[index] for index in order[begin : begin + BATCH]]
            slates = [policy.draws(question.x, most, generator) for question in batch_questions]
            drawn = zip(batch_questions, slates, strict=True)
            rewards = np.array([list(map(question.reward, of_question)) for question, of_question in drawn])
            advantages = rewards - rewards.mean(axis=1, keepdims=True)
            if permuted:
                advantages = np.roll(advantages, 1, axis=0)
                advantages = generator.permuted(advantages, axis=1)
            total = {name: np.zeros_like(parameter) for name, parameter in policy.parameters.items()}
            for asked_question, drawn_slates, weights in zip(batch_questions, slates, advantages, strict=True):
                scores = policy.scores(asked_question.x)
                ups = sum(
                    weight * slate_gradient(scores, slate, most)
                    for slate, weight in zip(drawn_slates, weights, strict=True)
                )
                for name, value in policy.gradient(asked_question.x, np.asarray(ups)).items():
                    total[name] += value / (GROUP * len(batch_questions))
            step += 1
            for name, value in total.items():
                mean[name] = 0.9 * mean[name] + 0.1 * value
                square[name] = 0.999 * square[name] + 0.001 * value**2
                moved = mean[name] / (1 - 0.9**step) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
                policy.parameters[name] = policy.parameters[name] + rate * moved
                if name in ("W", "v"):
                    policy.parameters[name] *= 1.0 - DECAY
    return policy
