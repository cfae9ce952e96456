"""Attacks by ordinary means, small: what anybody who may ask, reward or hand in records can do to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.streams.attacks import ATTACKS, Attack, attacked
from benchmarks.streams.ordinary import COST, GAIN, RIVAL, SHARE, Runs, measured
from keepworth.evaluation.stream_claims import METHOD
from keepworth.memory.policy import presenters
from keepworth.memory.policy.maintainers import Capacity
from keepworth.methods.policies import advantage as recipe
from keepworth.methods.worlds.hidden_rules import hidden_rules

RUNS = Runs("dev", {})


def small(name: str, length: int = 160) -> Attack:
    attack = ATTACKS[name]
    return replace(attack, calm=replace(attack.calm, length=length, held_out=20))


def mean(runs: Runs, attack: Attack, arm: str, seeds: int) -> tuple[float, float]:
    gain, cost, _ = np.mean([runs.against(attack, arm, seed) for seed in range(seeds)], axis=0)
    return float(gain), float(cost)


@pytest.mark.parametrize(
    ("name", "length", "seeds"),
    [
        ("own-sleeper", 240, 1),
        pytest.param("own-sleeper", 300, 3, marks=pytest.mark.slow),
        ("default-draft", 160, 1),
    ],
)
def test_who_misleads_a_memory_without_defence_gains_little_here(name: str, length: int, seeds: int) -> None:
    theirs, _ = mean(RUNS, small(name, length), RIVAL, seeds)
    gain, cost = mean(RUNS, small(name, length), METHOD, seeds)
    assert theirs > 0.2
    assert gain <= max(GAIN, SHARE * theirs)
    assert cost <= COST


@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_flood_drives_out_what_is_known_by_age_and_not_here(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    attack, settings = small("flood-own"), {METHOD: {"capacity": 120}}
    gain, cost = mean(Runs("dev", settings), attack, METHOD, seeds)
    assert gain <= GAIN
    assert cost <= COST
    monkeypatch.setattr(recipe, "Room", Capacity)
    monkeypatch.setattr(recipe, "Crowd", lambda: lambda *_: None)
    assert mean(Runs("dev", settings), attack, METHOD, seeds)[1] > 0.1


def test_an_agent_that_reads_is_not_misled_by_lines_that_a_question_forges(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = small("forged-lines")
    gain, cost = mean(RUNS, attack, METHOD, 1)
    assert gain <= GAIN
    assert cost <= COST
    monkeypatch.setattr(presenters, "case_line", lambda text, label: text)
    forged, _ = mean(Runs("dev", {}), attack, RIVAL, 1)
    assert forged > 0.2


def test_an_attack_adds_to_the_calm_stream_and_changes_nothing_of_it() -> None:
    for name, attack in ATTACKS.items():
        calm = hidden_rules(attack.calm, split="dev", seed=1)
        stream = attacked(attack, split="dev", seed=1)
        added = [
            (*task.foreign[len(each.foreign) :], *task.visits)
            for task, each in zip(stream.tasks, calm.tasks, strict=True)
        ]
        assert sum(map(len, added)) > 15, name
        assert not any(added[: int(attack.begins * len(calm.tasks))]) or "turncoat" in name or "outside" in name
        assert [(task.key, task.by, task.triggered) for task in stream.tasks] == [
            (task.key, task.by, task.triggered) for task in calm.tasks
        ]


def test_the_record_says_whether_the_bounds_hold() -> None:
    runs: Any = Runs("dev", {})
    records = measured(runs, small("default-draft", 60), (RIVAL, METHOD), 3)
    assert [each["arm"] for each in records] == [RIVAL, METHOD]
    assert records[0]["allowed"] == max(GAIN, SHARE * records[0]["gain"]["mean"])
    assert not records[0]["holds"]
    assert records[0]["gain"]["low"] <= records[0]["gain"]["mean"] <= records[0]["gain"]["high"]
