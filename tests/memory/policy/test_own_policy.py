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

import keepworth
from keepworth import Memory
from keepworth.kit import (
    Candidates,
    Mixture,
    Policy,
    PolicyRecord,
    Pool,
    Presented,
    Query,
    Use,
    Values,
    lines,
    whole,
)
from keepworth.memory.errors import InvalidPolicy
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


def selecting(**methods: Any) -> Callable[..., Mixture]:
    """Return a selector whose distribution has these methods instead of its own."""
    drawing = type("Drawing", (Mixture,), methods)

    def select_so(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        made: Mixture = drawing("greedy", values.means, values.deviations, query.most)
        return made

    return select_so


def drawing(slate: object, part: object = "main") -> dict[str, Any]:
    return {"selector": selecting(draw=lambda self, generator: (slate, part))}


def weighing(propensity: object) -> dict[str, Any]:
    return {"selector": selecting(probability=lambda self, slate: propensity)}


def estimating(estimate: Callable[[int], Any]) -> dict[str, Any]:
    return {"valuer": Fixed(estimate)}


def presenting(presented: object) -> dict[str, Any]:
    return {"presenter": lambda items, query, similarities: presented}


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        (estimating(lambda n: Values(np.full(n, np.nan), np.zeros(n))), "not all finite"),
        (estimating(lambda n: Values(np.zeros(n + 1), np.zeros(n))), "of shape"),
        (estimating(lambda n: None), "instead of Values"),
        (estimating(lambda n: Values([0.0] * n, np.zeros(n))), "instead of an array of numbers"),  # type: ignore[arg-type]
        (estimating(lambda n: Values(np.array(["high"] * n), np.zeros(n))), "instead of an array of numbers"),
        (estimating(lambda n: Values(np.zeros(n), np.zeros(n, complex))), "instead of an array of numbers"),
        (drawing((0, 7)), "chose place 7 among 2 candidates"),
        (drawing((0, 0)), "chose a candidate twice"),
        (drawing("01"), "instead of places"),
        (drawing((0.0, 1.0)), "instead of places"),
        (drawing((True, False)), "instead of places"),
        (drawing((0, 1), part=None), "named the part that drew it None"),
        (weighing(float("nan")), "gave the probability nan"),
        (weighing(0.0), "gave the probability 0.0"),
        (weighing(2.0), "gave the probability 2.0"),
        (weighing(None), "gave the probability None"),
        (presenting(None), "instead of Presented"),
        (presenting(Presented(3)), "gave the text 3"),  # type: ignore[arg-type]
        (presenting(Presented("", (("refund", float("nan"), 1.0),))), "instead of (action, weight, similarity)"),
    ],
)
def test_an_answer_that_cannot_be_used_leaves_the_order_of_the_search(
    slots: dict[str, Any], problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "a.mem", policy_of(**slots)) as memory, caplog.at_level(logging.WARNING):
        hits = memory.search(ASKED, top_k=2)
        assert {hit.text for hit in hits} == {BUTTON, PLUG}
        assert BUTTON in hits.text
        assert hits.propensity == 1.0
        memory.reward(hits.decision, 1.0)
        assert check(memory.store) == []
    assert problem in caplog.text
    assert "mean-reward" in caplog.text
    assert "test_own_policy.py" in caplog.text


@pytest.mark.parametrize("slate", [np.arange(2), (np.int64(1), np.int32(0)), [1, 0]])
def test_places_may_be_numbers_of_any_kind(slate: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem", policy_of(**(drawing(slate) | {"presenter": lines}))) as memory:
        hits = memory.search(ASKED, top_k=2)
        assert memory.reward(hits.decision, 1.0).applied


def retrieving(rows: Any, similarities: Any) -> dict[str, Any]:
    return {"retriever": lambda query, pool: Candidates(rows, similarities)}


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        ({"retriever": lambda query, pool: None}, "gave None instead of Candidates"),
        (retrieving(np.array([0, 99]), np.zeros(2)), "gave rows 0 to 99 of a pool of 2"),
        (retrieving(np.array([-1]), np.zeros(1)), "gave rows -1 to -1 of a pool of 2"),
        (retrieving(np.array([0, 0]), np.zeros(2)), "gave a row twice"),
        (retrieving([0, 1], np.zeros(2)), "instead of an array of whole numbers"),
        (retrieving(np.array([0.0, 1.0]), np.zeros(2)), "instead of an array of whole numbers"),
        (retrieving(np.array([0, 1]), np.zeros(3)), "gave similarities of shape"),
        (retrieving(np.array([0, 1]), np.array([np.nan, 1.0])), "gave similarities that are not all finite"),
        ({"keyer": lambda goal, observation: None}, "gave None instead of a text"),
    ],
)
def test_a_policy_that_cannot_find_anything_is_refused_with_its_place(
    slots: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with opened(tmp_path / "a.mem", policy_of(**slots)) as memory, pytest.raises(InvalidPolicy) as refused:
        memory.search(ASKED)
    assert problem in str(refused.value)
    assert "mean-reward" in str(refused.value)
    assert "test_own_policy.py" in str(refused.value)


class Sums(PolicyRecord):
    """Values a note by the sum of its rewards, .5 taken off each, without a pool."""

    def __init__(self) -> None:
        self.number, self.sums = 0, dict[str, float]()

    def __len__(self) -> int:
        return self.number

    def estimate(self, query: Query, candidates: Candidates, pool: Pool) -> Values:
        sums = [self.sums.get(item.id, 0.0) for item in candidates.listed(pool)]
        return Values(np.array(sums), np.zeros(len(sums)))

    def learn(self, use: Use, pool: Pool) -> None:
        self.number += 1
        assert use.logged_choice is not None
        for id in use.logged_choice.shown:
            self.sums[id] = self.sums.get(id, 0.0) + use.reward - 0.5


def sums() -> Policy:
    record = Sums()
    return Policy("sums", whole, None, record, select, lines, record=record)


@pytest.mark.parametrize("right", [BUTTON, PLUG])
def test_a_record_of_one_s_own_learns_by_ids(right: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem", sums) as memory:
        assert teach(memory, right)[-5:] == [True] * 5
        best = next(item for item in memory.get_all() if item.text == right)
        assert memory.worth(best.id, ASKED).times > 3
        assert [account.seen for account in memory.ledger(items=[best.id]).accounts] >= [5]
        with memory.episode(ASKED) as episode:
            episode.search(actions=["hold", "pull"])
            episode.act("hold")
            episode.reward(1.0)
    with opened(tmp_path / "a.mem", sums) as memory:
        assert memory.search(ASKED, top_k=1)[0].text == right


def test_a_record_that_is_not_the_valuer_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="is not its valuer"):
        replace(mean_reward(), record=Sums())
    with pytest.raises(InvalidPolicy, match="is not its valuer"):
        replace(keepworth.policy("default"), valuer=MeanReward())
    with pytest.raises(InvalidPolicy, match="the name 3"):
        replace(mean_reward(), name=3)  # type: ignore[arg-type]


def test_a_function_that_makes_no_fresh_policy_is_refused(tmp_path: Path) -> None:
    made = mean_reward()
    with pytest.raises(InvalidPolicy, match="gave the same policy twice"):
        Memory(tmp_path / "a.mem", policy=lambda: made)
    assert not (tmp_path / "a.mem").exists()


def nearest(query: Query, pool: Pool) -> Candidates:
    rows = pool.active()
    cosines = pool.similarities(query.vector, rows)
    best = np.argsort(-cosines, kind="stable")[:5]
    return Candidates(rows[best], cosines[best])


@pytest.mark.parametrize("right", [BUTTON, PLUG])
def test_the_default_policy_takes_a_retriever_and_a_presenter_of_one_s_own(right: str, tmp_path: Path) -> None:
    made = replace(
        keepworth.policy("default"), retriever=nearest, presenter=lambda items, query, near: Presented(f"{len(items)}!")
    )
    with Memory(tmp_path / "a.mem", policy=made, encoder=WordEncoder(), seed=1) as memory:
        memory.add(BUTTON)
        memory.add(PLUG)
        assert memory.search(ASKED).text == "2!"
        assert sum(teach(memory, right, 12)[-5:]) >= 4
        assert memory.search(ASKED, half_life=30.0).text == "2!"
        assert check(memory.store) == []
    with Memory(policy=made, encoder=WordEncoder()) as other:  # each memory learns in a copy of its own
        other.add(BUTTON)
        assert other.ledger().accounts == ()


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
