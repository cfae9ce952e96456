"""ContextEvolve in text form: a proposer improves a scored text edit by edit, with a context made by three roles
("ContextEvolve", arXiv 2602.02597: an evolutionary search over code by models behind an interface, without training).

    ended = evolve("digits +1", score, propose, rounds=60)
    ended.best.text, ended.best.score

* the *summariser* describes a text (the state): here by the text itself;
* the *navigator* says which edits helped and which hurt (in place of a policy gradient): the mean of the gains of each edit over
  its parents, with one gain of 0 added;
* the *sampler* chooses earlier texts to show, by how much they changed the score (in place of a replay buffer): P(i) proportional
  to (|score_i - score_parent| + eps)^a, a = 0.6; nothing is drawn twice.

The parent of the next edit is the best text so far, of equals the latest. Only the abstract and short accounts of the paper were
available, so these forms are reconstructions, and its way of choosing the parent is unknown to us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keepworth.episodes.arrays import Floats
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.methods.policies._slates import gumbel_top_k
from keepworth.methods.recipes._bank.fact_streams import FactStream, folds_of, longmemeval_streams
from keepworth.methods.writers._importance import FEATURES, hand_features
from keepworth.registry import Method

EXPONENT, EPSILON, SHOWN_TEXTS = 0.6, 0.01, 3


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A scored text. parent: its number, -1 for the first; edit: the change to the parent; gain: score minus the parent's, 0 for
    the first."""

    number: int
    text: str
    score: float
    parent: int = -1
    edit: str = ""
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class EvolveContext:
    """The proposer's input: the parent's state, the mean gain of each tried edit, and earlier texts with their scores."""

    parent: ScoredText
    gains: Mapping[str, float]
    shown: tuple[ScoredText, ...]


Score = Callable[[str], float]
Propose = Callable[[EvolveContext], "tuple[str, str] | None"]
"""The context -> (name of the edit, the new text); None without a usable proposal."""


def mean_gains(attempts: Sequence[ScoredText]) -> dict[str, float]:
    """Returns the navigator's rule: (sum of the gains of an edit) / (how often it was tried + 1)."""
    sums, counts = dict[str, float](), Counter[str]()
    for attempt in attempts:
        if attempt.parent >= 0:
            sums[attempt.edit] = sums.get(attempt.edit, 0.0) + attempt.gain
            counts[attempt.edit] += 1
    return {edit: total / (counts[edit] + 1) for edit, total in sums.items()}


def priorities(attempts: Sequence[ScoredText]) -> Floats:
    """Returns [n]: the sampler's probabilities."""
    weights = np.array([(abs(attempt.gain) + EPSILON) ** EXPONENT for attempt in attempts])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Evolved:
    """The result. attempts: in the order of scoring; curve: the best score after each round."""

    attempts: tuple[ScoredText, ...]
    curve: tuple[float, ...]

    @property
    def best(self) -> ScoredText:
        return best_of(self.attempts)


def best_of(attempts: Sequence[ScoredText]) -> ScoredText:
    """Returns the text of the highest score, of equals the latest."""
    return max(attempts, key=lambda attempt: (attempt.score, attempt.number))


def evolve(
    start: str, score: Score, propose: Propose, *, rounds: int, seed: int = 0, shown: int = SHOWN_TEXTS
) -> Evolved:
    """Runs `rounds` proposals, each from the best text so far. No text is scored twice: a repeated one uses up its round. shown:
    how many texts the sampler shows besides the parent. Raises KeepworthError for a score that is not finite."""
    draw = np.random.default_rng(seed)
    attempts = [ScoredText(0, start, _finite(score(start), start))]
    tried, curve = {start}, list[float]()
    for _ in range(rounds):
        parent = best_of(attempts)
        others = [attempt for attempt in attempts if attempt is not parent]
        picked = gumbel_top_k(np.log(priorities(others)), min(shown, len(others)), draw) if others and shown else ()
        made = propose(EvolveContext(parent, mean_gains(attempts), tuple(others[index] for index in picked)))
        if made is not None and made[1] not in tried:
            edit, text = made
            value = _finite(score(text), text)
            tried.add(text)
            attempts.append(ScoredText(len(attempts), text, value, parent.number, edit, value - parent.score))
        curve.append(best_of(attempts).score)
    return Evolved(tuple(attempts), tuple(curve))


def _finite(value: float, text: str) -> float:
    if not np.isfinite(value):
        raise KeepworthError(
            f"the score of {text!r:.60} is {value}.", "Let the score of what fails be a number below all others."
        )
    return float(value)


# The study: the text is a rule for which facts of a stream to store.

EDITS = tuple(f"{how} {name}" for name in FEATURES for how in ("more", "less"))
TEMPERATURE, MOST_WEIGHT = 0.01, 3


def weights_of(text: str) -> dict[str, int]:
    """Returns the weights in a text such as `digits +2; names +1`."""
    return {name: int(weight) for name, _, weight in (part.strip().rpartition(" ") for part in text.split(";")) if name}


def edited(text: str, edit: str) -> str:
    how, _, name = edit.partition(" ")
    weights = weights_of(text)
    weights[name] = max(-MOST_WEIGHT, min(MOST_WEIGHT, weights.get(name, 0) + (1 if how == "more" else -1)))
    return "; ".join(f"{name} {weights[name]:+d}" for name in FEATURES if weights.get(name)) or "words +0"


def evidence_kept(text: str, streams: Sequence[FactStream], budget: int) -> list[float]:
    """Returns for each stream the share of its evidence among the `budget` facts of highest score by the rule."""
    named = weights_of(text)
    weights = np.array([float(named.get(name, 0)) for name in FEATURES])
    shares = []
    for stream in streams:
        scores = [float(hand_features(fact.statement) @ weights) for fact in stream.facts]
        # Of equal scores the latest stays, as in a bank that drops the oldest.
        best = sorted(range(len(scores)), key=lambda index: (scores[index], index), reverse=True)[:budget]
        shares.append(sum(stream.evidence[number] for number in best) / sum(stream.evidence))
    return shares


def run(rounds: int = 40, length: int = 16, budget: int = 4, seed: int = 0) -> Rows:
    """Measures what the navigator adds to a search over rules for what to store: the share of evidence stored in held-out
    streams.

    Args:
        rounds: Scorings of each arm.
        length: Facts of a stream.
        budget: Facts that are stored.
        seed: Seed of the draws.
    """
    streams = longmemeval_streams(length)
    folds = folds_of(streams)
    learn = [stream for stream, fold in zip(streams, folds, strict=True) if fold]
    test = [stream for stream, fold in zip(streams, folds, strict=True) if not fold]

    def proposing(temperature: float) -> Propose:
        draw = np.random.default_rng(seed)

        def propose(context: EvolveContext) -> tuple[str, str]:
            gains = np.array([context.gains.get(edit, 0.0) for edit in EDITS])
            odds = np.exp((gains - gains.max()) / temperature)
            edit = EDITS[int(draw.choice(len(EDITS), p=odds / odds.sum()))]
            return edit, edited(context.parent.text, edit)

        return propose

    def score(text: str) -> float:
        return float(np.mean(evidence_kept(text, learn, budget)))

    start = "words +1"
    texts = {"the start": start}
    for name, temperature in (("edits drawn evenly", float("inf")), ("edits by the navigator", TEMPERATURE)):
        texts[name] = evolve(start, score, proposing(temperature), rounds=rounds, seed=seed).best.text
    arms = {name: evidence_kept(text, test, budget) for name, text in texts.items()}
    arms["oracle"] = [min(1.0, budget / sum(stream.evidence)) for stream in test]
    return rows_of(arms, [stream.cluster for stream in test])


METHOD = Method(
    kind="study",
    name="context_evolve",
    title="ContextEvolve",
    paper="arXiv 2602.02597",
    about=("A text is improved edit by edit by a score, with a context from a summariser, a navigator and a sampler"),
    tags=("token", "experiential", "formation", "evolution"),
    claim="It is 33.3 % above the best baseline with 29.0 % fewer tokens on its systems problems.",
    differs=("Rules in words replace code, and the forms are reconstructed from the abstract and short accounts."),
    label="analogue",
    make=Study(run, "share of the evidence kept"),
)
