"""Which strings are one action, which are two, and where nobody knows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from keepworth import Memory, policy
from keepworth.memory.choose.actions import SURE, Actions
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.named import ANY, FIRST, LATEST, NEAREST, roles_of
from keepworth.memory.choose.rewards import EpisodeClock
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Item
from tests.memory.helpers import finish, recall

ENCODER = HashedWords()


def actions(*texts: str) -> tuple[Actions, np.ndarray]:
    known = Actions(lambda text: ENCODER.encode([text])[0])
    return known, np.array([known.number(text) for text in texts])


def test_similar_actions_offered_together_are_distinct() -> None:
    known, (fifty, sixty) = actions("refund 50", "refund 60")
    both = np.array([fifty, sixty])
    assert not known.apart(both, both).any()
    known.offer(("refund 50", "refund 60"))
    assert known.apart(both, both)[0, 1]
    assert known.sameness(both, both)[0, 1] == 0.0


@pytest.mark.parametrize("name", ["default", "mixture"])
def test_an_agent_may_have_more_actions_than_there_was_room_for(name: str) -> None:
    memory = Memory(policy=name, encoder="hashing")
    for begin in range(0, 200, 10):
        with memory.episode("which door") as episode:
            episode.search(actions=[f"door {number}" for number in range(begin, begin + 10)])
            episode.act(f"door {begin}")
            episode.reward(1.0)
    assert not memory.pending()


def test_answer_similarity_ignores_words_that_all_answers_share() -> None:
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
        use = recall(experience, "torn shirt", "")
        finish(experience, [(use, action)], float(action != "replace them"))
    return experience


def test_success_of_a_paraphrased_action_does_not_count_against_an_item() -> None:
    values = {}
    for later in ("I would refund it, as in case {}", "send somebody round to them, case {}"):
        use = recall(after(later), "torn shirt", frozen=True)
        values[later] = float(use.values.means[use.candidates.rows.tolist().index(0)])
    same, other = values.values()
    assert same > 0.3
    assert same > other


def test_free_text_cases_stay_candidates_if_they_may_mean_an_offered_action() -> None:
    experience = after("I would refund it, as in case {}")
    use = recall(experience, "torn shirt", "", ("refund it", "keep quiet"))
    advised = [
        experience.pool.items[row].metadata["do"][0] for row in use.candidates.rows if not experience.pool.warns[row]
    ]
    assert "I would refund it, as in case 5" in advised
    assert not any("replace" in experience.pool.items[row].text for row in use.candidates.rows)


# Which rewards are better than others decides; and nobody's count for more than a share.


def test_graded_rewards_are_compared_with_the_mean_reward() -> None:
    experience, generator = Experience(policy("mixture"), ENCODER), np.random.default_rng(0)
    for number in range(60):
        action = ("refund", "replace")[number % 2]
        use = recall(experience, "torn shirt", "", ("refund", "replace"))
        finish(experience, [(use, action)], float(generator.uniform(0.25, 0.4) if action == "refund" else 0.1))
    use = recall(experience, "torn shirt", "", ("refund", "replace"), frozen=True)
    advised = {pair[:2] for pair in experience.present(use).advice}
    assert ("refund", 1.0) in advised
    assert ("replace", 1.0) not in advised


def test_clock_bounds_the_time_that_one_user_consumes() -> None:
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


# What an episode saw earlier may say what to do now: which of it does is learned from rewards.


DOORS = tuple(f"open the {colour} door" for colour in ("red", "blue", "green", "black"))


def notes(*texts: str) -> list[Item]:
    memory = Memory(policy=None, encoder=None)
    return memory.add_many(list(texts))


def test_an_action_has_the_roles_of_the_items_that_name_it() -> None:
    items = notes("nothing here", "Open the RED door.", "open the blue door", "open the red door again", "the end")
    near = {DOORS[0]: [ANY, FIRST, LATEST], DOORS[1]: [ANY, NEAREST]}
    assert roles_of(items, DOORS, [0.0, 0.1, 0.9, 0.3, 1.0]) == near
    assert roles_of(items, DOORS, ()) == {DOORS[0]: [ANY, FIRST, LATEST], DOORS[1]: [ANY]}, "nearness is not known"
    assert roles_of(items, ["go"], [0.0] * 5) == {}


def test_actions_are_named_by_whole_words_or_by_advice() -> None:
    assert roles_of(notes("he goes there", "cargo"), ["go"], ()) == {}
    assert roles_of(notes("go, now"), ["go"], ()) == {"go": [ANY, FIRST, LATEST]}
    memory = Memory(policy=None, encoder=None)
    advice = memory.add("open the red door", metadata={"do": ["open the blue door"], "avoid": []})
    assert list(roles_of([advice], DOORS, ())) == [DOORS[1]]


def walk(memory: Memory, chance: random.Random, rewarded: Callable[[bool], float]) -> tuple[bool, str]:
    """One house: a sign at the entrance names the way out, posters name other doors. Goes by what memory advises; returns
    whether the door was the right one, and what memory said."""
    way_out = chance.choice(DOORS)
    with memory.episode("leave the house") as episode:
        episode.remember(f"a sign at the entrance: {way_out}")
        for number in range(1, 5):
            episode.remember(f"poster {chance.randrange(1000)}.{number}: {chance.choice(DOORS)}")
        hits = episode.search("all doors are closed", actions=DOORS, top_k=2)
        votes = dict.fromkeys(DOORS, 0.0)
        for action, weight, _ in hits.advice:
            votes[action] += weight
        most = max(votes.values())
        door = chance.choice([door for door in DOORS if votes[door] == most])
        episode.act(door)
        right = door == way_out
        episode.reward(rewarded(right))
    return right, hits.text


@pytest.mark.parametrize("encoder", [HashedWords(64), None])
def test_policy_learns_the_role_of_the_first_note_within_twenty_episodes(encoder: HashedWords | None) -> None:
    for seed in range(5):
        memory, chance = Memory(encoder=encoder, seed=seed), random.Random(seed)
        right = [walk(memory, chance, float) for _ in range(50)]
        assert sum(one for one, _ in right[20:]) >= 27, seed
    assert "named by the first note of this episode; such an action was right" in right[-1][1]


def test_notes_of_the_episode_are_tried_one_role_at_a_time() -> None:
    """Learned from the mean reward of each role alone, the first note was believed from the tenth episode on."""
    right = []
    for seed in range(8):
        memory, chance = Memory(encoder=HashedWords(64), seed=seed), random.Random(seed)
        right += [walk(memory, chance, float)[0] for _ in range(12)][4:]
    assert sum(right) >= 0.75 * len(right)


def test_notes_of_other_episodes_are_not_advised_against_the_note_that_counts() -> None:
    memory, chance = Memory(encoder=HashedWords(64), seed=0), random.Random(0)
    for _ in range(12):
        walk(memory, chance, float)
    with memory.episode("leave the house", explore=False) as episode:
        episode.remember(f"a sign at the entrance once more: {DOORS[2]}")
        hits = episode.search("all doors are closed", actions=DOORS, top_k=4)
    assert {action for action, weight, _ in hits.advice if weight > 0.0} == {DOORS[2]}


def test_random_rewards_hardly_produce_advice_about_notes_of_the_episode() -> None:
    texts = []
    for seed in range(5):
        memory, chance = Memory(encoder=HashedWords(64), seed=seed), random.Random(seed)
        texts += [walk(memory, chance, lambda _, by=chance: float(by.random() < 0.25))[1] for _ in range(50)]
    assert sum("of this episode" in text for text in texts) <= len(texts) / 10


def test_reopened_memory_gives_the_same_advice_about_notes_of_the_episode(path: Path) -> None:
    def advised(memory: Memory) -> tuple[tuple[tuple[str, float, float], ...], str]:
        with memory.episode("leave the house", explore=False) as episode:
            episode.remember(f"a sign at the entrance once more: {DOORS[2]}")
            episode.remember(f"a poster once more: {DOORS[1]}")
            hits = episode.search("all doors are closed", actions=DOORS, top_k=2)
            return hits.advice[-4:], hits.text.splitlines()[-1]

    chance = random.Random(0)
    with Memory(path, encoder=HashedWords(64), seed=0) as memory:
        for _ in range(30):
            walk(memory, chance, float)
        said = advised(memory)
    with Memory(path, encoder=HashedWords(64), seed=0) as memory:
        assert advised(memory) == said
    assert {action for action, _, _ in said[0]} == {DOORS[2]}


def test_policy_without_roles_does_not_learn_from_notes_of_the_episode() -> None:
    right = []
    for seed in range(3):
        memory = Memory(encoder=HashedWords(64), seed=seed, policy=policy("default", without="roles"))
        chance = random.Random(seed)
        right += [walk(memory, chance, float) for _ in range(50)]
    assert not any("of this episode" in text for _, text in right)
    assert sum(one for one, _ in right) < len(right) / 2
    with pytest.raises(InvalidPolicy, match="no part 'rules' to leave out"):
        policy("default", without="rules")
