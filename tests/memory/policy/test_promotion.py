"""A policy that is tried in place of another, through `Memory(policy=..., replaces=...)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from keepworth import Memory
from keepworth.base.errors import KeepworthError
from keepworth.kit import Candidates, Mixture, Policy, Pool, Query, Values, lines, whole
from keepworth.memory.choose.promotion import MOST, START
from keepworth.memory.choose.ready_slots import Unvalued

QUESTION = "how do I reset the router"
NOTES = ("To reset the router hold the button.", "The router has a plug.", "Ana reads.")


def showing(place: int, name: str) -> Policy:
    """A policy that always shows the candidate in this place of the search's order first."""

    def select(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        scores = -np.arange(len(candidates), dtype=np.float64)
        scores[place : place + 1] = 1.0
        return Mixture("greedy", scores, np.zeros(len(scores)), query.most)

    return Policy(name, whole, None, Unvalued(), select, lines)


def softly(name: str) -> Policy:
    """A policy that draws what it shows."""

    def select(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        return Mixture("gumbel", 3.0 * candidates.similarities, np.zeros(len(candidates)), query.most)

    return Policy(name, whole, None, Unvalued(), select, lines)


FIRST, SECOND = partial(showing, 0, "first"), partial(showing, 1, "second")


def tried(file: Path | str = ":memory:", seed: int = 0, policy: Callable[[], Policy] = SECOND) -> Memory:
    memory = Memory(file, encoder="hashing", writer=None, policy=policy, replaces=FIRST, seed=seed)
    if not len(memory):
        memory.add_many(NOTES)
    return memory


def reward(memory: Memory, count: int, earns: Callable[[str], float]) -> Counter[str]:
    """Rewards so many searches, and returns how often each policy chose."""
    chosen = Counter[str]()
    for _ in range(count):
        hits = memory.search(QUESTION, top_k=1)
        chosen[hits.policy] += 1
        memory.reward(hits.decision, earns(hits[0].text))
    return chosen


def by_button(text: str) -> float:
    return float("button" not in text)


def test_a_better_policy_is_proven_and_takes_over() -> None:
    with tried() as memory:
        reward(memory, 200, by_button)
        promotion = memory.promotion()[0]
        assert promotion.state == "proven"
        assert promotion.share == 1.0
        assert promotion.low > 0.0
        assert memory.policy == "second"
        assert "has replaced first" in promotion.why
        assert set(reward(memory, 20, by_button)) == {"second"}


def test_a_worse_policy_costs_no_more_than_is_allowed() -> None:
    with tried() as memory:
        chosen = reward(memory, 300, lambda text: float("button" in text))
        promotion = memory.promotion()[0]
        assert promotion.state != "proven"
        assert memory.policy == "first"
        assert 1 <= chosen["second"] <= promotion.allowed + 1.0 < START + 3.0


@pytest.mark.parametrize("seed", range(4))
def test_useless_rewards_leave_the_policy_on_trial(seed: int) -> None:
    generator = np.random.default_rng(seed)
    with tried(seed=seed) as memory:
        chosen = reward(memory, 200, lambda text: float(generator.random() < 0.7))
        assert memory.promotion()[0].state == "on trial"
        assert chosen["second"] <= 10


def test_logged_propensity_is_that_of_the_mixture() -> None:
    shown = Counter[str]()
    expected = Counter[str]()
    for seed in range(150):
        with tried(seed=seed, policy=partial(softly, "soft")) as memory:
            hits = memory.search(QUESTION, top_k=1)
            shown[hits[0].text] += 1
            expected[hits[0].text] = hits.propensity  # type: ignore[assignment]
    assert sum(expected.values()) == pytest.approx(1.0, abs=1e-9)
    for text, p in expected.items():
        assert abs(shown[text] / 150 - p) < 4.0 * np.sqrt(p * (1.0 - p) / 150)


def test_propensities_of_an_episode_multiply_to_that_of_the_policy_that_was_drawn() -> None:
    drawn = set()
    for seed in range(12):
        with tried(seed=seed) as memory, memory.episode(task=QUESTION) as episode:
            steps = [episode.search(QUESTION, top_k=1) for _ in range(3)]
        assert len({hits.policy for hits in steps}) == 1
        share = MOST if steps[0].policy == "second" else 1.0 - MOST
        assert np.prod([hits.propensity for hits in steps]) == pytest.approx(share)
        drawn.add(steps[0].policy)
    assert drawn == {"first", "second"}


def test_a_reopened_memory_goes_on_with_the_trial(tmp_path: Path) -> None:
    file = tmp_path / "agent.mem"
    with tried(file) as memory:
        reward(memory, 15, by_button)
        episode = memory.episode(task=QUESTION)
        before, first = memory.promotion()[0], episode.search(QUESTION, top_k=1)
    with tried(file, seed=5) as memory:
        assert memory.promotion()[0] == before
        again = memory.reopen(episode.id).search(QUESTION, top_k=1)
        assert again.policy == first.policy
        assert again.propensity == pytest.approx(1.0)
        reward(memory, 200, by_button)
        assert memory.policy == "second"
    with Memory(file, encoder="hashing", policy=None) as memory:  # any handle can ask
        assert memory.promotion()[0].state == "proven"


def test_rollback_takes_back_a_proof() -> None:
    with tried() as memory:
        start = memory.snapshot()
        reward(memory, 200, by_button)
        assert memory.policy == "second"
        memory.rollback(since=start)
        assert memory.policy == "first"
        assert memory.promotion()[0].rewards == 0


def test_a_handle_of_a_person_goes_by_rewards_in_its_scope() -> None:
    with tried() as memory:
        memory.add_many(NOTES, user_id="ana")
        ana = memory.within(user_id="ana")
        reward(memory, 200, by_button)
        assert memory.policy == "second"
        assert ana.policy == "first"
        assert ana.promotion()[0].rewards == 0


def test_price_of_a_trial_does_not_tell_the_earlier_rewards_of_others(tmp_path: Path) -> None:
    prices = []
    for earned in (0.0, 1.0):
        file = tmp_path / f"{earned}.mem"
        with Memory(file, encoder="hashing", writer=None, policy=FIRST) as memory:
            for person in ("ana", "ben"):
                memory.add_many(NOTES, user_id=person)
            reward(memory.within(user_id="ben"), 40, lambda text, earned=earned: earned)
        with tried(file) as memory:
            ana = memory.within(user_id="ana")
            hits = ana.search(QUESTION, top_k=1)
            ana.reward(hits.decision, 1.0)
            prices.append((ana.promotion()[0].price, ana.promotion()[0].share))
    assert prices[0] == prices[1]


def test_a_search_that_no_reward_can_reach_is_no_trial() -> None:
    with Memory(encoder="hashing", policy=SECOND, replaces=FIRST, log="off", seed=0) as memory:
        memory.add_many(NOTES)
        assert {memory.search(QUESTION, top_k=1).policy for _ in range(20)} == {"first"}
    with tried() as memory:
        assert {memory.search(QUESTION, top_k=1, explore=False).policy for _ in range(20)} == {"first"}


def test_a_policy_of_cases_can_be_tried_in_place_of_the_default() -> None:
    with Memory(encoder="hashing", policy="memrl", replaces="default", seed=0) as memory:
        for number in range(8):
            with memory.episode(task=f"open door {number % 2}") as episode:
                episode.search("which key", actions=["red", "blue"])
                episode.act("red" if number % 2 else "blue")
                episode.reward(1.0)
        promotion = memory.promotion()[0]
        assert (promotion.policy, promotion.replaces, promotion.rewards) == ("memrl", "default", 8)
        assert any("do" in item.metadata for item in memory.get_all())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"policy": None, "replaces": "default"}, "policy=None tries nothing"),
        ({"policy": "memrl", "allowed_loss": 0.1}, "name the policy in force by replaces"),
        ({"policy": "memrl", "replaces": "default", "allowed_loss": 2.0}, r"allowed_loss must lie in \[0, 1\]"),
        ({"policy": "memrl", "replaces": "memlr"}, "memlr"),
        ({"policy": "memrl", "replaces": "memrl"}, "both named 'memrl'"),
        ({"policy": "memrl", "replaces": 3}, "replaces is 3"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(KeepworthError, match=says):
        Memory(tmp_path / "agent.mem", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "agent.mem").exists()
