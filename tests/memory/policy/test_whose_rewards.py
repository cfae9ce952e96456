"""Whose rewards count for whom: nobody's are another's to read, to push out or to switch off."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.choose.slots import Policy
from keepworth.methods.policies.default import default

PEOPLE = ("ana", "bo", "cy")
TASKS = (
    *("reset the router", "clean the coffee machine", "open the garage door", "call the plumber", "water the plants"),
    *("feed the cat", "start the heating", "send the invoice", "book the room", "renew the passport"),
)
SECRET = "who signs the divorce papers for me"
WINDOW = 300


def small() -> Policy:
    """The default policy with a short window."""
    return default(newest=WINDOW)


def team(
    path: Path | str = ":memory:", policy: Callable[[], Policy] = small
) -> tuple[Memory, dict[tuple[str, str], str]]:
    """A memory in which each person has two notes for each task, and which of them is right."""
    memory, right = Memory(path, encoder="hashing", seed=1, policy=policy), dict[tuple[str, str], str]()
    draw = random.Random(1)
    for person in PEOPLE:
        for task in TASKS:
            ways = [f"to {task} use the {way} way of {person}" for way in ("red", "blue")]
            right[person, task] = draw.choice([memory.add(way, user_id=person).id for way in ways])
    return memory, right


def teach(memory: Memory, right: dict[tuple[str, str], str], rounds: int = 8) -> None:
    for _ in range(rounds):
        for (person, task), id in right.items():
            hits = memory.search(f"how do I {task}", user_id=person, top_k=1)
            memory.within(user_id=person).reward(hits.decision, float(hits[0].id == id), by=person)


def share_right(memory: Memory, right: dict[tuple[str, str], str]) -> float:
    first = {key: memory.search(f"how do I {key[1]}", user_id=key[0], top_k=1, explore=False)[0].id for key in right}
    return sum(first[key] == id for key, id in right.items()) / len(right)


@pytest.mark.parametrize("decisions", ["the same", "many"])
def test_rewards_of_one_person_do_not_displace_those_of_others(tmp_path: Path, decisions: str) -> None:
    memory, right = team(tmp_path / "a.mem")
    teach(memory, right)
    assert share_right(memory, right) == 1.0
    mallory = memory.within(user_id="mallory")
    mallory.add("a thing of mallory")
    hits = mallory.search("a thing")
    for number in range(2 * WINDOW):
        if decisions == "many":
            hits = mallory.search(f"a thing {number % 7}")
        mallory.reward(hits.decision, float(number % 2), by="mallory")
    assert share_right(memory, right) == 1.0
    assert len(memory.learning.experience.policy.valuer) <= WINDOW  # type: ignore[union-attr,arg-type]
    memory.close()
    with Memory(tmp_path / "a.mem", encoder="hashing", policy=small) as again:
        assert share_right(again, right) == 1.0


def test_shared_reward_window_is_the_same_after_reopening(tmp_path: Path) -> None:
    memory, draw = Memory(tmp_path / "a.mem", encoder="hashing", seed=1, policy=small), random.Random(2)
    memory.add_many([f"to {task} use the {way} way" for task in TASKS for way in ("red", "blue")])
    for _ in range(2 * WINDOW):
        hits = memory.search(f"how do I {draw.choice(TASKS)}", top_k=1)
        by = draw.choice(("ana", "ana", "ana", "ana", "bo", "cy"))
        for value in [0.0, 1.0][draw.randrange(2) :]:  # some are rewarded twice
            memory.reward(hits.decision, value, by=by)
    ids = [item.id for item in memory.get_all()]
    before = [memory.worth(id, task).times for id in ids for task in TASKS]
    memory.close()
    with Memory(tmp_path / "a.mem", encoder="hashing", policy=small) as again:
        assert [again.worth(id, task).times for id in ids for task in TASKS] == pytest.approx(before, abs=0.01)


def test_unstable_rewards_of_one_person_keep_the_order_of_others() -> None:
    memory, right = team(policy=default)
    teach(memory, right, 8)
    mallory, good = memory.within(user_id="mallory"), 0
    things = mallory.add_many([f"mallory thing {number} about nothing" for number in range(6)])
    for number in range(600):
        first = mallory.search("mallory thing about nothing", top_k=6)
        good = (good + (number % 12 == 0)) % 6
        value = float((first[0].id == things[good].id) == (number % 12 < 6))
        mallory.reward(first.decision, value, by="mallory")
    assert share_right(memory, right) == 1.0


def test_later_reward_replaces_its_source_and_sources_are_averaged(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=1)
    id = memory.add("to reset the router hold the button").id
    hits = memory.search("how do I reset the router")
    memory.reward(hits.decision, 0.0, by="ana")
    memory.reward(hits.decision, 1.0, by="ana")
    worth = memory.worth(id, "how do I reset the router")
    assert (worth.times, worth.earned) == pytest.approx((1.0, 1.0), abs=0.01)
    for channel in ("tests", "retries"):  # what the program notices by itself
        memory.reward(hits.decision, 0.0, by="", source=channel)
        memory.reward(hits.decision, 0.0, by="", source=channel)
    for opened in (memory, Memory(tmp_path / "a.mem", encoder="hashing")):
        worth = opened.worth(id, "how do I reset the router")
        assert (worth.times, worth.earned) == pytest.approx((1.0, 1.0 / 3.0), abs=0.01)
    assert not memory.reward(hits.decision, 1.0, by="ana").applied
    memory.rollback(rewarder="ana")
    assert memory.worth(id, "how do I reset the router").earned == 0.0


def told(secret: float | None) -> list[object]:
    """Everything that a handle of mallory reads. secret: what ana's question earned, or None if she never asked it."""
    memory, draw = Memory(encoder="hashing", seed=5), random.Random(3)
    handles = {person: memory.within(user_id=person) for person in ("ana", "bo", "mallory")}
    for person, handle in handles.items():
        handle.add_many([f"note {word} of {person}" for word in ("tea", "rain", "train")])
    for number in range(40):
        for person in ("bo", "mallory"):
            hits = handles[person].search(draw.choice(("tea", "rain", "train")), top_k=2)
            handles[person].reward(hits.decision, float(draw.random() < 0.6), by=person)
        if secret is not None and number % 5 == 0:
            hits = handles["ana"].search(SECRET, top_k=1)
            handles["ana"].reward(hits.decision, secret, by="ana")
    mallory, read = handles["mallory"], list[object]()
    for question in (SECRET, "tea", "when does the shop open"):
        read += [mallory.worth(item.id, question) for item in mallory.get_all()]
        hits = mallory.search(question, mode="dense", explain=True)
        read += [hits.propensity, [(hit.id, hit.why.worth, hit.why.reason, hit.why.moved) for hit in hits]]
    return [*read, mallory.ledger()]


def test_handle_of_one_person_is_independent_of_rewards_of_others() -> None:
    assert told(None) == told(0.0) == told(1.0)


def test_handle_learns_from_rewards_in_its_scope_only(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "a.mem", encoder="hashing", seed=1)
    ids = {person: memory.add("to reset the router hold the button", user_id=person).id for person in ("ana", "bo")}
    for _ in range(3):
        ana = memory.within(user_id="ana")
        ana.reward(ana.search("reset the router").decision, 1.0)
    assert memory.worth(ids["ana"], "reset the router").times == pytest.approx(3.0, abs=0.01)
    assert memory.within(user_id="ana").worth(ids["ana"], "reset the router").times == pytest.approx(3.0, abs=0.01)
    assert memory.within(user_id="bo").worth(ids["bo"], "reset the router").sure == 0.0
    assert [account.item for account in memory.within(user_id="bo").ledger().accounts] == []
    memory.close()
    with Memory(tmp_path / "a.mem", encoder="hashing") as again:
        assert again.within(user_id="ana").worth(ids["ana"], "reset the router").times == pytest.approx(3.0, abs=0.01)


def test_opposite_tastes_of_two_people_are_both_learned() -> None:
    """Both ask the same questions of one memory. Of its two notes about each task the one is right for ana, the other for bo."""
    draw, memory = random.Random(3), Memory(encoder="hashing", seed=3)
    pairs = {task: [memory.add(f"to {task} use the {way} way").id for way in ("red", "blue")] for task in TASKS}
    right = {(task, who): pair[who == "bo"] for task, pair in pairs.items() for who in ("ana", "bo")}
    success: list[bool] = []
    for _ in range(400):
        task, who = draw.choice(list(right))
        with memory.episode(task, by=who) as episode:
            hits = episode.search(f"how do I {task}", top_k=1)
            success.append(hits[0].id == right[task, who])
            episode.reward(float(success[-1]))
    assert sum(success[200:]) >= 0.95 * 200


def test_a_newcomer_gets_the_choice_of_others_until_his_rewards_differ() -> None:
    memory = Memory(encoder="hashing", seed=3)
    red, blue = (memory.add(f"to feed the cat use the {way} way").id for way in ("red", "blue"))
    for number in range(30):
        with memory.episode("the cat", by=PEOPLE[number % 2]) as episode:
            hits = episode.search("how do I feed the cat", top_k=1)
            episode.reward(float(hits[0].id == blue))
    first = []
    for _ in range(20):
        with memory.episode("the cat", by="cy") as episode:
            hits = episode.search("how do I feed the cat", top_k=1)
            first.append(hits[0].id)
            episode.reward(float(hits[0].id == red))
    assert first[0] == blue
    assert first[10:].count(red) >= 9


def ask_and_reward(memory: Memory, task: str, by: str, wanted: str) -> bool:
    """Ask, reward the note that is wanted and no other one, and return whether it stood first."""
    hits = memory.search(f"how do I {task}", top_k=1)
    first = hits[0].id == wanted
    memory.reward(hits.decision, float(first), by=by)
    return first


@pytest.mark.parametrize("honest_until", [0, 30])
def test_three_liars_of_ten_do_not_put_their_note_first(honest_until: int) -> None:
    """They ask more often than all others together, and are honest at first in one case."""
    memory, draw = Memory(encoder="hashing", seed=1), random.Random(1)
    honest, liars, tasks = [f"person {n}" for n in range(7)], [f"liar {n}" for n in range(3)], TASKS[:4]
    right = {task: memory.add(f"to {task} hold the button").id for task in tasks}
    bait = memory.add(f"to {tasks[0]} call the porter", source=liars[0]).id
    success = []
    for number in range(60):
        for _ in range(2):
            wanted = right[tasks[0]] if number < honest_until else bait
            ask_and_reward(memory, tasks[0], draw.choice(liars), wanted)
        for task in tasks:
            first = ask_and_reward(memory, task, draw.choice(honest), right[task])
            if task == tasks[0] and number >= 45:
                success.append(first)
    assert sum(success) >= 13


def test_minority_of_another_taste_is_served_by_its_rewards() -> None:
    """Of eleven people two want another note than the rest."""
    memory, draw = Memory(encoder="hashing", seed=3), random.Random(3)
    pairs = {task: [memory.add(f"to {task} use the {way} way").id for way in ("red", "blue")] for task in TASKS[:4]}
    majority, minority = [f"person {n}" for n in range(9)], ["ana", "bo"]
    success: list[bool] = []
    for number in range(360):
        task, person = draw.choice(list(pairs)), draw.choice(minority if number % 3 == 0 else majority)
        with memory.episode(task, by=person) as episode:
            first = episode.search(f"how do I {task}", top_k=1)[0].id == pairs[task][person in minority]
            episode.reward(float(first))
        if person in minority and number >= 180:
            success.append(first)
    assert sum(success) >= 0.85 * len(success)
