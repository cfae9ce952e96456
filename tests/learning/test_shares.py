"""Learners that share an update against one that makes it alone: for every objective, to the last bits of float64."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keepworth.training.critic import CriticSettings
from keepworth.training.master_weights import MasterWeights
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import presets
from keepworth.training.passes import PassRoom, micro_batches, work
from keepworth.training.rows import Texts, rows_of
from keepworth.training.shares import Shares, divide
from tests.learning.in_threads import in_threads
from tests.learning.turns import ROLE, VALUES, WHOLE, learner_of, objective_of, same, sampled_groups, weights
from tests.models.tiny import tiny_model

MAKING = threading.Lock()
"""Weights are drawn from the one generator that a process has."""


Learned = tuple[dict[str, torch.Tensor], list[dict[str, float]]]
"""Weights, the critic's too, and what was measured at each update."""


def learned(objective: Objective, shares: Shares, batches: list[Any], precision: Any, **how: Any) -> Learned:
    """After an update on each batch. The first learner alone has the teacher, and values of tasks."""
    leads = shares.rank == 0
    taught = leads and objective.teacher is not None
    with MAKING:
        learner = learner_of(
            objective,
            2 if objective.adapter_decay else 0,
            precision=precision,
            learning_rate=1e-2,
            teacher=tiny_model(seed=5, precision=precision, hidden=32) if taught else None,
            soft_values=VALUES if leads and objective.needs_soft_values else None,
            critic=CriticSettings(learning_rate=1e-2) if objective.needs_critic else None,
            shares=shares,
            **how,
        )
    measured = [learner.update(batch) for batch in batches]
    found = [{name: value for name, value in each.items() if "seconds" not in name} for each in measured]
    return weights(learner), found


def require_close(one: Learned, other: Learned, relative: float) -> None:
    for ours, theirs in zip(one[0].values(), other[0].values(), strict=True):
        assert float((ours - theirs).abs().max()) <= relative * max(1.0, float(theirs.abs().max()))
    for ours_, theirs_ in zip(one[1], other[1], strict=True):
        assert ours_ == pytest.approx(theirs_, rel=relative, abs=relative)


def require_equal(one: Learned, other: Learned) -> None:
    assert same(one[0], other[0])
    assert one[1] == other[1]


@pytest.fixture(scope="module")
def batches() -> list[Any]:
    model = tiny_model(precision="fp64", hidden=32)
    return [sampled_groups(model, seed=seed) for seed in (0, 7)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [*sorted(presets()), WHOLE])
def test_two_updates_of_several_learners_are_those_of_one(name: str, batches: list[Any]) -> None:
    """Two or three learners, with several passes and minibatches where the objective takes them."""
    objective, even = objective_of(name), len(name) % 2 == 0
    how: dict[str, Any] = {"token_budget": 96, "checkpointing": "off" if even else "auto"}
    if objective.takes_passes:
        how |= {"passes": 2} if even else {"minibatches": 2}
    alone = learned(objective, Shares(), batches, "fp64", **how)
    together = in_threads(2 if even else 3, lambda shares: learned(objective, shares, batches, "fp64", **how))
    for each in together:
        require_close(each, alone, 1e-12)
        require_equal(each, together[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["grpo", "ppo", "rloo", "archer"])
def test_with_two_micro_batches_two_learners_take_the_very_step_of_one(name: str) -> None:
    """In float32, to the last bit: there is one sum of two terms, whoever adds it up."""
    model = tiny_model(hidden=32)
    batches, objective = [sampled_groups(model, seed=seed) for seed in (0, 7)], objective_of(name)
    how: dict[str, Any] = {"token_budget": 400, "checkpointing": "off"}
    for batch in batches:
        rows = rows_of(batch, [ROLE], 0, merge=objective.aggregation_unit == "episode")
        assert len(micro_batches(rows, range(rows.batch.shape[0]), PassRoom(400))) == 2
    alone = learned(objective, Shares(), batches, "fp32", **how)
    for thread in in_threads(2, lambda shares: learned(objective, shares, batches, "fp32", **how)):
        require_equal(thread, alone)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("count", [2, 5])
def test_large_micro_batch_is_split_among_processes(count: int, batches: list[Any]) -> None:
    objective, how = objective_of("grpo"), {"token_budget": 8192, "checkpointing": "off"}
    alone = learned(objective, Shares(), batches, "fp64", **how)
    for thread in in_threads(count, lambda shares: learned(objective, shares, batches, "fp64", **how)):
        require_close(thread, alone, 1e-12)


@pytest.mark.parametrize("count", [1, 3])
def test_a_supervised_step_is_shared_too(count: int) -> None:
    pairs = [(tuple(b"say:"), tuple(f"word {number}".encode())) for number in range(7)]

    def imitated(shares: Shares) -> Learned:
        with MAKING:
            learner = learner_of(objective_of("rloo"), precision="fp64", token_budget=64, shares=shares)
        measured = [{**learner.imitate(pairs), "seconds/learn": 0.0} for _ in range(2)]
        return weights(learner), measured

    alone = imitated(Shares())
    for thread in in_threads(count, imitated):
        require_close(thread, alone, 1e-12)


def test_parameters_without_a_gradient_are_not_decayed() -> None:
    """AdamW decays a weight whose gradient is zero, and leaves one alone that has none: as in one process."""

    def stepped(shares: Shares) -> list[list[float]]:
        values = {name: torch.nn.Parameter(torch.ones(2)) for name in ("both", "one", "none")}
        masters = MasterWeights(values, 0.1, weight_decay=0.5, max_norm=1e9, shares=shares)
        values["both"].grad = torch.full((2,), 1.0 + shares.rank)
        if shares.rank == shares.count - 1:
            values["one"].grad = torch.full((2,), 4.0)
        norm = masters.step()
        assert norm == pytest.approx((2 * 3.0**2 + 2 * 4.0**2) ** 0.5 if shares.count > 1 else (2 + 32) ** 0.5)
        return [value.tolist() for value in values.values()]

    one, other = in_threads(2, stepped)
    assert one == other
    assert one[2] == [1.0, 1.0]
    assert one[1][0] < 1.0
    assert stepped(Shares())[2] == [1.0, 1.0]


LOADS = st.lists(st.floats(0, 1e6), max_size=40)


@given(LOADS, st.integers(1, 9))
def test_shares_are_a_partition_balanced_and_the_same_every_time(loads: list[float], count: int) -> None:
    shares = divide(loads, count)
    assert sorted(index for share in shares for index in share) == list(range(len(loads)))
    assert shares == divide(list(loads), count) == [Shares(rank, count).pick(loads) for rank in range(count)]
    assert all(share == sorted(share) for share in shares)
    totals = [sum(loads[index] for index in share) for share in shares]
    for share, total in zip(shares, totals, strict=True):
        if share:  # what came last to it went to whoever had least
            smallest = min(loads[index] for index in share)
            assert total - smallest <= min(totals) + 1e-6 * max(1.0, total)
    if len(loads) >= count:
        assert all(shares) or min(loads) == 0 or max(loads) > 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=20), st.integers(1, 8))
def test_rows_are_split_until_each_process_has_some(rows: list[tuple[int, int]], least: int) -> None:
    texts = Texts([(prompt,) * (5 + prompt) for prompt, _ in rows], [(1,) * length for _, length in rows])
    whole = micro_batches(texts, range(len(rows)), PassRoom(4096))
    parts = micro_batches(texts, range(len(rows)), PassRoom(4096), least)
    assert sorted(row for part in parts for row in part.rows) == list(range(len(rows)))
    assert len(parts) >= min(least, len(rows))
    assert len(parts) <= max(least, len(whole))
    assert max(work(texts, part) for part in parts) <= max(work(texts, each) for each in whole)
