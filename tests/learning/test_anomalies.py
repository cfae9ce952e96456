"""Each anomaly on a recorded series that has it, and silence on one that has not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.watch.anomalies import DETECTORS, anomalies, present

# Rows 1, 4, 7 ... of the answerer of `keepworth demo`: a run that learned.
HEALTHY: dict[str, list[float]] = {
    "reward": [0.146, 0.218, 0.236, 0.591, 0.535, 0.481, 0.546, 0.473, 0.855, 0.886, 0.754, 0.668, 0.808, 0.751, 0.838],
    "zero_variance_groups": [
        *(0.125, 0.0, 0.375, 0.125, 0.125, 0.375, 0.5, 0.625, 0.625, 0.625, 0.5, 0.625, 0.625, 0.625, 0.75)
    ],
    "all_wrong_groups": [0.125, 0, 0.25, 0, 0.125, 0.25, 0.125, 0.25, 0.125, 0, 0, 0.125, 0, 0.125, 0.125],
    "ess": [0.993, 0.995, 0.997, 0.998, 1, 1, 0.999, 1, 1, 1, 1, 0.999, 1, 1, 1],
    "entropy": [2.936, 2.539, 1.563, 0.992, 0.65, 0.495, 0.393, 0.28, 0.29, 0.635, 0.347, 0.669, 0.193, 0.311, 0.42],
    "response_length": [
        *(8.109, 7.781, 8.062, 4.547, 5.156, 4.797, 5.219, 4.672, 4.562, 4.859, 5.938, 4.75, 4.578, 4.969, 4.219)
    ],
    "mismatch_mean": [0.011, 0.010, 0.004, 0.003, 0, 0, 0.002, 0, 0, 0, 0.001, 0.001, 0.001, 0, 0.001],
    "gradient_norm": [
        0.63,
        0.527,
        0.426,
        0.914,
        0.949,
        1.315,
        0.971,
        0.8,
        0.898,
        0.969,
        0.68,
        1.869,
        0.653,
        0.668,
        0.684,
    ],
    "stop/max_tokens": [0.219, 0.203, 0.172, 0.047, 0.016, 0, 0.016, 0, 0.016, 0.016, 0.031, 0, 0, 0, 0],
    "lag_mean": [0.0] * 15,
    "invalid_operations": [0.016, 0, 0, 0, 0, 0.031, 0, 0.016, 0, 0, 0, 0.016, 0, 0, 0],
}
LENGTH = 15


def rows(role: str = "answerer", **series: list[float]) -> list[dict[str, Any]]:
    """The healthy run, with other series in the place of its own."""
    merged = {**HEALTHY, **{name.replace("__", "/"): values for name, values in series.items()}}
    count = max(map(len, merged.values()))
    return [
        {"step": i + 1, "role": role, **{name: values[i] for name, values in merged.items() if i < len(values)}}
        for i in range(count)
    ]


def names(**series: list[float]) -> set[str]:
    return {each.name for each in anomalies(rows(**series))}


def late(before: float, after: float, at: int = 8) -> list[float]:
    """Ten per cent of noise around one level, then around another."""
    draw = random.Random(3)
    return [(before if i < at else after) * draw.uniform(0.95, 1.05) for i in range(LENGTH)]


def test_a_healthy_run_is_left_in_peace() -> None:
    assert anomalies(rows()) == []


@pytest.mark.parametrize(
    ("name", "series", "says"),
    [
        (
            "zero-signal groups: all wrong",
            {"zero_variance_groups": [0.875] * 15, "all_wrong_groups": [0.875] * 15},
            "88 % of the groups of the last 10 steps",
        ),
        ("zero-signal groups", {"zero_variance_groups": [0.9] * 15, "all_wrong_groups": [0.0] * 15}, "mean reward of"),
        ("collapsing sample size", {"ess": late(0.95, 0.2), "lag_mean": late(0.0, 4.0)}, "versions old on average"),
        ("entropy collapse", {"entropy": late(1.5, 0.05)}, "nats a token"),
        (
            "length explosion",
            {
                "response_length": late(8, 40),
                "response_length__right": late(8, 20),
                "response_length__wrong": late(8, 60),
            },
            "wrong ones are longer",
        ),
        ("length explosion", {"stop__max_tokens": late(0.05, 0.8)}, "cut off at the limit"),
        ("sampler and learner disagree", {"mismatch_mean": late(0.01, 0.2)}, "under the same weights"),
        ("gradient spikes", {"gradient_norm": late(0.5, 20.0, at=12)}, "times the usual"),
        ("invalid operations rising", {"invalid_operations": late(0.02, 0.4)}, "cannot be read"),
        ("episodes die", {"stop__timeout": late(0.0, 0.3)}, "30 % timeout"),
        ("diverged", {"loss": [*late(0.1, 0.1)[:-1], math.nan]}, "loss"),
    ],
)
def test_each_anomaly_is_named_with_what_to_try(name: str, series: dict[str, list[float]], says: str) -> None:
    found = {each.name: each for each in anomalies(rows(**series))}
    assert set(found) == {name}
    said = found[name].message.replace("29 %", "30 %").replace("31 %", "30 %")
    assert says in said
    assert found[name].now
    assert found[name].tries
    assert found[name].role == "answerer"


def test_a_reward_that_falls_by_half_is_named_and_one_that_is_noisy_is_not() -> None:
    draw = random.Random(1)
    noise = [draw.uniform(-0.05, 0.05) for _ in range(40)]
    fallen = [(0.8 if i < 25 else 0.2) + noise[i] for i in range(40)]
    wild = [draw.choice([0.0, 1.0]) for _ in range(40)]
    assert "reward collapse" in {
        each.name for each in anomalies([{"step": i, "reward": r} for i, r in enumerate(fallen)])
    }
    assert anomalies([{"step": i, "reward": r} for i, r in enumerate(wild)]) == []


def test_a_gap_between_sampler_and_learner_is_no_news_where_tokens_are_stale() -> None:
    assert names(mismatch_mean=late(0.01, 0.2), lag_mean=[2.0] * 15) == set()


def test_an_anomaly_that_went_by_keeps_its_steps() -> None:
    found = anomalies(rows(ess=[*[0.9] * 3, *[0.1] * 6, *[0.95] * 11]))
    assert [(each.name, each.now) for each in found] == [("collapsing sample size", False)]
    assert found[0].first == 6  # the mean of steps 2 to 6 is 0.42, that of 1 to 5 is 0.58
    assert found[0].last == 11  # the mean of steps 7 to 11 is 0.44, that of 8 to 12 is 0.61


def test_roles_are_judged_apart() -> None:
    both = [*rows("answerer"), *rows("manager", entropy=late(1.5, 0.05))]
    assert [(each.role, each.name) for each in anomalies(both)] == [("manager", "entropy collapse")]


def test_a_long_run_is_looked_at_often_enough_and_quickly() -> None:
    long = [{"step": i + 1, "role": "r", "reward": 0.5, "ess": 1.0 if i < 4000 else 0.1} for i in range(5000)]
    found = anomalies(long)
    assert [each.name for each in found] == ["collapsing sample size"]
    assert 4000 < found[0].first <= 4000 + 20


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*HEALTHY, "stop/timeout", "loss"]),
            st.one_of(st.floats(), st.none(), st.text(max_size=3)),
            max_size=6,
        ),
        max_size=24,
    )
)
def test_whatever_a_row_holds_the_judgement_comes(found: list[dict[str, Any]]) -> None:
    numbered = [{"step": i + 1, **row} for i, row in enumerate(found)]
    assert all(each.name and each.message for each in anomalies(numbered))
    assert {each.name for each in present(numbered)} <= {each.name for each in DETECTORS}
