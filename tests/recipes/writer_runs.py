"""Runs of the recipes of writers on a model of a few thousand weights, with a reader that answers with the bank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from keepworth.methods.recipes import memory_r2
from keepworth.methods.recipes._bank.course import WritingCourse, task_of
from keepworth.methods.recipes._bank.reading import BankReading
from keepworth.methods.recipes._bank.rollout import Earned, write_stream
from keepworth.methods.recipes._reader import FoundReader
from keepworth.records import Episode, Group
from keepworth.training.run_folder import RunFolder
from keepworth.worlds.driver import RolloutContext, together
from keepworth.worlds.fact_streams import FactStream
from tests.recipes import tiny_runs
from tests.rollouts.scripted_model import FunctionReader

TINY: dict[str, Any] = {
    **tiny_runs.TINY, "group_size": 4, "length": 6, "budget": 2, "streams": 1, "warm_start": 16, "warm_start_batch": 8,
    "warm_start_learning_rate": 5e-2, "learning_rate": 1e-2, "train": "full",
}  # fmt: skip
LOCAL = {"horizons": [{"steps": 1, "length": 4}], "reroll_share": 1.0, "rerolls": 2}


@contextmanager
def echoing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reader that answers with the bank: what is kept makes a difference, which a random model's answer would not."""
    reader = FunctionReader("echo@1", lambda question, memories: " ".join(memories))
    with monkeypatch.context() as patched:
        patched.setattr(FoundReader, "loaded", lambda *_: reader)
        yield


Course = Callable[[], WritingCourse]


def group_of(model: Any, stream: FactStream, course: Course, earned: Earned, n: int = 1, says: str = "") -> Group:
    """A stream that a model writes n times, read by one who says so, or else answers with the bank."""

    async def rollout(task: Any, context: RolloutContext) -> Episode:
        reading = BankReading(FunctionReader("echo@1", lambda question, memories: says or " ".join(memories)))
        return await write_stream(model, stream, course(), context, reading, earned, max_tokens=9, prompt_id="p")

    (group,) = together(model, [task_of(stream)], rollout, n=n)
    return group


def run_of(recipe: ModuleType, checkpoint: Path, path: Path, **changes: Any) -> RunFolder:
    own = LOCAL if recipe is memory_r2 else {}
    return tiny_runs.run_of(recipe, checkpoint, path, **{**TINY, **own, **changes})
