"""What is learned from somebody who only ever says what was wrong: what drew no complaint is taken for weakly right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.store.log import counting

TASKS = ("reset the router", "clean the coffee machine", "open the garage door", "call the plumber", "water the plants")
SIGNAL = "signal:unchallenged"


def taught(memory: Memory, rounds: int, *, praise: bool = False, by: str = "") -> list[int]:
    """Complain of what is wrong, round by round, and return how many of the first notes were right in each. With `praise` also
    say what is right."""
    draw = random.Random(5)
    right = {task: draw.choice([memory.add(f"to {task} use the {way} way").id for way in "ab"]) for task in TASKS}
    counts = []
    for _ in range(rounds):
        counts.append(0)
        for task in TASKS:
            with memory.episode(task, by=by) as episode:
                good = episode.search(f"how do I {task}", top_k=1)[0].id == right[task]
                counts[-1] += good
                if praise or not good:
                    episode.reward(float(good))
    return counts


def sources(memory: Memory) -> list[tuple[str, float]]:
    with memory.store.database.reading() as connection:
        return [(entry.source, entry.body["value"]) for entry in counting(connection, "kind = 'REWARD'")]


def test_complaints_alone_teach_which_note_is_right() -> None:
    memory = Memory(encoder="hashing", seed=1)
    counts = taught(memory, 16)
    assert counts[0] <= 3
    assert sum(counts[-8:]) >= 0.9 * 8 * len(TASKS)


def test_silence_is_a_signal_of_its_own_that_is_rolled_back_alone(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=1)
    taught(memory, 3, by="ana")
    silence = [(source, value) for source, value in sources(memory) if source.startswith(SIGNAL)]
    assert silence
    assert {value for _, value in silence} == {1.0}
    assert len([1 for source, value in sources(memory) if value == 0.0]) == len(sources(memory)) - len(silence)
    memory.rollback(source=silence[0][0])
    assert all(value == 0.0 for _, value in sources(memory))


def test_silence_is_no_signal_where_praise_was_given_too() -> None:
    memory = Memory(encoder="hashing", seed=1)
    memory.add("to reset the router use the a way")
    for value in (0.0, None, 1.0, None, 0.0):
        hits = memory.search("how do I reset the router")
        if value is not None:
            memory.reward(hits.decision, value)
    assert [source for source, _ in sources(memory)] == ["user", "user", "user"]


def test_silence_counts_between_two_complaints_of_the_same_person_alone() -> None:
    memory = Memory(encoder="hashing", seed=1)
    memory.add("to reset the router use the a way")
    complaining = {"ana": (1, 4), "bo": ()}
    for number, who in enumerate(("ana", "ana", "bo", "ana", "ana", "ana")):
        with memory.episode("the router", by=who) as episode:
            episode.search("how do I reset the router")
            if number in complaining[who]:
                episode.reward(0.0)
    with memory.episode("the router", by="ana", explore=False) as episode:
        episode.search("how do I reset the router")
    assert [source for source, _ in sources(memory)] == ["own:ana", "own:ana", f"{SIGNAL}:ana"]


def test_complaints_of_one_person_credit_no_searches_of_others() -> None:
    memory = Memory(encoder="hashing", seed=1)
    memory.add("to reset the router use the a way")
    for number in range(6):
        hits = memory.search("how do I reset the router")
        if number in (1, 4):
            memory.reward(hits.decision, 0.0, by="bo")
    with memory.episode("the router", by="ana") as episode:
        hits = episode.search("how do I reset the router")
    memory.reward(hits.decision, 0.0, by="bo")
    memory.search("how do I reset the router")
    assert [source for source, _ in sources(memory)] == ["own:bo"] * 3


def test_complaints_in_a_scope_of_ones_own_credit_its_searches(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=1)
    ana, bo = memory.within(user_id="ana"), memory.within(user_id="bo")
    for number in range(5):
        for handle, person in ((ana, "ana"), (bo, "bo")):
            handle.add("to reset the router use the a way")
            hits = handle.search("how do I reset the router")
            if person == "ana" and number in (1, 4):
                handle.reward(hits.decision, 0.0, by=person)
    ana.search("how do I reset the router")
    assert [source for source, _ in sources(memory)] == ["own:ana", "own:ana", f"{SIGNAL}:ana", f"{SIGNAL}:ana"]


def test_a_search_without_trials_is_no_silence() -> None:
    """A program looked at the order; nobody was shown its hits."""
    memory = Memory(encoder="hashing", seed=1)
    memory.add("to reset the router use the a way")
    for reward, explore in ((0.0, True), (None, False), (None, True), (0.0, True)):
        hits = memory.search("how do I reset the router", explore=explore)
        if reward is not None:
            memory.reward(hits.decision, reward)
    memory.search("how do I reset the router")
    assert [source for source, _ in sources(memory)] == ["user", "user", SIGNAL]


@pytest.mark.parametrize(
    ("before", "after", "silent"),
    [([1.0], [0.0, None, None, 0.0], 0), ([0.0, None, None], [0.0], 2)],
    ids=["praised before", "complained before"],
)
def test_rewards_of_others_hide_neither_praise_nor_complaints(
    before: list[float | None], after: list[float | None], silent: int
) -> None:
    memory = Memory(encoder="hashing", seed=1)
    memory.add("to reset the router use the a way")
    others = [("bo", float(number % 2)) for number in range(300)]
    for person, reward in (*(("ana", one) for one in before), *others, *(("ana", one) for one in after), ("ana", None)):
        with memory.episode("the router", by=person) as episode:
            episode.search("how do I reset the router")
            if reward is not None:
                episode.reward(reward)
    assert len([1 for source, _ in sources(memory) if source == f"{SIGNAL}:ana"]) == silent


@pytest.mark.parametrize("signals", ["all but unchallenged", "none"])
def test_the_signal_unchallenged_is_switched_off_as_all_are(signals: str) -> None:
    memory = Memory(encoder="hashing", seed=1, signals=() if signals == "none" else ("check-passed", "check-failed"))
    taught(memory, 3)
    assert all(source == "user" for source, _ in sources(memory))
