"""What success pays does not matter, only which rewards are better than others; and nobody's count for more than a share."""

from __future__ import annotations

import numpy as np

from keepworth import policy
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.rewards import EpisodeClock, RewardScale

ENCODER = HashedWords()


def test_a_case_filed_before_the_scale_was_known_is_filed_anew() -> None:
    experience = Experience(policy("mixture"), ENCODER)
    for text, action, reward in (("torn shirt", "refund", 0.6), ("torn coat", "replace", 1.0)):
        use = experience.recall(text, "", ("refund", "replace"))
        experience.finish([(use, action)], reward)
    first, second = experience.pool.items
    assert (first.metadata["avoid"], first.metadata["good"]) == (("refund",), False)
    assert second.metadata["do"] == ("replace",)
    assert "earned 0.6" in first.text
    assert experience.pool.warns[0]


def test_graded_rewards_are_judged_by_what_is_usual_and_not_by_half_of_what_is_possible() -> None:
    experience, generator = Experience(policy("mixture"), ENCODER), np.random.default_rng(0)
    for number in range(60):
        action = ("refund", "replace")[number % 2]
        use = experience.recall("torn shirt", "", ("refund", "replace"))
        experience.finish([(use, action)], float(generator.uniform(0.25, 0.4) if action == "refund" else 0.1))
    use = experience.recall("torn shirt", "", ("refund", "replace"), frozen=True)
    advised = {pair[:2] for pair in experience.present(use).advice}
    assert ("refund", 1.0) in advised
    assert ("replace", 1.0) not in advised


def test_the_scale_is_what_was_seen() -> None:
    scale = RewardScale()
    assert not scale.see([0.4, 0.4])
    assert scale.of(0.4) == 0.5  # nobody knows yet whether that is much
    assert scale.see([0.0])
    assert [scale.of(value) for value in (0.0, 0.2, 0.4)] == [0.0, 0.5, 1.0]
    assert not scale.see([0.41])  # hardly more than the best so far
    assert scale.of(0.41) == 1.0
    assert scale.see([0.8])
    binary = RewardScale()
    assert not binary.see([1.0])
    assert binary.of(1.0) == 1.0
    assert not binary.see([0.0])


def test_one_persons_extreme_reward_does_not_make_everything_else_small() -> None:
    scale = RewardScale()
    scale.see([0.0, 0.9], by="mallory")
    assert scale.see([0.0, 0.4])  # the program's own are another matter
    assert scale.of(0.4) == 1.0
    assert not scale.see([1.0], by="mallory")
    assert scale.of(0.4) == scale.of(1.0) == 1.0


def test_nobody_makes_time_pass_for_others() -> None:
    clock = EpisodeClock()
    for number in range(100):
        clock.go_on(clock.share(f"user-{number % 10}"))
    assert clock.now == 100
    for _ in range(400):
        clock.go_on(clock.share("mallory"))
    assert clock.now < 220
    before = clock.now
    for _ in range(100):
        clock.go_on(clock.share())
    assert clock.now == before + 100
