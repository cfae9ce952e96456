"""MR.Rec in small: memories and rewards by hand, no look at what is wanted, and that asking is learned where there is a rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keepworth.base.errors import KeepworthError
from keepworth.methods.studies import mr_rec
from keepworth.methods.studies._aspects import GlobalMemory, LocalMemory, Pattern, RecommendationRequest
from keepworth.methods.studies._ratings import Rating, Ratings, make_ratings
from keepworth.worlds.splits import side

ITEMS = {
    id: tuple(categories.split())
    for id, categories in {
        "a": "film dark slow", "b": "film dark", "c": "film slow", "d": "film", "e": "film funny", "n": "novel dark",
    }.items()
}  # fmt: skip
HISTORY = (Rating("u", "n", 5.0), Rating("u", "e", 1.0), Rating("u", "d", 3.0))


def request(wanted: str = "b") -> RecommendationRequest:
    return RecommendationRequest("u", "film", HISTORY, wanted, ("a", "b", "c"))


def recommendation(wanted: str = "b") -> mr_rec.Recommendation:
    of = Ratings(ITEMS, {"u": HISTORY})
    return mr_rec.Recommendation(request(wanted), ITEMS, GlobalMemory([request(wanted)], of))


def test_a_pattern_is_the_mean_beside_the_usual_shrunk_by_three_ratings() -> None:
    local = LocalMemory(HISTORY, ITEMS)
    assert local.usual == 3.0
    assert local.profile["dark"] == Pattern(1, pytest.approx(2.0 / 4.0))
    assert local.profile["film"] == Pattern(2, pytest.approx((-2.0 + 0.0) / 5.0))
    assert local.pattern("dark", "novel") == Pattern(1, pytest.approx((2.0 + 3 * 0.5) / 4.0))
    assert local.pattern("dark", "film") == Pattern(0, pytest.approx(0.5)), "nothing there: the profile"
    assert local.pattern("slow", "film") == Pattern(0, 0.0)
    assert (local.holds("dark"), local.holds("slow")) == (True, False)


def test_global_memory_weighs_choices_by_user_stance() -> None:
    """b is dark, and of a and c one is: 0.5 times (1 - 1/2), over one request and ten without a say."""
    memory = recommendation().memory
    assert memory.decides["film"] == pytest.approx({"dark": 0.5 * 0.5 / 11.0, "slow": 0.0})
    assert memory.popularity == {"n": 1, "e": 1, "d": 1}


def test_ranks_and_rewards_by_hand() -> None:
    each = recommendation()
    assert each.aspects == ("dark", "slow")
    np.testing.assert_array_equal(each.has, [[1, 1], [1, 0], [0, 1]])
    dark, nothing = each.ideal([0]), each.ideal([])
    assert each.rank(nothing) == 2.0  # of three equals
    assert each.rank(dark) == 1.5  # a is as dark
    assert each.reward([]) == pytest.approx(0.1 + 1 / math.log2(3.0))
    assert each.reward([0]) == pytest.approx(0.1 + 1 / math.log2(2.5) + 0.1)
    assert each.reward([0, 1]) == pytest.approx(0.1 + 1 / math.log2(2.5) + 0.1 * 0.5)
    assert each.best_slate() == (0,)


def test_features_do_not_reveal_the_wanted_item() -> None:
    one = recommendation("b")
    other = mr_rec.Recommendation(request("c"), ITEMS, one.memory)
    np.testing.assert_array_equal(one.x, other.x)
    assert one.x.shape == (2, len(mr_rec.ASPECT_FEATURES))


def test_chance_and_the_two_terms() -> None:
    assert mr_rec.chance(2) == pytest.approx((1.0 + 1 / math.log2(3)) / 2)
    assert (mr_rec.memory_use([]), mr_rec.memory_use([True, False])) == (0.0, 0.5)
    assert mr_rec.rank_reward(1.0) == 1.0


def test_a_request_is_for_the_latest_rating_above_the_mean_before_it() -> None:
    user = next(name for name in map(str, range(99)) if side(name) == "train")
    items = {str(n): ("film",) for n in range(20)}
    own = tuple(Rating(user, str(n), rating) for n, rating in enumerate([3, 3, 3, 3, 3, 4, 5, 1]))
    of = Ratings(items, {user: own})
    (made,) = mr_rec.requests(of, "train")
    assert (made.wanted, len(made.history), made.candidates) == ("6", 6, tuple(str(n) for n in range(6, 20)))
    with pytest.raises(KeepworthError, match="none of 1 users makes a request on the side 'test'"):
        mr_rec.requests(of, "test")
    with pytest.raises(KeepworthError, match="1 training requests"):
        mr_rec.crossed([made], of)


def test_no_training_request_meets_a_global_memory_that_saw_it() -> None:
    of = make_ratings(users=40)
    training = mr_rec.requests(of, "train")
    taught = mr_rec.crossed(training, of)
    assert sorted(each.request.user for each in taught) == sorted(each.user for each in training)
    for each in taught:
        others = training[1::2] if each.request in training[::2] else training[::2]
        assert each.request not in others
        assert each.memory.decides == GlobalMemory(others, of).decides


def test_deciding_aspects_are_learned_from_rewards() -> None:
    """In a world where two of twelve aspects decide, the policy ranks what is wanted above what popularity and chance do."""
    of = make_ratings(users=120)
    training = mr_rec.requests(of, "train")
    policy = mr_rec.train_asking(mr_rec.crossed(training, of))
    test = [mr_rec.Recommendation(one, of.items, GlobalMemory(training, of)) for one in mr_rec.requests(of, "test")]
    slates = [mr_rec.asking(policy, each.x) for each in test]
    assert all(len(slate) <= mr_rec.MOST for slate in slates)
    learned = np.mean(
        [mr_rec.rank_reward(each.rank(each.ideal(slate))) for each, slate in zip(test, slates, strict=True)]
    )
    popular = np.mean([mr_rec.rank_reward(each.rank(each.ideal(()))) for each in test])
    assert learned > popular + 0.05
    assert learned > np.mean([mr_rec.chance(len(each.request.candidates)) for each in test]) + 0.1
