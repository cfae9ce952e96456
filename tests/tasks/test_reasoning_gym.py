"""The adapter; most of it only where the extra `envs` is installed (its import alone takes seconds)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.episodes.extras import MissingExtra
from keepworth.tasks.reasoning_gym import reasoning_gym
from keepworth.tasks.verifiers import verify

installed = find_spec("reasoning_gym") is not None
needs_it = pytest.mark.skipif(not installed, reason="needs the extra envs ")


@pytest.mark.skipif(installed, reason="the extra envs is installed")
def test_without_the_extra_it_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"pip install \"keepworth\[envs\]\""):
        reasoning_gym("chain_sum", "train", 1)


@needs_it
@pytest.mark.parametrize(
    ("name", "parameters"), [("chain_sum", {"max_terms": 3}), ("spell_backward", {}), ("sokoban", {})]
)
def test_puzzles_score_their_own_answers(name: str, parameters: dict[str, int]) -> None:
    tasks = reasoning_gym(name, "train", 3, **parameters)
    assert [verify(task, task.answers[0]) for task in tasks] == [1.0, 1.0, 1.0]
    assert all(verify(task, wrong) < 1.0 for task in tasks for wrong in ("nothing like it", ""))
    assert tasks == reasoning_gym(name, "train", 3, **parameters)
    assert not {task.input for task in tasks} & {task.input for task in reasoning_gym(name, "test", 3, **parameters)}


@needs_it
def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'chain_sum'"):
        reasoning_gym("chain_sums", "train", 1)
    with pytest.raises(KeepworthError, match="refuses"):
        reasoning_gym("chain_sum", "train", 1, min_terms=-3)
