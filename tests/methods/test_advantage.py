"""What leaves a full memory: nobody who writes much drives out what others know."""

from __future__ import annotations

import pytest

from keepworth import policy
from keepworth.memory.item import Status
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice

THINGS = ("shirt", "coat", "lamp", "chair", "kettle", "bicycle", "novel", "carpet", "violin", "mirror")
ACTIONS = ("refund", "replace")


def opened() -> Experience:
    return Experience(policy("advantage", capacity=20), HashedWords(256))


def told(experience: Experience, question: str, action: str, by: str) -> None:
    use = experience.recall(question, "", ACTIONS, by=by)
    experience.finish([(use, action)], 1.0, by=by)


def left(experience: Experience, source: str) -> int:
    return sum(
        item.provenance.source == source and item.status in (Status.ACTIVE, Status.CANDIDATE)
        for item in experience.pool.items
    )


@pytest.mark.parametrize("by", ["", "ana"])
def test_a_flood_of_one_question_does_not_drive_out_what_is_known(by: str) -> None:
    """By age alone the flood's last twenty were all that was left. Nothing but what they say tells the items apart where nobody
    is named."""
    experience = opened()
    for number, thing in enumerate(THINGS):
        told(experience, f"{thing} of the year {1990 + number}", ACTIONS[number % 2], by)
    for number in range(60):
        told(experience, f"one and the same spoon is bent again serial{number}", "refund", "" if not by else "mallory")
    known = [item for item in experience.pool.items[: len(THINGS)] if item.status is Status.ACTIVE]
    assert len(known) == len(THINGS)
    assert sum(item.status is Status.ACTIVE for item in experience.pool.items) <= 20


@pytest.mark.parametrize("sources", [1, 100])
def test_records_from_outside_never_take_the_places_of_what_was_learned_here(sources: int) -> None:
    experience = opened()
    for number, thing in enumerate(THINGS):
        told(experience, f"the {thing} arrived broken", ACTIONS[number % 2], f"user-{number}")
    for number in range(100):
        experience.observe(
            Advice(
                f"about {number} apples and {7 * number} pears", "t", do=("refund",), source=f"web-{number % sources}"
            )
        )
        told(experience, "the shirt arrived broken", "refund", "user-0")
    assert all(left(experience, f"own:user-{number}") for number in range(len(THINGS)))
    assert sum(left(experience, f"web-{number}") for number in range(sources)) <= 10


def test_the_person_with_the_most_items_gives_first() -> None:
    experience = opened()
    for number, thing in enumerate(THINGS):
        told(experience, f"the {thing} arrived broken", ACTIONS[number % 2], f"user-{number}")
    for number in range(40):
        told(experience, f"word{number} other{number} more{number} than{number}", "refund", "mallory")
    assert [left(experience, f"own:user-{number}") for number in range(len(THINGS))] == [1] * len(THINGS)
    assert left(experience, "own:mallory") == 10


def test_a_source_says_the_same_of_one_situation_three_times_at_most() -> None:
    experience = opened()
    for number in range(6):
        told(experience, f"the shirt arrived broken on day {number}", "refund", "mallory")
        told(experience, f"the shirt arrived broken on day {number}", "refund", "ana")
    assert (left(experience, "own:mallory"), left(experience, "own:ana")) == (3, 3)
