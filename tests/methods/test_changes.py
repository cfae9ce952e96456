"""The small policy that adds, overwrites and gives up: its probabilities are what it does, and reward reaches them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.model import EncoderIdentity
from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
from keepworth.methods.writers.changes import (
    PAIR_FEATURES,
    ChangePolicy,
    ChangeStream,
    Played,
    learned_changes,
    line_at,
    pair_features,
    writer_of,
)

TEXTS = [
    "Ann lives in Oslo.",
    "Bob's number is 4711.",
    "Ann moved to Rome.",
    "Forget where Ann lives.",
    "Call Bob on 4711.",
]


class Hashing:
    """Three numbers for each text, by the letters in it."""

    identity = EncoderIdentity("letters", 3, True)

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = np.array([[1.0 + text.count(letter) for letter in "aeo"] for text in texts])
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def made(texts: list[str] = TEXTS) -> np.ndarray:
    return pair_features(texts, Hashing().encode(texts), np.eye(3))


def policy(seed: int, shy: float = 0.0) -> ChangePolicy:
    start = ChangePolicy.start(len(PAIR_FEATURES) + 3, seed, shy=shy)
    return replace(start, inner=3.0 * start.inner, outer=3.0 * start.outer)


def test_features_of_pairs_by_hand() -> None:
    features = dict(zip(PAIR_FEATURES, made()[2, 0], strict=False))
    assert features["shared words"] == pytest.approx(
        4 / 7
    )  # 4 times one of seven: ann, of ann lives in oslo moved to rome
    assert features["shared names"] == pytest.approx(4 / 3)  # Ann, of Ann Oslo Rome
    assert made()[4, 1, PAIR_FEATURES.index("shared numbers")] == 4.0
    assert made()[2, 0, PAIR_FEATURES.index("shared numbers")] == 0.0
    cosine = float(Hashing().encode(TEXTS)[2] @ Hashing().encode(TEXTS)[0])
    assert features["cosine"] == pytest.approx(5 * (cosine - 0.5))
    assert (made()[3, :, -3:] == Hashing().encode(TEXTS)[3]).all(), "the wording of the new fact, whatever the entry"


@given(st.integers(0, 200), st.booleans())
def test_what_it_plays_is_what_a_bank_does_and_what_it_says_in_use(seed: int, drawn: bool) -> None:
    played = policy(seed).play(made(), np.random.default_rng(seed) if drawn else None)
    bank, writer = BoundedBank(len(TEXTS)), writer_of(policy(seed), Hashing(), np.eye(3))
    for text, line, (numbers, place, probabilities) in zip(TEXTS, played.lines, played.chosen, strict=True):
        assert bank.numbers == numbers
        assert line == line_at(place)
        assert len(probabilities) == 1 + 3 * len(numbers)
        assert drawn or writer(bank.texts, text) == line
        bank.write(line, text)
    assert (bank.numbers, bank.invalid, bank.refused) == (played.numbers, 0, 0)


def log_probability(own: ChangePolicy, played: Played) -> float:
    total, every = 0.0, own.logits(made())
    for new, (bank, place, _) in enumerate(played.chosen):
        numbers = np.concatenate([[0.0], every[new, list(bank)].ravel()])
        total += numbers[place] - np.log(np.exp(numbers).sum())
    return float(total)


@pytest.mark.parametrize("part", ["inner", "outer"])
def test_the_slope_is_that_of_the_log_probability(part: str) -> None:
    own = policy(3)
    one, other = (own.play(made(), np.random.default_rng(seed)) for seed in (1, 2))
    assert one.lines != other.lines
    slope = getattr(own.log_slope(made(), [one, other], [1.0, -0.5]), part)
    for place in ((0, 0), (1, 2), (4, 1)):
        sides = []
        for step in (1e-5, -1e-5):
            values = getattr(own, part).copy()
            values[place] += step
            moved = replace(own, **{part: values})
            sides.append(log_probability(moved, one) - 0.5 * log_probability(moved, other))
        assert slope[place] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-8)


def test_the_slope_of_curiosity_is_that_of_the_entropy_of_the_verb() -> None:
    own = policy(4)
    played = own.play(made(), np.random.default_rng(1))

    def open_about_the_verb(moved: ChangePolicy) -> float:
        total, every = 0.0, moved.logits(made())
        for new, (bank, _, probabilities) in enumerate(played.chosen):
            for place, entry in enumerate(bank):
                verbs = np.exp(every[new, entry]) / np.exp(every[new, entry]).sum()
                total -= probabilities[1 + 3 * place : 4 + 3 * place].sum() * float(verbs @ np.log(verbs))
        return total

    slope = own.log_slope(made(), [played], [0.0], curious=1.0)
    for place in ((0, 0), (3, 2), (16, 1)):
        sides = []
        for step in (1e-5, -1e-5):
            values = own.outer.copy()
            values[place] += step
            sides.append(open_about_the_verb(replace(own, outer=values)))
        assert slope.outer[place] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-8)


def test_reward_teaches_it_to_overwrite_and_permuted_reward_does_not() -> None:
    """Worth 1 where the second of two facts is alone in the bank: UPDATE 0, or DELETE 0 before it came."""
    features = made([TEXTS[0], TEXTS[2]])
    streams = [ChangeStream(features, lambda numbers: float(tuple(numbers) == (1,)))] * 8
    learned = learned_changes(streams, 0, passes=12, at_once=4)
    assert learned.play(features).lines == ("ADD", "UPDATE 0")
    control = learned_changes(streams, 0, passes=12, at_once=4, permuted=True)
    assert control.play(features).chosen[1][2][1] < 0.8 < learned.play(features).chosen[1][2][1]
