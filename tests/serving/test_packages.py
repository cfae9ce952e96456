"""Environments and memories in TRL and verifiers, which play them themselves where they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def python_with(package: str, variable: str) -> tuple[str, Any]:
    python = os.environ.get(variable) or (sys.executable if importlib.util.find_spec(package) else "")
    reason = f"{package} is not installed; pip install -e '.[{package}]', or set {variable}"
    return python, pytest.mark.skipif(not python, reason=reason)


VERIFIERS, needs_verifiers = python_with("verifiers", "KEEPWORTH_VERIFIERS_PYTHON")
TRL, needs_trl = python_with("trl", "KEEPWORTH_TRL_PYTHON")


def printed_by(python: str, program: str, *words: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [python, "-m", f"tests.serving.packages.{program}", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@needs_verifiers
def test_environments_of_verifiers_play_in_our_loop_and_take_our_memory() -> None:
    made = printed_by(VERIFIERS, "with_verifiers_tasks")
    assert made["one"]["seen"] == [["Be short.", "What is 3 + 3?"]]
    assert made["one"]["rewards"] == [["right", 1.0, 2.0], ["short", 1.0, 0.5], ["turns", 1.0, 0.0]]
    assert (made["one"]["stop"], made["one"]["answer"], made["one"]["reward"]) == ("completed", "6", 2.5)
    assert made["wrong"]["reward"] == 0.0
    assert made["asked twice"]["seen"][1] == ["Are you sure?"]
    assert made["asked twice"]["rewards"][2] == ["turns", 2.0, 0.0]
    assert (made["asked once"]["stop"], made["asked once"]["reward"]) == ("max_turns", 2.5), "scored as it stands"
    assert made["remembering"]["seen"] == [["Be short.", "What is 3 + 3?\n\nMemory:\n- 3 + 3 is 6."]]
    assert made["remembering"]["told"] == [2.5]
    assert made["remembering"]["total"] == 2.5
    assert made["tools"]["tools"] == ["calculator_double"]
    assert made["tools"]["seen"][1] == "6", "what the tool's server says"
    assert made["tools"]["reward"] == 2.5
    assert made["late"]["stop"] == "max_turns"
    assert made["late"]["rewards"][0] == ["right", 0.0, 2.0]
    assert made["endless"].startswith("The tasks of Endless never end.")


@pytest.mark.slow
@needs_trl
def test_trl_trains_with_a_memory_which_is_told_what_episodes_earned() -> None:
    made = printed_by(TRL, "with_trl_memory")
    assert made["environment"]["rewards"] == made["prompts"]["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert sorted(made["environment"]["told"]) == [0.0, 0.0, 1.0, 1.0]
    assert made["environment"]["kept"] == ["Ana lives in Oslo.", "The sky is blue."]
    assert made["prompts"]["kept"] == ["Ana lives in Oslo."]
    assert made["prompts"]["credited"][1] == made["environment"]["credited"][1] == 2.0
    assert made["ours"]["rewards"] == [1.0] * 4
