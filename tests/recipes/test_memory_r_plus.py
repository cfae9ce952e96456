"""Memory-R+: its intrinsic reward against brute force, its memories in checkpoints, a run that was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.methods.recipes import memory_r_plus
from keepworth.methods.recipes._episodic import EpisodicReward, RememberedEpisodes
from keepworth.methods.recipes.memory_r_plus import bank_of
from keepworth.records import Group
from tests.recipes.test_bounded_bank import episode_of
from tests.recipes.writer_runs import echoing, run_of

DIALS: dict[str, Any] = {"queries": 3, "responses": 3, "window": 6, "neighbours": 2, "warmup": 2}


class BruteForce:
    """The same rewards, with nothing shared: lists that are searched from end to end."""

    def __init__(self) -> None:
        self.right: list[tuple[Any, list[Any]]] = []
        self.wrong: list[tuple[Any, list[Any]]] = []
        self.far: list[float] = []
        self.new: list[float] = []
        self.groups = 0

    def near(self, memory: list[tuple[Any, list[Any]]], query: Any) -> list[Any]:
        like = [float(query @ other / np.linalg.norm(query) / np.linalg.norm(other)) for other, _ in memory]
        order = sorted(range(len(memory)), key=lambda place: (-like[place], place))[: DIALS["neighbours"]]
        return [response for place in order for response in memory[place][1]]

    def scaled(self, values: list[float], value: float) -> float:
        values.append(value)
        last = values[-DIALS["window"] :]
        return 0.5 if max(last) == min(last) else (value - min(last)) / (max(last) - min(last))

    def score(self, query: Any, responses: Any, outcomes: list[float]) -> list[float]:
        rewards = []
        for response in responses:
            reward, right, wrong = 0.0, self.near(self.right, query), self.near(self.wrong, query)
            if right:
                reward += self.scaled(self.far, -float(np.sqrt(((response - sum(right) / len(right)) ** 2).sum())))
            if wrong and self.groups >= DIALS["warmup"]:
                cosines = [response @ other / np.linalg.norm(response) / np.linalg.norm(other) for other in wrong]
                reward += self.scaled(self.new, 1 - float(max(cosines)))
            rewards.append(reward)
        for response, outcome in zip(responses, outcomes, strict=True):
            memory = self.right if outcome > 0.5 else self.wrong
            own = next((each for each in memory if np.array_equal(each[0], query)), None)
            if own is None:
                own = (query, [])
                memory.append(own)
                del memory[: max(0, len(memory) - DIALS["queries"])]
            own[1].append(response)
            del own[1][: max(0, len(own[1]) - DIALS["responses"])]
        self.groups += 1
        return rewards


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 4))
def test_the_intrinsic_reward_is_that_of_brute_force(seed: int, asked: list[int], members: int) -> None:
    draw = np.random.default_rng(seed)
    questions = draw.normal(size=(5, 4))
    reward, brute = EpisodicReward(**DIALS), BruteForce()
    for number in asked:
        responses, outcomes = draw.normal(size=(members, 4)), draw.choice([0.0, 0.5, 0.6, 1.0], size=members).tolist()
        expected = brute.score(questions[number], responses, outcomes)
        assert reward.score_group(questions[number], responses, outcomes) == pytest.approx(expected, abs=1e-9)


def encode(texts: Any) -> Any:
    """Counts of three letters, and a constant."""
    return np.array([[text.count("1") + 0.0, text.count("2"), text.count("3"), 1.0] for text in texts])


def group(*banks: tuple[str, float]) -> Group:
    """Episodes that ended with these facts in the bank, written "f1 f2", and with these rewards."""
    return Group("t", "", tuple(episode_of(kept.split(), reward) for kept, reward in banks))


def remembered() -> RememberedEpisodes:
    return RememberedEpisodes(EpisodicReward(warmup=0), encode, bank_of, 0.5)


def test_a_bank_is_compared_with_the_banks_of_past_successes_and_failures_by_hand() -> None:
    now = remembered()
    (first,) = now.review([group(("f1", 1.0), ("f2", 0.0))])
    assert [episode.rewards[-1].value for episode in first.episodes] == [0.0, 0.0], "nothing is remembered yet"
    (second,) = now.review([group(("f1", 0.2), ("f2", 0.2), ("f1 f2", 0.2))])
    # Distances to the one success (1, 0, 0, 1) are 0, sqrt 2 and 1; each is placed between the least and the most seen so far.
    # Cosines with the one failure (0, 1, 0, 1): 1/2, 1 and 2/sqrt 6: by these the first is the newest, the second not at all.
    third = (2**0.5 - 1) / 2**0.5
    new = (1 - 2 / 6**0.5) / 0.5
    values = [episode.rewards[-1].value for episode in second.episodes]
    assert values == pytest.approx([0.5 + 0.5, 0.0 + 0.0, third + new])
    assert [episode.rewards[-1].name for episode in second.episodes] == ["episodic"] * 3
    assert second.episodes[0].reward == pytest.approx(0.2 + 0.5 * 1.0)
    assert second.episodes[0].metric == pytest.approx(0.2), "how well the task was done is the answer's alone"
    assert now.keep([], 1) == {"episodic/successes": 1.0, "episodic/failures": 4.0}


def test_reward_history_is_saved_in_the_checkpoint() -> None:
    now, other = remembered(), remembered()
    now.review([group(("f1", 1.0), ("f2", 0.0))])
    other.load(json.loads(json.dumps(now.state())))
    again = [group(("f3", 0.0), ("f1", 0.0))]
    assert other.review(again) == now.review(again)


def test_a_run_has_the_term(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what it was trained on."""
    with echoing(monkeypatch):
        run = run_of(memory_r_plus, checkpoint, tmp_path / "run", encoder="hashing:32", explore_after=1)
    episodes = [stored.episode for stored in run.episodes(arm="train")]
    given = [term.value for episode in episodes for term in episode.rewards if term.name == "episodic"]
    assert len(given) == len(episodes)
    assert len(set(given)) > 2
    assert any(row.get("episodic/failures", 0) > 0 for row in run.metrics())
    assert "trained" in {row["arm"] for row in run.evals()}


def test_other_objectives_keep_no_reward_history() -> None:
    assert not memory_r_plus.Config(objective="tis").remembers
    assert memory_r_plus.Config().remembers
