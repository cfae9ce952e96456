"""What was rewarded near a question is always a candidate there, and near duplicates share one place."""

from __future__ import annotations

import pytest

from keepworth import Memory

ASKED = "how do I reset the router"
RIGHT = "the router is reset by holding the button at the back for ten seconds"


def crowded(number: int, top_k: int) -> tuple[Memory, str]:
    """A memory with a note whose record is perfect, and notes that are nearer to the question."""
    memory = Memory(encoder="hashing", seed=1)
    good = memory.add(RIGHT, metadata={"team": "red"}).id
    memory.add_many(["lunch is at noon", "the bus leaves at seven"])
    for _ in range(40):
        hits = memory.search(ASKED, top_k=top_k)
        memory.reward(hits.decision, float(good in [hit.id for hit in hits]))
    memory.add_many([f"{ASKED}: pull plug number {index}" for index in range(number)], source="mallory")
    return memory, good


@pytest.mark.parametrize("top_k", [1, 5])
@pytest.mark.parametrize("number", [6, 20, 80])
def test_proven_note_is_shown_among_nearer_duplicates(number: int, top_k: int) -> None:
    memory, good = crowded(number, top_k)
    shown = list[bool]()
    for _ in range(30):
        hits = memory.search(ASKED, top_k=top_k)
        shown.append(good in [hit.id for hit in hits])
        memory.reward(hits.decision, float(shown[-1]))
    assert sum(shown) >= 28
    assert all(shown[-20:])


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_proven_items_respect_filters_and_scopes(mode: str) -> None:
    memory, good = crowded(80, 1)
    for _ in range(10):
        hits = memory.search(ASKED, top_k=1, mode=mode)
        memory.reward(hits.decision, float(hits[0].id == good))
    found = {hit.id for hit in memory.search(ASKED, top_k=5, mode=mode, explore=False)}
    assert good in found
    assert good not in {hit.id for hit in memory.search(ASKED, top_k=5, mode=mode, where={"team": "blue"})}
    assert good not in {hit.id for hit in memory.search(ASKED, top_k=5, mode=mode, user_id="ana")}
    memory.delete(good)
    assert good not in {hit.id for hit in memory.search(ASKED, top_k=5, mode=mode)}


@pytest.mark.parametrize("policy", ["default", None])
def test_near_duplicates_leave_room_for_other_notes(policy: str | None) -> None:
    memory = Memory(encoder="hashing", policy=policy)
    memory.add_many([f"run make deploy (day {day})" for day in range(8)])
    other = memory.add("make deploy needs the VPN").id
    hits = memory.search("how do I run make deploy", top_k=3)
    assert [hit.id for hit in hits].index(other) == 1
    everything = [hit.id for hit in memory.search("how do I run make deploy", top_k=10)]
    assert len(everything) == len(set(everything)) == 9


def test_distant_items_do_not_displace_near_duplicates() -> None:
    memory = Memory(encoder="hashing")
    memory.add_many([f"the invoice of may number {number} is paid" for number in range(4)])
    memory.add_many(["lunch is at noon", "the bus leaves at seven"])
    found = memory.search("which invoice of may is paid", top_k=4)
    assert all("invoice" in hit.text for hit in found)
