"""StaQ: the policy of kept critics is that of mirror descent, learns, and goes on after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.control.critics import Critics, StackedCritics
from keepworth.control.errors import SpaceError
from keepworth.control.off_policy import OffPolicyTrainer, action_space
from keepworth.control.run import TrainedAgent, load_checkpoint, run
from keepworth.control.settings import OffPolicySettings, SettingError
from keepworth.registry import method
from tests.control.worlds import Chain, Recall, Slope

SMALL = OffPolicySettings(
    world="small", memory="gru", learner="staq", stack=3, delay=4, steps=200, every=100, warmup=60, ratio=0.3, width=16,
    batch=8, length=6, capacity=300,
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("memory", ["mlp", "gru"])
def test_the_policy_is_that_of_mirror_descent_cut_to_the_last_critics(size: int, memory: str) -> None:
    """xi' = b xi + a Q + a b^M / (1 - b^M) (Q - the Q of M updates ago), with a = (1 - b) / temperature, and Q = 0 before."""
    settings = replace(SMALL, stack=size, decay=0.8, temperature=0.5, memory=memory)
    actions = action_space(Recall.action_space, settings)
    torch.manual_seed(0)
    stack = StackedCritics(3, actions, settings)
    x, starts = torch.randn(2, 5, stack.input_size), torch.zeros(2, 5).bool()
    starts[:, 0] = starts[1, 3] = True
    b, a, xi, values = 0.8, 0.2 / 0.5, torch.zeros(2, 5, 2), []
    for _ in range(12):
        critics = Critics(3, actions, settings)
        for weight in critics.heads.weights:
            torch.nn.init.normal_(weight)
        stack.add(critics)
        with torch.no_grad():
            q = critics.all_values(critics.remember(x, critics.memory.initial_state(2), starts)).mean(0)
            oldest = values[-size] if len(values) >= size else torch.zeros_like(q)
            xi = b * xi + a * q + a * b**size / (1 - b**size) * (q - oldest)
            values.append(q)
            logits = stack(x, stack.memory.initial_state(2), starts)
        torch.testing.assert_close(logits, xi, rtol=1e-4, atol=1e-4)
    state, steps = stack.memory.initial_state(2), []
    with torch.no_grad():
        for time in range(5):
            outputs, _, state = stack.step(x[:, time], state, starts[:, time])
            steps.append(outputs)
    torch.testing.assert_close(torch.stack(steps, 1), logits, rtol=1e-4, atol=1e-4)


def test_it_finds_the_way_along_a_chain() -> None:
    trainer = method("control_agent", "staq").make(
        Chain, "mlp", action_input=False, steps=1500, every=1500, warmup=200, ratio=0.4, batch=16, length=8, width=32,
        learning_rate=3e-3, tau=0.05, discount=0.9, capacity=2000, stack=5, delay=20,
    )  # fmt: skip
    trainer.update()
    agent = TrainedAgent(trainer.network, trainer.worlds)
    assert [agent.predict(place)[0] for place in range(Chain.places)] == [1, 1, 1, 1]


def test_a_run_that_was_stopped_goes_on_to_the_same_critics_and_is_loaded(tmp_path: Path) -> None:
    whole = list(run(SMALL, tmp_path / "whole", Recall))
    list(run(replace(SMALL, steps=100), tmp_path / "parts", Recall))
    rows = list(run(SMALL, tmp_path / "parts", Recall))
    assert [{**row, "seconds": 0} for row in rows] == [{**row, "seconds": 0} for row in whole]
    one, other = (load_checkpoint(tmp_path / name)["network"] for name in ("whole", "parts"))
    assert all(torch.equal(of, other[name]) for name, of in one.items())
    assert int(one["count"]) == 3
    agent = TrainedAgent.load(tmp_path / "whole", Recall)
    action, state = agent.predict(0)
    assert agent.predict(2, state)[0] in (0, 1)
    assert isinstance(action, int)


@pytest.mark.parametrize(("bad", "says"), [
    ({"hidden": "stored"}, "no actor: clone and hidden have no effect"),
    ({"decay": 1.0}, "decay = 1.0 lets all earlier critics count for ever"),
    ({"stack": 0}, "stack = 0 is less than 1"),
    ({"learner": "sac", "delay": None, "stack": 3}, "stack has no effect with learner = 'sac'"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_named(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        replace(SMALL, **bad)


def test_a_world_of_numbers_is_named() -> None:
    with pytest.raises(SpaceError, match=r"'staq' chooses.*numbers.*Set learner to \"sac\""):
        OffPolicyTrainer(SMALL, Slope)
