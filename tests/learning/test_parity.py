"""Gradients and weights beside TRL's `GRPOTrainer`, where TRL is there; `benchmarks/parity` does all cases, for longer."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from benchmarks.parity.parity import compare
from benchmarks.parity.work import CASES

PYTHON = os.environ.get("KEEPWORTH_TRL_PYTHON") or (sys.executable if importlib.util.find_spec("trl") else "")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="trl is not installed; pip install -e '.[trl]', or set KEEPWORTH_TRL_PYTHON")
@pytest.mark.parametrize("name", ["grpo with KL, k3", "dapo's loss"])
def test_same_completions_give_the_same_gradients_and_weights_as_trl(name: str) -> None:
    case = next(each for each in CASES if each.name == name)
    result = compare(case, 10, PYTHON)
    assert result["gradients_compared"] == 20
    assert result["largest_relative_difference_of_gradients"] < 1e-4
    assert result["relative_difference_of_the_way_moved"] < 1e-3
    assert result["way_moved"] > 0.01
