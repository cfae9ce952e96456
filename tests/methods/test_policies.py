"""Every policy that keeps cases: it learns, its propensities are probabilities, a rollback makes it forget, it is the same when
it is opened again, and it chooses among the same items as the others."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keepworth.memory.by_name import policies_of_cases, policy, seeded
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.ready_slots import top
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import OWN
from keepworth.memory.memory import Memory
from keepworth.registry import methods
from tests.memory.helpers import finish, recall
from tests.memory.stub_encoder import WordEncoder

NAMES = policies_of_cases()
ACTIONS = ("open the door", "take the lamp", "wait", "go north")
TASKS = ("find the lamp", "leave the cellar", "feed the cat", "open the chest")


def opened(path: Path, name: str) -> Memory:
    return Memory(path, user_id="h", encoder=WordEncoder(), policy=lambda: seeded(name, 3), seed=3)


def begun(memory: Memory, task: int, member: int) -> LiveEpisode:
    offered = ACTIONS[: 2 + task % 3]
    episode = memory.episode(TASKS[task])
    episode.search(f"where to begin to {TASKS[task]}", actions=offered, top_k=3)
    episode.act(offered[(task + member) % len(offered)])
    return episode


def known(memory: Memory) -> list[Any]:
    """What the policy says of every task to who does not learn: candidates, estimates, and what it shows."""
    found = []
    for task, goal in enumerate(TASKS):
        with memory.episode(goal, explore=False) as episode:
            episode.search(f"where to begin to {goal}", actions=ACTIONS[: 2 + task % 3], top_k=3)
            (decision,) = episode.record().decisions
        with memory.store.database.reading() as connection:
            details = json.loads(connection.execute(LAST).fetchone()[0])
        found.append((decision.candidates, decision.chosen, details["means"], details["deviations"]))
    return found


LAST = "SELECT details FROM decisions ORDER BY n DESC LIMIT 1"


@pytest.mark.parametrize("name", NAMES)
def test_policy_state_survives_reopening(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.mem"
    memory = opened(path, name)
    for turn in range(3):
        together = [(begun(memory, task, member), task, member) for task in range(4) for member in range(2)]
        for episode, task, member in together:
            episode.reward(float((task * 7 + member + turn) % 3 == 0))
        before = known(memory)
        memory.close()
        memory = opened(path, name)
        assert known(memory) == before
    assert any(candidates for candidates, *_ in before)
    memory.close()


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_which_of_two_actions_pays(name: str) -> None:
    """An agent that does what is advised most, and guesses where nothing is: by chance it is right half of the time."""
    won, guess, actions = [], np.random.default_rng(5), ("left", "right")
    with Memory(user_id="h", encoder=WordEncoder(), policy=lambda: seeded(name, 3), seed=3) as memory:
        for _ in range(40):
            with memory.episode("reach the tower") as episode:
                votes = dict.fromkeys(actions, 0.0)
                for action, weight, near in episode.search("which way", actions=actions).advice:
                    votes[action] += weight * near
                best = [action for action in actions if votes[action] == max(votes.values())]
                action = str(guess.choice(best))
                episode.act(action)
                episode.reward(float(action == "left"))
                won.append(action == "left")
    assert np.mean(won[-20:]) > 0.9


OF_ITEMS = sorted({*methods("policy")} - {*NAMES})
QUICK: dict[str, dict[str, Any]] = {"rmm": {"rate": 0.3, "temperature": 0.2, "batch": 1}}
"""Settings under which a policy of items learns within some forty rewards; another learns so with those that it has."""


@pytest.mark.parametrize("name", OF_ITEMS)
def test_it_learns_which_of_two_items_pays(name: str) -> None:
    """The one that is less alike, and a reply cites it where it is shown."""
    won = []
    with Memory(policy=lambda: policy(name, **QUICK.get(name, {})), encoder=WordEncoder(), seed=1) as memory:
        memory.add("the tower is left of the river")
        good = memory.add("at the tower go right, past the mill")
        for _ in range(60):
            with memory.episode("which way is the tower of the river") as episode:
                shown = [hit.id for hit in episode.search(top_k=1)]
                if name == "rmm":
                    episode.act(f"right [{good.id}]" if good.id in shown else "left [NO_CITE]")
                episode.reward(float(good.id in shown))
                won.append(good.id in shown)
    assert np.mean(won[-30:]) > 0.9


@pytest.mark.parametrize("right", ["hold the button", "pull the plug"])
@pytest.mark.parametrize("name", sorted(name for name, method in methods("policy").items() if not method.notes))
def test_the_better_of_two_notes_comes_first_after_rewards(name: str, right: str) -> None:
    """Plain notes, searches outside episodes, published settings; the words of one of the notes fit better."""
    won = []
    with Memory(policy=lambda: seeded(name, 1), encoder=WordEncoder(), seed=1) as memory:
        memory.add("To reset the router hold the button.")
        memory.add("To reset the router pull the plug.")
        for _ in range(40):
            hits = memory.search("how do I reset the router", top_k=1)
            won.append(bool(hits) and right in hits[0].text)
            memory.reward(hits.decision, float(won[-1]))
    assert np.mean(won[-10:]) >= 0.7


@pytest.mark.parametrize("name", ["dynamic-cheatsheet", "memp", "rememberer"])
def test_a_note_beyond_those_that_are_shown_comes_first_if_it_alone_works(name: str) -> None:
    with Memory(policy=lambda: policy(name), encoder=WordEncoder(), seed=1) as memory:
        for number in range(8):
            memory.add("To reset the router hold button " + "and wait " * number + f"number {number}.")
        won = []
        for _ in range(30):
            hits = memory.search("how do I reset the router", top_k=1)
            won.append(hits[0].text.endswith("number 7."))
            memory.reward(hits.decision, float(won[-1]))
    assert won[-10:] == [True] * 10


def test_rewards_order_plain_notes_under_most_policies() -> None:
    learning = [name for name, method in methods("policy").items() if not method.notes]
    assert len(learning) >= 20


@pytest.mark.parametrize("name", NAMES)
def test_propensities_sum_to_one_and_match_how_often_a_slate_is_drawn(name: str) -> None:
    experience = Experience(seeded(name, 1), HashedWords(128))
    for number in range(12):
        use = recall(experience, f"torn shirt {number % 3}", "", ("refund", "replace"))
        finish(experience, [(use, ("refund", "replace")[number % 2])], float(number % 3 == 0))
    choice = recall(experience, "torn shirt 1", "", ("refund", "replace")).choice
    assert choice is not None
    choice = choice.at_most(2)
    rows = range(len(recall(experience, "torn shirt 1", "", ("refund", "replace")).candidates.rows))
    chances = {slate: choice.probability(slate) for k in range(3) for slate in permutations(rows, k)}
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-6)
    generator = np.random.default_rng(0)
    drawn = Counter(choice.draw(generator)[0] for _ in range(2000))
    assert all(abs(drawn[slate] / 2000 - chance) < 0.05 for slate, chance in chances.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_rollback_makes_it_forget(tmp_path: Path, name: str) -> None:
    with opened(tmp_path / "a.mem", name) as memory:
        for task in range(4):
            begun(memory, task, 0).reward(float(task % 2))
        before = known(memory)
        episode = begun(memory, 1, 1)
        episode.reward(1.0)
        memory.rollback(episode.id)
        assert known(memory) == before


ENCODER = HashedWords(128)


def filled(name: str, **settings: object) -> Experience:
    """Forty cases of actions that are not offered later, alike to the query, and three unlike ones of those that are."""
    experience = Experience(policy(name, **settings), ENCODER)
    for number in range(40):
        use = recall(experience, "torn shirt arrived", f"n{number}", ("burn it", "bury it"))
        finish(experience, [(use, ("burn it", "bury it")[number % 2])], 1.0)
    for action in ("refund", "replace", "refund"):
        finish(experience, [(recall(experience, "torn coat", "", ("refund", "replace")), action)], 1.0)
    return experience


@pytest.mark.parametrize("name", NAMES)
def test_candidates_are_offered_actions_and_items_of_the_episode(name: str) -> None:
    experience = filled(name)
    rows = recall(experience, "torn shirt arrived", "", ("refund", "replace")).candidates.rows
    told = [experience.pool.items[row].metadata for row in rows]
    assert told
    assert {action for data in told for action in (*data["do"], *data["avoid"])} <= {"refund", "replace"}
    row = experience.observe(Advice("a sign on the wall", "a sign on the wall", do=("replace",), source=OWN))
    assert row in recall(experience, "torn coat", "", ("refund", "replace")).candidates.rows


def test_items_of_the_episode_may_be_shown_first() -> None:
    for here in ("newest", "oldest"):
        experience = filled("exprag", here=here, k=3)
        rows = [experience.observe(Advice(f"sign {n}", "sign", do=("replace",), source=OWN)) for n in range(2)]
        shown = recall(experience, "torn coat", "", ("refund", "replace")).rows
        assert shown[:2] == (rows[::-1] if here == "newest" else rows)
        assert len(shown) == 3
    with pytest.raises(InvalidPolicy, match="oldest"):
        policy("exprag", here="first")


def test_a_record_of_several_actions_is_possible_by_any_of_them_also_after_a_revision() -> None:
    experience = Experience(policy("rememberer"), ENCODER)
    for action, reward in (("burn it", 0.0), ("refund", 1.0)):
        finish(experience, [(recall(experience, "go", "here", ("burn it", "refund")), action)], reward)
    assert len(recall(experience, "go", "here", ("refund", "wait")).candidates.rows) == 1
    assert len(recall(experience, "go", "here", ("burn it", "wait")).candidates.rows) == 1
    assert len(recall(experience, "go", "here", ("wait", "leave")).candidates.rows) == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "amemguard"])
def test_frozen_policy_is_deterministic(name: str) -> None:
    """The selection of A-MemGuard adds lessons: what it shows may differ by design."""
    experience, actions = Experience(policy(name), HashedWords(256)), ("left", "right", "stay")
    for number in range(25):
        use = recall(experience, f"word{number % 5} other{number % 3}", "", actions)
        finish(experience, [(use, actions[number % 3])], float(number % 2))
    first, second = (recall(experience, "word1 other2", frozen=True) for _ in range(2))
    assert first.slate == second.slate
    assert first.propensity == pytest.approx(1.0)


def test_the_most_similar_among_many_are_those_of_a_plain_sort() -> None:
    generator = np.random.default_rng(4)
    for n, k in ((9_000, 12), (9_001, 36), (5_000, 3), (40, 4), (3, 4)):
        similarities = generator.integers(0, 60, size=n) / 60.0  # Many ties: the newer row wins.
        rows = np.sort(generator.permutation(2 * n)[:n])
        expected = rows[np.lexsort((-rows, -similarities))[:k]]
        assert top(similarities, rows, k).rows.tolist() == expected.tolist()
