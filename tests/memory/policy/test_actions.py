"""Which strings are one action, which are two, and where nobody knows."""

from __future__ import annotations

import numpy as np

from keepworth import policy
from keepworth.memory.policy.actions import SURE, Actions
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.rewards import EpisodeClock

ENCODER = HashedWords()


def actions(*texts: str) -> tuple[Actions, np.ndarray]:
    known = Actions(lambda text: ENCODER.encode([text])[0])
    return known, np.array([known.number(text) for text in texts])


def test_two_strings_of_one_list_are_two_actions_however_alike() -> None:
    known, (fifty, sixty) = actions("refund 50", "refund 60")
    both = np.array([fifty, sixty])
    assert not known.apart(both, both).any()
    known.offer(("refund 50", "refund 60"))
    assert known.apart(both, both)[0, 1]
    assert known.sameness(both, both)[0, 1] == 0.0


def test_answers_are_alike_by_what_they_share_beyond_the_usual() -> None:
    said = ["refund it, ref 11", "refund it, ref 22", "replace it, ref 33", "replace it, ref 44", "call them, ref 55"]
    known, numbers = actions(*said)
    same = known.sameness(numbers, numbers)
    assert same[0, 1] > 3 * same[0, 2]
    assert same[0, 1] > 3 * same[0, 4]
    assert (np.diag(same) == 1.0).all()
    assert SURE < 1.0


def after(later: str) -> Experience:
    """One success with "refund it", then six with `later` in the same situation."""
    experience = Experience(policy("mixture"), ENCODER)
    for action in ("refund it", "replace them", *(later.format(number) for number in range(6))):
        use = experience.recall("torn shirt", "")
        experience.finish([(use, action)], float(action != "replace them"))
    return experience


def test_a_success_in_other_words_does_not_count_against_an_item() -> None:
    values = {}
    for later in ("I would refund it, as in case {}", "send somebody round to them, case {}"):
        use = after(later).recall("torn shirt", "", frozen=True)
        values[later] = float(use.values.means[use.candidates.rows.tolist().index(0)])
    same, other = values.values()
    assert same > 0.3
    assert same > other


def test_where_actions_are_offered_cases_in_free_words_are_kept_if_they_may_mean_one_of_them() -> None:
    experience = after("I would refund it, as in case {}")
    use = experience.recall("torn shirt", "", ("refund it", "keep quiet"))
    advised = [
        experience.pool.items[row].metadata["do"][0] for row in use.candidates.rows if not experience.pool.warns[row]
    ]
    assert "I would refund it, as in case 5" in advised
    assert not any("replace" in experience.pool.items[row].text for row in use.candidates.rows)


# Which rewards are better than others decides; and nobody's count for more than a share.


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
