"""The ladder of horizons: its worlds, what memories say of their reach, and its command at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from benchmarks.control.ladder import main
from keepworth.control.ladder import QUESTION, RUNGS, Cue, horizons, regime
from keepworth.control.memory_base import SequenceMemory
from tests.control.test_memories import inputs


@pytest.mark.parametrize("xi", [2, 3, 8])
def test_the_cue_is_asked_for_after_xi_observations_and_pays_only_then(xi: int) -> None:
    world = Cue(xi)
    check_env(world, skip_render_check=True)
    paid = []
    for seed in range(20):
        seen = [world.reset(seed=seed)[0]]
        rewards, over = [], False
        while not over:
            right = int(seen[0][0]) if seed % 2 else (int(seen[0][0]) + 1) % 4
            observation, reward, over, _, _ = world.step(right)
            rewards.append(reward)
            seen.append(observation)
        assert [int(row[1]) for row in seen[:xi]] == [0, *[1] * (xi - 2), QUESTION]
        assert len(rewards) == xi
        assert not any(rewards[:-1])
        paid.append(rewards[-1])
    assert paid == [float(seed % 2) for seed in range(20)]


def test_horizons_are_those_of_the_dial_and_of_the_paper() -> None:
    assert horizons("keepworth/Cue16-v0") == (16, 16)
    assert horizons("popgym-RepeatPreviousMedium-v0") == (33, 33)
    assert horizons("CartPole-v1") is None
    assert all(f"keepworth/Cue{xi}-v0" in gymnasium.registry for xi in RUNGS)


@pytest.mark.parametrize(("context", "reach", "xi", "shows"), [
    (8, 8, (8, 8), "short-term"),
    (8, 8, (9, 9), "out of reach"),
    (1, None, (2, 2), "long-term"),
    (8, None, (9, 40), "long-term"),
    (8, None, (2, 104), "mixed"),
    (8, 50, (2, 104), "out of reach"),
])  # fmt: skip
def test_regime_follows_context_and_reach(context: int, reach: int | None, xi: tuple[int, int], shows: str) -> None:
    assert regime(context, reach, xi) == shows


def test_a_memory_reaches_as_far_as_it_says_and_takes_its_context(module: SequenceMemory) -> None:
    x, _ = inputs(5 + (module.reach or module.context))
    for changed, matters in ((slice(0, 5), module.reach is None), (slice(-module.context, None), True)):
        other = x.clone()
        other[:, changed] += 3.0
        with torch.no_grad():
            assert torch.equal(module(x)[0][:, -1], module(other)[0][:, -1]) != matters


def test_the_command_writes_k_and_xi_beside_each_success(tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    words = ["--memories", "mlp", "frame_stack:frames=4", "--rungs", "2", "8", "--seeds", "0", "--seconds", "0.2"]
    main([*words, "--json", str(path)])
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    mlp, stack = ("mlp", 1), ("frame_stack:frames=4", 4)
    beyond = "out of reach"
    shows = [(*mlp, 2, beyond), (*stack, 2, "short-term"), (*mlp, 8, beyond), (*stack, 8, beyond)]
    assert [(row["memory"], row["K"], row["xi"], row["regime"]) for row in rows] == shows
    assert all(0 <= row["success"] <= 1 for row in rows)
