"""A policy that somebody else wrote, over the memory's own search, through `Memory` and the kit alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.own_policy import MeanReward, mean_reward, select

from keepworth import Memory
from keepworth.kit import Candidates, Mixture, Policy, Pool, Query, Values, lines, whole
from keepworth.memory.store.checks import check
from tests.memory.stub_encoder import WordEncoder

ASKED = "how do I reset the router"
BUTTON, PLUG = "To reset the router hold the button.", "To reset the router pull the plug."


def opened(path: Path, policy: Callable[[], Policy] = mean_reward) -> Memory:
    memory = Memory(path, policy=policy, encoder=WordEncoder(), seed=1)
    if not len(memory):
        memory.add(BUTTON)
        memory.add(PLUG)
    return memory


def teach(memory: Memory, right: str, times: int = 8) -> list[bool]:
    won = []
    for _ in range(times):
        hits = memory.search(ASKED, top_k=1)
        won.append(hits[0].text == right)
        memory.reward(hits.decision, float(won[-1]))
    return won


@pytest.mark.parametrize("right", [BUTTON, PLUG])
def test_it_learns_in_both_directions(tmp_path: Path, right: str) -> None:
    with opened(tmp_path / "a.mem") as memory:
        assert teach(memory, right)[-5:] == [True] * 5


def test_it_is_the_same_after_reopening_and_forgets_what_is_rolled_back(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        (first,) = memory.search(ASKED, top_k=1)
        other = PLUG if first.text == BUTTON else BUTTON
        before = memory.snapshot()
        teach(memory, other)
    with opened(tmp_path / "a.mem") as memory:
        assert memory.search(ASKED, top_k=1)[0].text == other
        memory.rollback(since=before)
        assert memory.search(ASKED, top_k=1)[0].text == first.text


def test_filters_scopes_and_ways_of_searching_are_those_of_the_memory(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        memory.add("Ana resets the router on Mondays.", user_id="ana", metadata={"team": "net"})
        assert [hit.item.scope.user for hit in memory.search(ASKED, where={"team": "net"})] == ["ana"]
        assert "Ana" not in str(memory.search(ASKED, user_id="bo"))
        assert {hit.text for hit in memory.search("plug", mode="lexical")} == {PLUG}
        assert memory.search(ASKED, statuses=["archived"]) == []


def test_what_an_item_is_worth_and_the_ledger_come_from_the_log(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        teach(memory, PLUG)
        plug = next(item for item in memory.get_all() if item.text == PLUG)
        button = next(item for item in memory.get_all() if item.text == BUTTON)
        assert memory.worth(plug.id, ASKED).with_it > memory.worth(button.id, ASKED).with_it
        assert {account.item for account in memory.ledger(everything=True).accounts} == {plug.id, button.id}


def test_a_hit_that_rewards_moved_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        first = memory.search(ASKED, top_k=2)[0].text
        teach(memory, PLUG if first == BUTTON else BUTTON)
        assert [hit.why.moved for hit in memory.search(ASKED, top_k=2)] == ["up", "down"]


def policy_of(**slots: Any) -> Callable[[], Policy]:
    return lambda: replace(mean_reward(), **slots)


class Fixed(MeanReward):
    def __init__(self, values: Callable[[int], Any]) -> None:
        super().__init__()
        self.values = values

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        result: Values = self.values(len(candidates.rows))
        return result


class Drawing(Mixture):
    """Draws places that it was not given."""

    def draw(self, generator: np.random.Generator) -> tuple[tuple[int, ...], str]:
        return (0, 7), "main"


def choose_outside(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
    return Drawing("greedy", values.means, values.deviations, query.most)


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        ({"valuer": Fixed(lambda n: Values(np.full(n, np.nan), np.zeros(n)))}, "not all finite"),
        ({"valuer": Fixed(lambda n: Values(np.zeros(n + 1), np.zeros(n)))}, "of shape"),
        ({"valuer": Fixed(lambda n: None)}, "instead of Values"),
        ({"selector": choose_outside}, "chose place 7 among 2 candidates"),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_the_order_of_the_search(
    slots: dict[str, Any], problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "a.mem", policy_of(**slots)) as memory, caplog.at_level(logging.WARNING):
        hits = memory.search(ASKED, top_k=2)
        assert {hit.text for hit in hits} == {BUTTON, PLUG}
        assert hits.propensity == 1.0
        memory.reward(hits.decision, 1.0)
        assert check(memory.store) == []
    assert problem in caplog.text
    assert "mean-reward" in caplog.text
    assert "test_own_policy.py" in caplog.text


def test_a_policy_without_a_retriever_may_write_nothing_and_show_less(tmp_path: Path) -> None:
    def choose_none(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        return Mixture("greedy", values.means, values.deviations, query.most, floor=np.inf)

    with opened(tmp_path / "a.mem", lambda: Policy("none", whole, None, MeanReward(), choose_none, lines)) as memory:
        hits = memory.search(ASKED)
        assert hits == []
        assert hits.propensity == 1.0
        assert memory.reward(hits.decision, 1.0).reason == "no known item was shown"


def test_the_example_chooses_by_what_it_is_given() -> None:
    values = Values(np.array([0.0, 1.0]), np.zeros(2))
    query = Query("", np.zeros(2, np.float32), 0, 0, most=1)
    choice = select(query, Candidates(np.arange(2), np.array([0.9, 0.1])), values, Pool(lambda text: np.zeros(2), 2))
    assert choice.draw(np.random.default_rng(0))[0] == (1,)
