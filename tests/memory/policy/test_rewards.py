"""Which rewards are better than others decides; and nobody's count for more than a share."""

from __future__ import annotations

import numpy as np

from keepworth import policy
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.rewards import EpisodeClock

ENCODER = HashedWords()


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
