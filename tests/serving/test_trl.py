"""A memory as TRL's trainers use it: prompts with what is recalled, and rewards; in the trainer itself where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.base.errors import KeepworthError
from keepworth.training.trl import DECISION, recall_for, reward_memory

TRL = os.environ.get("KEEPWORTH_TRL_PYTHON") or (sys.executable if find_spec("trl") else "")
ASKED = [{"role": "user", "content": "Where does Ana live?"}]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory(encoder=None, log="background") as opened:
        opened.add("Ana lives in Oslo.")
        opened.add("Bo plays chess.")
        yield opened


def score(completions: list[Any], **columns: Any) -> list[float | None]:
    return [float("Oslo" in completion[-1]["content"]) if completion else None for completion in completions]


def test_trl_prompts_show_recalled_items_and_reward_them(memory: Memory) -> None:
    transform = recall_for(memory, top_k=1)
    rows = {"prompt": [ASKED, "Who plays chess?"], "answer": ["Oslo", "Bo"]}
    shown = transform(rows)
    assert shown["prompt"][0][-1]["content"] == "Where does Ana live?\n\nMemory:\n- Ana lives in Oslo."
    assert shown["prompt"][1] == "Who plays chess?\n\nMemory:\n- Bo plays chess."
    assert rows["prompt"][0] == ASKED, "the rows stay as they were"
    assert transform({"answer": ["Oslo"]}) == {"answer": ["Oslo"]}
    told = reward_memory(lambda completions, **_: [1.0, None], memory)
    told(prompts=shown["prompt"], completions=["Oslo", "x"], **{DECISION: shown[DECISION]})
    (oslo,) = memory.search("Oslo", top_k=1)
    assert memory.history(oslo.item.id)
    assert len(set(shown[DECISION])) == 2


def test_a_reward_without_a_memory_in_play_is_refused(memory: Memory) -> None:
    with pytest.raises(KeepworthError, match="Nothing says what the memory showed") as caught:
        reward_memory(score, memory)(completions=[[]])
    assert "recall_for" in caught.value.fix
    assert reward_memory(score, memory).__name__ == "score", "under its name in the logs"


@pytest.mark.slow
@pytest.mark.skipif(not TRL, reason="trl is not installed; pip install -e '.[trl]', or set KEEPWORTH_TRL_PYTHON")
def test_trl_training_rewards_the_memory() -> None:
    root = Path(__file__).parents[2]
    command = [TRL, "-m", "tests.serving.packages.with_trl_memory"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout.splitlines()[-1])
    assert made["rewards"] == [1.0, 1.0, 0.0, 0.0]
    assert made["credited"][1] == 2.0
