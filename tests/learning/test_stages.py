"""Stages are functions of the step; weights change what counts and nothing else."""

from __future__ import annotations

import pytest

from keepworth.episodes import Episode, Group, RewardTerm, StopReason
from keepworth.episodes.errors import UnknownName
from keepworth.learning.collect.curriculum import (
    AdmissionError,
    Stage,
    require_stages,
    require_terms,
    reweighed,
    stage_at,
)


def group(f1: float, em: float) -> Group:
    episode = Episode(
        id="e",
        task="t",
        role="r",
        question="",
        segments=(),
        answer="",
        expected=(),
        rewards=(RewardTerm("f1", f1), RewardTerm("em", em, 0.0)),
        stop=StopReason.COMPLETED,
        memory_snapshot="",
        policy_version=0,
    )
    return Group("t", "", (episode,))


def test_each_step_has_its_stage_and_the_last_goes_on() -> None:
    stages = (Stage(2, horizon=8), Stage(1), Stage(1, horizon=16))
    assert [stage_at(stages, step)[0] for step in range(6)] == [0, 0, 1, 2, 2, 2]
    assert stage_at(stages, 9)[1].horizon == 16


def test_a_stage_that_never_begins_is_refused() -> None:
    require_stages((Stage(2), Stage(2)), 3)
    with pytest.raises(AdmissionError, match="Stage 2 begins after step 3, and the training has 3"):
        require_stages((Stage(3), Stage(2)), 3)
    with pytest.raises(AdmissionError, match="never takes place"):
        Stage(0)
    with pytest.raises(AdmissionError, match="horizon of 0"):
        Stage(1, horizon=0)


def test_weights_change_the_reward_and_keep_the_values() -> None:
    found = reweighed(group(0.5, 1.0), {"em": 2.0, "f1": 0.0})
    assert found.episodes[0].reward == 2.0
    assert [term.value for term in found.episodes[0].rewards] == [0.5, 1.0]
    assert reweighed(group(0.5, 1.0), {}).episodes[0].reward == 0.5
    require_terms([group(0.5, 1.0)], {"em": 2.0})
    with pytest.raises(UnknownName, match=r"no reward term 'em1'.*Did you mean 'em'"):
        require_terms([group(0.5, 1.0)], {"em1": 1.0})
