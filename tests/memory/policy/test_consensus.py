"""What people who share items learn from one another: what most of them agree on, and nothing of what one of them asked."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.errors import InvalidPolicy
from keepworth.methods.policies.default import default

MEMBERS = ("ana", "bo", "cy", "di", "ed")
TASKS = (
    *("reset the router", "clean the coffee machine", "open the garage door", "call the plumber", "water the plants"),
    *("feed the cat", "start the heating", "send the invoice", "book the room", "renew the passport"),
)
WAYS = ("the red way", "the blue way")
SECRET = "who signs the divorce papers for me"


class Team:
    """A team that shares two notes for each task, of which one is right."""

    def __init__(self, path: Path | str = ":memory:", quorum: int = 3) -> None:
        self.memory = Memory(path, encoder="hashing", seed=1, policy=partial(default, quorum=quorum))
        draw, team = random.Random(1), self.memory.within(user_id="team")
        self.right = {task: draw.choice([team.add(f"to {task} use {way}").id for way in WAYS]) for task in TASKS}
        self.draw = random.Random(2)

    def of(self, person: str) -> Memory:
        return self.memory.within(user_id=person, shared={"team": False})

    def teach(self, people: tuple[str, ...] = MEMBERS, rounds: int = 4, *, lie: bool = False) -> None:
        for _ in range(rounds):
            for person in people:
                for task in TASKS:
                    hits = self.of(person).search(f"how do I {task}", top_k=1)
                    self.of(person).reward(hits.decision, float((hits[0].id == self.right[task]) != lie), by=person)

    def share_right(self, person: str) -> float:
        first = (self.of(person).search(f"how to {task}", top_k=1, explore=False)[0].id for task in TASKS)
        return sum(id == right for id, right in zip(first, self.right.values(), strict=True)) / len(TASKS)

    def told(self, person: str) -> list[object]:
        """Everything that a person reads of the notes and of own ones."""
        handle, read = self.of(person), list[object]()
        for question in (SECRET, *(f"how do I {task}" for task in TASKS)):
            hits = handle.search(question, top_k=5, explain=True, explore=False)
            read += [hits.propensity, [(hit.id, hit.score, str(hit.why), hit.why.moved) for hit in hits]]
            read += [str(handle.worth(hits[0].id, question))]
        return [*read, handle.ledger().accounts]


def test_consensus_ranks_for_a_new_member_of_the_team_only(tmp_path: Path) -> None:
    apart, team = Team(quorum=0), Team(tmp_path / "a.mem")
    apart.teach()
    team.teach()
    assert apart.share_right("new") <= 0.6
    assert (found := team.share_right("new")) >= 0.9
    reasons = {hit.why.reason for task in TASKS for hit in team.of("new").search(f"how do I {task}", explain=True)}
    assert {"most who share it were better off with it", "most who share it were worse off with it"} <= reasons
    alone = team.memory.within(user_id="new")
    assert len(alone.search("how do I reset the router")) == 0
    team.memory.close()
    with Memory(tmp_path / "a.mem", encoder="hashing", policy=default) as again:
        team.memory = again
        assert team.share_right("new") == found


@pytest.mark.parametrize("people", [("ana",), ("ana", "bo")])
def test_rewards_below_the_quorum_leave_searches_of_others_unchanged(
    people: tuple[str, ...],
) -> None:
    read = []
    for outcome in (None, 0.0, 1.0):
        team = Team()
        team.teach(("mallory",), 1)
        for person in people if outcome is not None else ():
            handle = team.of(person)
            for question in (SECRET, f"how do I {TASKS[0]}") * 10:
                handle.reward(handle.search(question, top_k=2).decision, outcome or 0.0, by=person)
        read.append(team.told("mallory"))
    assert read[0] == read[1] == read[2]


def test_each_person_has_one_vote_that_rollback_removes() -> None:
    team = Team()
    team.teach()
    team.teach(("mallory",), 30, lie=True)
    assert team.share_right("new") >= 0.8
    for person in MEMBERS[:3]:
        team.memory.rollback(rewarder=person)
    assert team.share_right("new") <= 0.6


def test_consensus_ignores_notes_when_all_rewards_are_equal() -> None:
    team, apart = Team(), Team(quorum=0)
    for task in TASKS:
        for person in MEMBERS:
            hits = team.of(person).search(f"how do I {task}", top_k=1)
            team.of(person).reward(hits.decision, 1.0, by=person)
    assert team.told("new") == apart.told("new")


def test_last_reward_of_a_person_for_a_search_counts() -> None:
    team = Team()
    for task in TASKS * 3:
        for person in MEMBERS:
            hits = team.of(person).search(f"how do I {task}", top_k=1)
            value = float(hits[0].id == team.right[task])
            for given in (1.0 - value, value):
                team.of(person).reward(hits.decision, given, by=person)
    assert team.share_right("new") >= 0.9


def test_negative_quorum_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="quorum"):
        default(quorum=-1)
