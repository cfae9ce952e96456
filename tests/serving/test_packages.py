"""A memory in TRL, whose trainer runs where it is installed."""

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


TRL = os.environ.get("KEEPWORTH_TRL_PYTHON") or (sys.executable if importlib.util.find_spec("trl") else "")
WHY = "trl is not installed; pip install -e '.[trl]', or set KEEPWORTH_TRL_PYTHON"


def printed_by(python: str, program: str, *words: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(
        [python, "-m", f"tests.serving.packages.{program}", *words],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not TRL, reason=WHY)
def test_trl_trains_with_a_memory_which_is_told_what_episodes_earned() -> None:
    made = printed_by(TRL, "with_trl_memory")
    assert made["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert made["credited"][1] == 2.0
