"""The reward terms of Memory-T1 by hand, its gradient by differences, and that a choice is learned where there is one."""

from __future__ import annotations

import math
from datetime import datetime
from itertools import permutations

import numpy as np
import pytest

from keepworth.memory.choose.slates import plackett_luce
from keepworth.memory.time_window import TimeWindow
from keepworth.methods.studies import _evidence_reward as rewards
from keepworth.methods.studies import _slates as choosing
from keepworth.methods.studies.memory_t1 import Widening

MAY = TimeWindow(datetime(2023, 5, 1), datetime(2023, 5, 31, 23, 59))


def days(first: int, last: int, month: int = 5) -> TimeWindow:
    return TimeWindow(datetime(2023, month, first), datetime(2023, month, last, 23, 59))


@pytest.mark.parametrize("asked", ["study", "studying"])
def test_a_word_is_found_in_its_other_forms(asked: str) -> None:
    """The index holds stems, so that the question has to ask for stems."""
    assert choosing.lexical_scores(asked, ["I am studying.", "Hello."])[0] > 0.0


def test_grounding_tells_one_right_of_three_from_two() -> None:
    gold = {"a", "b", "c"}
    assert rewards.grounding(gold, gold) == 1.0
    assert rewards.grounding({"a"}, gold) == pytest.approx(-1 / 3)
    assert rewards.grounding({"a", "b"}, gold) == pytest.approx(1 / 3)
    assert rewards.grounding({"a", "x"}, gold) == pytest.approx(-0.5)
    assert rewards.grounding({"x"}, gold) == rewards.grounding((), gold) == -1.0
    assert rewards.grounding((), ()) == 1.0


def test_proximity_falls_around_a_week() -> None:
    assert rewards.session_proximity(0.0) == pytest.approx(1.5 / (1 + math.exp(-7)) - 0.5)
    assert rewards.session_proximity(7.0) == rewards.session_proximity(-7.0) == pytest.approx(0.25)
    assert rewards.session_proximity(8.0) == pytest.approx(1.5 / (1 + math.e) - 0.5)
    assert rewards.session_proximity(1e9) == pytest.approx(-0.5)


def test_events_inside_count_more_than_events_that_overlap() -> None:
    assert rewards.event_fidelity([days(3, 4)], MAY) == 1.0
    assert rewards.event_fidelity([TimeWindow(datetime(2023, 4, 20), datetime(2023, 5, 2))], MAY) == 0.5
    assert rewards.event_fidelity([days(1, 2, month=7)], MAY) == -1.0
    assert rewards.event_fidelity([days(3, 4), days(1, 2, month=7)], MAY) == 0.0
    assert rewards.event_fidelity([], MAY) is None


def test_coverage_is_of_the_best_answer() -> None:
    assert rewards.answer_coverage(["I bought a road bike."], ["the road bike"]) == 1.0
    assert rewards.answer_coverage(["I bought a bike."], ["road bike", "red road bike"]) == 0.5
    assert rewards.answer_coverage([], ["bike"]) == rewards.answer_coverage(["bike"], []) == 0.0


def test_the_terms_of_a_choice_add_up_as_the_paper_weighs_them() -> None:
    reward = rewards.evidence_reward(
        texts=["On 3 May I bought a road bike.", "Hello."], answers=["road bike"], chosen={"a", "x"}, gold={"a"},
        gaps=[0.0, 7.0], fidelities=[1.0, None],
    )  # fmt: skip
    near = (1.5 / (1 + math.exp(-7)) - 0.5 + 0.25) / 2
    assert reward == pytest.approx(0.6 * 1.0 + 0.2 * 0.0 + 0.2 * (0.5 * near + 0.5 * 1.0))
    nothing = rewards.evidence_reward(texts=[], answers=["bike"], chosen=(), gold={"a"}, gaps=[], fidelities=[])
    assert nothing == pytest.approx(-0.2)


def test_widened_window_never_excludes_every_entry() -> None:
    said = [datetime(2023, 4, 27), datetime(2023, 5, 3), datetime(2023, 6, 20), datetime(2023, 8, 1)]
    assert Widening(0, 0).keeps(MAY, said).tolist() == [False, True, False, False]
    assert Widening(4, 30).keeps(MAY, said).tolist() == [True, True, True, False]
    assert Widening(0, 0).keeps(None, said).all()
    assert Widening(0, 0).keeps(MAY, said[2:]).all()


def candidate(text: str, day: int, lexical: float, speaker: str = "user") -> choosing.CandidateEvidence:
    return choosing.CandidateEvidence(text, datetime(2023, 6, day, 9), speaker, lexical, 0.5)


def test_features_say_where_an_entry_stands_to_the_window() -> None:
    entries = [candidate("I met Emma.", 17, 2.0), candidate("Yesterday I met Tom.", 19, 4.0, "assistant")]
    found = choosing.features("Who did I meet 5 days ago?", "2023-06-22T11:12", entries)
    by_name = dict(zip(choosing.FEATURES, found.T.tolist(), strict=True))
    assert by_name["words"] == [0.5, 1.0]
    assert by_name["rank by words"] == [0.5, 1.0]
    assert by_name["inside"] == [1.0, 0.0]
    assert by_name["days before"] == [0.0, 0.0]
    assert by_name["days after"][0] == 0.0 < by_name["days after"][1]
    assert by_name["recency"][0] < by_name["recency"][1]
    assert by_name["speaker asked about"] == [1.0, 0.0]
    assert by_name["speaks of a time"] == [0.0, 1.0]
    assert by_name["of one in the window"] == [0.0, 0.0]
    assert choosing.features("Who?", "", []).shape == (0, len(choosing.FEATURES))


def test_slates_have_the_probability_that_the_gradient_is_of() -> None:
    """Summed over all slates of at most two of three, those that stop included, the probability is 1 and its gradient is 0."""
    scores = np.array([0.3, -1.0, 0.7, 0.1])
    slates = [(), (0,), (1,), (2,), *permutations(range(3), 2)]

    def probability(own: np.ndarray, slate: tuple[int, ...]) -> float:
        return plackett_luce(own, slate if len(slate) == 2 else (*slate, 3))

    assert sum(probability(scores, slate) for slate in slates) == pytest.approx(1.0)
    for slate in slates:
        by_hand = []
        for place in range(4):
            step = np.eye(4)[place] * 1e-6
            ends = [np.log(probability(scores + sign * step, slate)) for sign in (1, -1)]
            by_hand.append((ends[0] - ends[1]) / 2e-6)
        assert choosing.slate_gradient(scores, slate, 2) == pytest.approx(by_hand, abs=1e-6)


def test_the_gradient_of_the_network_is_the_difference_quotient() -> None:
    policy, draws = choosing.EvidencePolicy(0, hidden=3), np.random.default_rng(0)
    policy.parameters["v"] = draws.normal(size=3)
    x, weights = draws.random((4, len(choosing.FEATURES))), draws.normal(size=5)
    exact = policy.gradient(x, weights)
    for name, own in policy.parameters.items():
        for place in np.ndindex(own.shape):
            ends = []
            for sign in (1, -1):
                own[place] += sign * 1e-6
                ends.append(float(policy.scores(x) @ weights))
                own[place] -= sign * 1e-6
            assert exact[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


def worlds(seed: int) -> list[choosing.EvidenceQuestion]:
    """Right is the entry inside the window, and words point at another one."""
    draws, made = np.random.default_rng(seed), []
    for _ in range(24):
        x = draws.random((6, len(choosing.FEATURES))) * 0.2
        wrong, right = (int(each) for each in draws.permutation(6)[:2])
        x[wrong, 0], x[right, choosing.FEATURES.index("inside")] = 1.0, 1.0

        def reward(slate: tuple[int, ...], right: int = right) -> float:
            return rewards.grounding(slate, {right})

        made.append(choosing.EvidenceQuestion(x, reward))
    return made


def first_right(policy: choosing.EvidencePolicy) -> float:
    inside = choosing.FEATURES.index("inside")
    return float(np.mean([policy.ranked(world.x)[0] == int(world.x[:, inside].argmax()) for world in worlds(1)]))


def test_evidence_policy_learns_from_rewards_and_not_from_permuted_ones() -> None:
    assert first_right(choosing.EvidencePolicy(0)) <= 0.2
    assert first_right(choosing.train_evidence(worlds(0), epochs=60, rate=0.02)) >= 0.9
    assert first_right(choosing.train_evidence(worlds(0), epochs=60, rate=0.02, permuted=True)) <= 0.6
