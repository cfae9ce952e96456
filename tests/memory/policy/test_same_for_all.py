"""Methods that keep cases choose among the same items: those whose advice can be followed here, and those of the same episode."""

from __future__ import annotations

import pytest

from keepworth.memory.by_name import policies_of_cases, policy
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import OWN
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice

ENCODER = HashedWords(128)


def filled(name: str, **settings: object) -> Experience:
    """Forty cases of actions that are not offered later, alike to the query, and three unlike ones of those that are."""
    experience = Experience(policy(name, **settings), ENCODER)
    for number in range(40):
        use = experience.recall("torn shirt arrived", f"n{number}", ("burn it", "bury it"))
        experience.finish([(use, ("burn it", "bury it")[number % 2])], 1.0)
    for action in ("refund", "replace", "refund"):
        use = experience.recall("torn coat", "", ("refund", "replace"))
        experience.finish([(use, action)], 1.0)
    return experience


@pytest.mark.parametrize("name", policies_of_cases())
def test_what_cannot_be_done_is_no_candidate_of_any_method(name: str) -> None:
    experience = filled(name)
    use = experience.recall("torn shirt arrived", "", ("refund", "replace"))
    advised = {
        action
        for row in use.candidates.rows
        for action in (*experience.pool.items[row].metadata["do"], *experience.pool.items[row].metadata["avoid"])
    }
    assert len(use.candidates.rows)
    assert advised <= {"refund", "replace"}


@pytest.mark.parametrize("name", policies_of_cases())
def test_items_of_the_same_episode_are_candidates_of_every_method(name: str) -> None:
    experience = filled(name)
    row = experience.observe(Advice("a sign on the wall", "a sign on the wall", do=("replace",), source=OWN))
    assert row in experience.recall("torn coat", "", ("refund", "replace")).candidates.rows


def test_a_rival_may_show_them_before_anything_else_newest_or_oldest_first() -> None:
    for here in ("newest", "oldest"):
        experience = filled("exprag", here=here, k=3)
        rows = [
            experience.observe(Advice(f"sign {number}", "sign", do=("replace",), source=OWN)) for number in range(2)
        ]
        shown = experience.recall("torn coat", "", ("refund", "replace")).rows
        assert shown[:2] == (rows[::-1] if here == "newest" else rows)
        assert len(shown) == 3
    with pytest.raises(InvalidPolicy, match="oldest"):
        policy("exprag", here="first")


def test_a_record_of_several_actions_is_possible_by_any_of_them_also_after_a_revision() -> None:
    experience = Experience(policy("rememberer"), ENCODER)
    for action, reward in (("burn it", 0.0), ("refund", 1.0)):
        use = experience.recall("go", "here", ("burn it", "refund"))
        experience.finish([(use, action)], reward)
    assert len(experience.recall("go", "here", ("refund", "wait")).candidates.rows) == 1
    assert len(experience.recall("go", "here", ("burn it", "wait")).candidates.rows) == 1
    assert len(experience.recall("go", "here", ("wait", "leave")).candidates.rows) == 0
