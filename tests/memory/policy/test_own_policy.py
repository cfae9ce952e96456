"""A policy that somebody else wrote, over the memory's own search, through `Memory` and the kit alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
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
from keepworth.memory.choose import learning
from keepworth.memory.choose.propensity import Independent
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.search.search import Hit
from keepworth.memory.store.checks import check
from tests.memory.helpers import behind_its_back
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
def test_own_policy_learns_in_both_directions(tmp_path: Path, right: str) -> None:
    with opened(tmp_path / "a.mem") as memory:
        assert teach(memory, right)[-5:] == [True] * 5


def test_own_policy_survives_reopening_and_rollback(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        (first,) = memory.search(ASKED, top_k=1)
        other = PLUG if first.text == BUTTON else BUTTON
        before = memory.snapshot()
        teach(memory, other)
    with opened(tmp_path / "a.mem") as memory:
        assert memory.search(ASKED, top_k=1)[0].text == other
        memory.rollback(since=before)
        assert memory.search(ASKED, top_k=1)[0].text == first.text


def test_own_policy_respects_filters_scopes_and_modes(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        memory.add("Ana resets the router on Mondays.", user_id="ana", metadata={"team": "net"})
        assert [hit.item.scope.user for hit in memory.search(ASKED, where={"team": "net"})] == ["ana"]
        assert "Ana" not in str(memory.search(ASKED, user_id="bo"))
        assert {hit.text for hit in memory.search("plug", mode="lexical")} == {PLUG}
        assert memory.search(ASKED, statuses=["archived"]) == []


def test_worth_and_ledger_work_with_a_policy_without_a_record(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem") as memory:
        teach(memory, PLUG)
        plug = next(item for item in memory.get_all() if item.text == PLUG)
        button = next(item for item in memory.get_all() if item.text == BUTTON)
        assert memory.worth(plug.id, ASKED).with_it > memory.worth(button.id, ASKED).with_it
        assert {account.item for account in memory.ledger(everything=True).accounts} == {plug.id, button.id}


def test_hit_states_whether_rewards_moved_it(tmp_path: Path) -> None:
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


def mixing(kind: Any, first: Any, second: Any = None, **options: Any) -> dict[str, Any]:
    """Return a selector that gives this mixture, whose arrays it makes of the number of candidates."""
    deviations = second or np.zeros
    return {"selector": lambda query, candidates, values, pool: _mix(kind, first, deviations, len(candidates), options)}


def _mix(kind: Any, first: Any, second: Any, number: int, options: dict[str, Any]) -> Mixture:
    return Mixture(kind, first(number), second(number), **({"k": 4} | options))


def half_unknown(number: int) -> Any:
    return np.array([np.nan, *np.zeros(number - 1)])


def estimating(estimate: Callable[[int], Any]) -> dict[str, Any]:
    return {"valuer": Fixed(estimate)}


def failing(*rest: object, **more: object) -> Any:
    """Stands for a slot that its author has not tried out."""
    raise ZeroDivisionError("division by zero")


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
        (estimating(failing), "raised ZeroDivisionError: division by zero"),
        ({"selector": failing}, "raised ZeroDivisionError: division by zero"),
        ({"selector": selecting(draw=failing)}, "raised ZeroDivisionError"),
        (mixing("greedy", lambda n: np.full(n, np.nan)), "gave scores with NaN in them"),
        (mixing("greedy", half_unknown), "gave scores with NaN in them"),
        (mixing("gumbel", half_unknown), "gave log-weights with NaN in them"),
        (mixing("thompson", half_unknown, np.ones), "gave means that are not all finite"),
        (mixing("greedy", lambda n: np.zeros(1)), "gave scores of shape (1,) for 2 candidates"),
        (mixing("greedy", lambda n: [0.0] * n), "instead of an array of numbers"),
        (mixing("gredy", np.zeros), "did you mean 'greedy'? (it is one of thompson, gumbel, greedy)"),
        (mixing(None, np.zeros), "of the kind None (it is one of"),
        (mixing("thompson", np.zeros), "gave the deviation 0 (deviations must be above 0)"),
        (mixing("thompson", np.zeros, lambda n: np.ones(1)), "gave deviations of shape (1,) for 2 candidates"),
        (mixing("greedy", np.zeros, floor=float("nan")), "gave the floor nan"),
        (mixing("greedy", np.zeros, explore=1.5), "gave the probability 1.5 of exploring"),
        (mixing("greedy", np.zeros, k=None), "gave None instead of the number of places, k"),
        (mixing("greedy", np.zeros, conflicts=np.zeros((1, 1), bool)), "gave conflicts that are no array"),
        ({"selector": lambda *slots: Independent((0,), 2)}, "gave an order without all 2 candidates"),
        ({"presenter": failing}, "raised ZeroDivisionError"),
        (presenting(None), "instead of Presented"),
        (presenting(Presented(3)), "gave the text 3"),  # type: ignore[arg-type]
        (presenting(Presented("", (("refund", float("nan"), 1.0),))), "instead of (action, weight, similarity)"),
    ],
)
def test_invalid_policy_answer_falls_back_to_the_search_order(
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
def test_selector_may_return_any_integer_type(slate: Any, tmp_path: Path) -> None:
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
def test_failing_retriever_is_named_with_its_file(slots: dict[str, Any], problem: str, tmp_path: Path) -> None:
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
        for id in use.ids(pool):
            self.sums[id] = self.sums.get(id, 0.0) + use.reward - 0.5


def sums() -> Policy:
    record = Sums()
    return Policy("sums", whole, None, record, select, lines, record=record)


@pytest.mark.parametrize("right", [BUTTON, PLUG])
def test_own_record_learns_by_item_ids(right: str, tmp_path: Path) -> None:
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


class Saved(Sums):
    """What it saves stands for the rewards behind it."""

    learned, answer = 0, staticmethod(lambda state: state)

    def learn(self, use: Use, pool: Pool) -> None:
        super().learn(use, pool)
        type(self).learned += 1

    def save(self) -> Any:
        return self.answer([self.number, self.sums])

    def load(self, state: Any) -> None:
        self.number, self.sums = state


def of_record(kind: type[Sums]) -> Callable[[], Policy]:
    def make() -> Policy:
        record = kind()
        return Policy("sums", whole, None, record, select, lines, record=record)

    return make


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 4)


def test_saved_state_replaces_the_rewards_before_it(tmp_path: Path, often: None) -> None:
    class Mine(Saved):
        pass

    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        teach(memory, PLUG, 5)
        before = memory.snapshot()
        hits = memory.search(ASKED, top_k=2)
        teach(memory, PLUG, 4)
        sums = memory.learning.experience.policy.valuer.sums  # type: ignore[union-attr]
    Mine.learned = 0
    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        assert memory.learning.experience.policy.valuer.sums == sums  # type: ignore[union-attr]
        assert Mine.learned == 1, "eight of nine rewards stand behind the saved state"
        assert memory.reward(hits.decision, 1.0).applied
        memory.rollback(since=before)
    Mine.learned = 0
    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        memory.search(ASKED)
        assert Mine.learned == 5, "a state with rewards behind it that were rolled back is void"


class SavedArrays(Sums):
    """What it saves has arrays and long lists in it."""

    def save(self) -> Any:
        names, sums = list(self.sums), np.array(list(self.sums.values()))
        log = [f"reward {number}" for number in range(500)]
        return {"number": self.number, "items": [names, sums], "empty": np.zeros((0, 3), "<i4"), "log": log}

    def load(self, state: Any) -> None:
        names, sums = state["items"]
        assert state["empty"].shape == (0, 3)
        assert state["log"][499] == "reward 499"
        self.number, self.sums = state["number"], dict(zip(names, sums.tolist(), strict=True))


def test_a_saved_state_may_hold_arrays_and_long_lists(tmp_path: Path, often: None) -> None:
    with opened(tmp_path / "a.mem", of_record(SavedArrays)) as memory:
        teach(memory, PLUG, 8)
        sums = memory.learning.experience.policy.valuer.sums  # type: ignore[union-attr]
    behind_its_back(tmp_path / "a.mem", "UPDATE decisions SET chosen = '[]', candidates = '[]'")
    with opened(tmp_path / "a.mem", of_record(SavedArrays)) as memory:
        assert memory.learning.experience.policy.valuer.sums == sums  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "answer", [failing, lambda state: {1, 2}, lambda state: float("nan"), lambda state: np.array([{}])]
)
def test_unsaveable_state_is_named_and_learned_again(
    answer: Callable[[Any], Any], tmp_path: Path, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    class Mine(Saved):
        pass

    Mine.answer = staticmethod(answer)
    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        assert teach(memory, PLUG)[-3:] == [True] * 3
    assert "cannot be saved" in caplog.text
    assert "test_own_policy.py" in caplog.text
    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        assert memory.search(ASKED, top_k=1)[0].text == PLUG


def test_a_state_that_cannot_be_loaded_is_learned_anew(
    tmp_path: Path, often: None, caplog: pytest.LogCaptureFixture
) -> None:
    kind = type("Mine", (Saved,), {"load": failing})
    for _ in range(2):
        with opened(tmp_path / "a.mem", of_record(kind)) as memory:
            teach(memory, PLUG, 8)
            assert memory.learning.experience.learned in (8, 16)
            assert memory.search(ASKED, top_k=1)[0].text == PLUG
    assert "cannot load what it saved" in caplog.text
    assert "test_own_policy.py" in caplog.text


@pytest.mark.parametrize("base", [MeanReward, Sums])
def test_a_reward_at_which_learning_fails_is_kept_and_left_out(
    base: type[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    class Mine(base):  # type: ignore[misc]
        def learn(self, use: Use, pool: Pool) -> None:
            if broken[0]:
                failing()
            super().learn(use, pool)

    def make() -> Policy:
        valuer = Mine()
        return Policy("mine", whole, None, valuer, select, lines, record=valuer if base is Sums else None)

    with opened(tmp_path / "a.mem", make) as memory:
        first = memory.search(ASKED, top_k=1)[0].text
        assert teach(memory, PLUG if first == BUTTON else BUTTON) == [False] * 8
        assert check(memory.store) == []
    assert "raised ZeroDivisionError" in caplog.text
    assert "test_own_policy.py" in caplog.text
    broken[0] = False
    with opened(tmp_path / "a.mem", make) as memory:  # mended, it learns from the log
        assert memory.search(ASKED, top_k=1)[0].text != first


@pytest.mark.parametrize("answer", [failing, lambda *rest, **more: None, lambda *rest, **more: ["m99", 3]])
@pytest.mark.parametrize("question", ["explain", "details", "advise", "proven"])
def test_failing_record_method_is_named_and_skipped(
    question: str, answer: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Mine(Sums):
        pass

    setattr(Mine, question, answer)
    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        assert teach(memory, PLUG)[-3:] == [True] * 3
    assert "the record of policy 'sums'" in caplog.text
    assert "test_own_policy.py" in caplog.text


def test_record_may_explain_shown_hits_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Mine(Sums):
        def explain(self, hits: Sequence[Hit], use: Use) -> list[Hit]:
            return list(hits)

    with opened(tmp_path / "a.mem", of_record(Mine)) as memory:
        assert len(memory.search(ASKED, top_k=1)) == 1
    assert "explained other hits than those that are shown" in caplog.text


def test_a_selector_over_the_default_policy_has_the_items_and_their_rows(tmp_path: Path) -> None:
    def longest_first(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        items, near = candidates.listed(pool), candidates.vectors(pool) @ query.vector
        assert [pool.items[row].id for row in candidates.rows] == [item.id for item in items]
        assert near.shape == (len(candidates),)
        assert (near > 0.0).all()
        assert candidates.actions(query, pool) == [()] * len(candidates)
        lengths = np.array(candidates.tokens(pool), dtype=np.float64)
        return Mixture("greedy", lengths, np.zeros(len(lengths)), query.most)

    made = replace(keepworth.policy("default"), name="longest", selector=longest_first)
    with opened(tmp_path / "a.mem", lambda: deepcopy(made)) as memory:
        memory.add("To reset the router of the house at the lake ask Ana, who has the key.")
        memory.reward(memory.search(ASKED, top_k=1).decision, 0.0)
        for _ in range(3):
            hits = memory.search(ASKED, top_k=1)
            assert "Ana" in hits[0].text
            memory.reward(hits.decision, 0.0)


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
def test_default_policy_accepts_an_own_retriever_and_presenter(right: str, tmp_path: Path) -> None:
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


def test_policy_without_a_retriever_may_show_no_items(tmp_path: Path) -> None:
    def choose_none(query: Query, candidates: Candidates, values: Values, pool: Pool) -> Mixture:
        return Mixture("greedy", values.means, values.deviations, query.most, floor=np.inf)

    with opened(tmp_path / "a.mem", lambda: Policy("none", whole, None, MeanReward(), choose_none, lines)) as memory:
        hits = memory.search(ASKED)
        assert hits == []
        assert hits.propensity == 1.0
        assert memory.reward(hits.decision, 1.0).reason == "no known item was shown"


def test_example_selector_chooses_by_values() -> None:
    values = Values(np.array([0.0, 1.0]), np.zeros(2))
    query = Query("", np.zeros(2, np.float32), 0, 0, most=1)
    choice = select(query, Candidates(np.arange(2), np.array([0.9, 0.1])), values, Pool(lambda text: np.zeros(2), 2))
    assert choice.draw(np.random.default_rng(0))[0] == (1,)
