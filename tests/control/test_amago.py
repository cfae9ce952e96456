"""AMAGO: values of several discounts are those of dynamic programming, and one memory learns for actor and critics."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.control.amago import MOVES, TwoGoals, exchange
from keepworth.base.errors import UnknownName
from keepworth.control.errors import SpaceError
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.replay import Columns
from keepworth.control.run import TrainedAgent
from keepworth.control.settings import SettingError
from keepworth.registry import method
from tests.control.resumed import check_resumed_weights
from tests.control.worlds import Chain, Recall, Slope

SMALL: dict[str, Any] = {
    "steps": 1200, "every": 400, "warmup": 200, "ratio": 0.4, "batch": 16, "length": 8, "width": 32, "learning_rate": 3e-3,
    "tau": 0.05, "discount": 0.9, "capacity": 2000, "discounts": (0.5,), "forget": 0.05,
}  # fmt: skip


def make(world: Any, memory: str, **settings: Any) -> Any:
    made = method("control_agent", "amago").make(world, memory, **{**SMALL, **settings})
    assert isinstance(made, OffPolicyTrainer)
    return made


def test_values_of_a_chain_are_those_of_dynamic_programming_for_each_discount() -> None:
    trainer = make(Chain, "mlp", action_input=False, reward_input=False, steps=1600, ratio=0.6)
    list(trainer.train())
    agent = TrainedAgent(trainer.network, trainer.worlds)
    assert [agent.predict(place)[0] for place in range(Chain.places)] == [1, 1, 1, 1]
    x, starts = torch.eye(Chain.places).unsqueeze(1), torch.ones(Chain.places, 1, dtype=torch.bool)
    with torch.no_grad():
        memories = trainer.network.remember(x, trainer.network.memory.initial_state(Chain.places), starts)
        heads = trainer.critics
        values = heads.mean + heads.deviation * heads.normal(memories).mean(0).squeeze(1)[..., 1]
    for column, discount in enumerate((0.5, 0.9)):
        best = [1.0]
        for _ in range(Chain.places - 1):
            best.insert(0, -0.1 + discount * best[0])
        assert values[:, column].tolist() == pytest.approx(best, abs=0.12)


def test_a_change_of_the_normalisation_leaves_all_values_as_they_were() -> None:
    trainer = make(Chain, "mlp")
    heads, target = trainer.critics, trainer.target_critics
    memories = torch.randn(5, heads.head_input)

    def values_of(of: Any) -> torch.Tensor:
        return of.mean.unsqueeze(-1) + of.deviation.unsqueeze(-1) * of.normal(memories)

    before = [values_of(of) for of in (heads, target)]
    with torch.no_grad():
        for mean, square in (([3.0, -2.0], [9.5, 30.0]), ([100.0, 0.1], [10_100.0, 0.5])):
            heads.follow(torch.tensor(mean), torch.tensor(square), [target])
    for of, values in zip((heads, target), before, strict=True):
        torch.testing.assert_close(values_of(of), values, rtol=1e-4, atol=1e-4)
    mean = 0.95 * 0.05 * 3.0 + 0.05 * 100.0
    assert float(heads.mean[0]) == pytest.approx(mean)
    square = 0.95 * (0.95 + 0.05 * 9.5) + 0.05 * 10_100.0
    assert float(heads.deviation[0]) == pytest.approx((square - mean**2) ** 0.5)


def test_one_memory_learns_to_recall() -> None:
    trainer = make(Recall, "gru", steps=2400, every=600, ratio=0.25, action_input=False, even=(1.0, 0.0, 0.6))
    *_, last = trainer.train()
    assert last["return"] > 0.6  # chance is 0
    assert not list(trainer.critics.memory.parameters())


def test_goals_that_are_exchanged_are_learned() -> None:
    """Each step to the left pays 1, where what was played pays for steps to the right alone."""

    def exchange(columns: Columns, draw: torch.Generator) -> Columns:
        return {**columns, "rewards": (columns["actions"][..., 0] == 0).float()}

    trainer = make(Chain, "mlp", action_input=False, reward_input=False, relabel=exchange)
    list(trainer.train())
    agent = TrainedAgent(trainer.network, trainer.worlds)
    assert [agent.predict(place)[0] for place in range(Chain.places)] == [0, 0, 0, 0]


def test_exchanged_goals_of_the_benchmark_pay_as_the_world_with_those_goals_does() -> None:
    draw, rows, world = np.random.default_rng(0), [], TwoGoals()
    for episode in range(30):
        seen, _ = world.reset(seed=episode)
        over = cut = False
        starts = True
        while not (over or cut):
            action = int(draw.integers(len(MOVES)))
            after, reward, over, cut, _ = world.step(action)
            rows.append((seen, starts, action, reward, over, True))
            seen, starts = after, False
        if cut:
            rows.append((seen, False, 0, 0.0, False, False))
    names = ("features", "starts", "actions", "rewards", "terminated", "valid")
    columns = {
        name: torch.tensor(np.array(of[: 20 * 41])).unflatten(0, (20, 41))
        for name, of in zip(names, zip(*rows, strict=True), strict=True)
    }
    changed = exchange(columns, torch.Generator().manual_seed(0))
    counted = 0
    for window in range(20):
        borders = sorted({0, *columns["starts"][window].nonzero().ravel().tolist(), 41})
        for first, end in pairwise(borders):
            seen = changed["features"][window, first:end]
            if torch.equal(seen, columns["features"][window, first:end]):
                continue
            counted += 1
            done = 0
            for step in range(end - first - 1):
                row = window, first + step
                reaches = done < 2 and bool((seen[step + 1, :2] == seen[step, 2 + 2 * done : 4 + 2 * done]).all())
                pays = reaches and bool(columns["valid"][row])
                assert float(changed["rewards"][row]) == pays
                assert bool(changed["valid"][row]) == (bool(columns["valid"][row]) and done < 2)
                done += pays
                assert bool(changed["terminated"][row]) == (pays and done == 2)
    assert counted > 10
    assert changed["rewards"].sum() > 2 * columns["rewards"].sum()


def test_a_run_that_was_stopped_goes_on_to_the_same_weights() -> None:
    settings = {"steps": 240, "every": 60, "warmup": 60}
    check_resumed_weights(lambda: make(Recall, "gru", **settings), "network", "critics", updates=2)


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(SettingError, match="heads = 1 leaves no two to draw"):
        make(Recall, "gru", heads=1)
    with pytest.raises(SettingError, match=r"discounts = .* are not in"):
        make(Recall, "gru", discounts=(1.5,))
    with pytest.raises(UnknownName, match="temperature"):
        make(Recall, "gru", temperature=0.1)
    with pytest.raises(SpaceError, match=r"AMAGO chooses here.*Use rsac"):
        make(Slope, "gru")
