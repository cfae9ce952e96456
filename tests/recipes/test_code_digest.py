"""Whether what was handed over is still the same: its source and its values count, nothing that differs between processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from keepworth.environments.bridges import adapted
from keepworth.learning.run_folder import RunConflict, RunFolder
from keepworth.recipes.code_digest import code_digest
from keepworth.recipes.own import Config, Given
from keepworth.tasks.own import own_tasks

TASKS = own_tasks([{"prompt": f"Say {letter}."} for letter in "abcdefghijkl"])


@dataclass
class Options:
    floor: float


class Judge:
    """Counts in an attribute of its own, which says nothing of how it judges."""

    def __init__(self, floor: float, words: Any = ()) -> None:
        self.floor, self.words, self.client = floor, words, object()
        self._calls = 0

    def __call__(self, answer: str, row: Any) -> float:
        self._calls += 1
        return max(self.floor, float(answer in self.words))

    score = __call__


def weighed(floor: float, answer: str, row: Any) -> float:
    return floor


def around(value: Any) -> Callable[..., float]:
    def score(answer: str, row: Any, default: Any = value) -> float:
        return float(answer == value)

    return score


def passing(function: Callable[..., float]) -> Callable[..., float]:
    return lambda answer, row: function(answer, row)


def before(answer: str, row: Any) -> float:
    return 1.0


def after(answer: str, row: Any) -> float:
    return 2.0


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [
        (Judge, 0.1, 0.2),
        (lambda words: Judge(0.1, words), {"a", "b"}, {"a", "c"}),
        (lambda floor: Judge(floor).score, 0.1, 0.2),
        (lambda floor: partial(weighed, floor), 0.1, 0.2),
        (around, 1, 2),
        (around, ["a"], ["b"]),
        (around, Options(0.1), Options(0.2)),
        (passing, before, after),
        (lambda function: [function], before, after),
    ],
)
def test_source_and_values_count(make: Callable[[Any], Any], one: Any, other: Any) -> None:
    assert code_digest(make(one)) == code_digest(make(one))
    assert code_digest(make(one)) != code_digest(make(other))


def test_a_run_has_on_file_what_was_handed_over() -> None:
    judge = Judge(0.1)
    given = Given(TASKS, reward=judge)
    judge.floor = 0.5  # as it may while it works
    assert given.record(Config())["code"] == {"reward": code_digest(Judge(0.1)), "environment": "", "agent": ""}


def test_what_is_counted_while_it_works_does_not_count() -> None:
    judge = Judge(0.1)
    fresh = code_digest(judge)
    judge("a", {})
    assert code_digest(judge) == fresh
    assert code_digest(around(object())) == code_digest(around(object()))
    assert code_digest(None) == ""


JUDGE = """
class Judge:
    def __init__(self, words):
        self.words, self.client = words, object()

    def __call__(self, answer, row):
        return float(answer in self.words)


def around(value):
    return lambda answer, row: float(answer is value)


given = [Judge({"a", "b", "c", "d", "e"}), around(object()), Judge({1, 2}).__call__]
"""


def test_it_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "judge_of_a_test.py").write_text(JUDGE)
    monkeypatch.syspath_prepend(tmp_path)
    code = (
        "import judge_of_a_test; from keepworth.recipes.code_digest import *; print(code_digest(judge_of_a_test.given))"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    own = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": paths}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=own).stdout
    assert other.strip() == code_digest(import_module("judge_of_a_test").given)


WORLD = """
class World:
    def reset(self, **row):
        pass

    def look(self) -> str:
        'Look around.'
        return "Nothing."

    def get_reward(self):
        return {reward}
"""


def world(folder: Path, reward: float) -> Any:
    """A class of one name, as before and after its file was edited."""
    folder.mkdir()
    (folder / "world_of_a_test.py").write_text(WORLD.format(reward=reward))
    sys.path.insert(0, str(folder))
    sys.modules.pop("world_of_a_test", None)
    try:
        return import_module("world_of_a_test").World
    finally:
        sys.path.remove(str(folder))


def test_a_run_goes_on_with_the_same_environment_alone_and_one_of_before_with_any(tmp_path: Path) -> None:
    def record(environment: Any) -> dict[str, Any]:
        given = Given(TASKS, environment=adapted(environment, TASKS.all[0]))
        return {"environment": given.environment.__qualname__, "code": dict(given.code)}

    one, other = (record(world(tmp_path / name, reward)) for name, reward in (("one", 1.0), ("other", 0.5)))
    assert one["environment"] == other["environment"]
    for name, config in (("run", one), ("older", {"environment": one["environment"]})):
        begun = RunFolder.create(tmp_path / name, config)
        (begun.path / "weights").mkdir()
        begun.close()
        RunFolder.create(tmp_path / name, one).close()
    with pytest.raises(RunConflict, match=r"code\.environment"):
        RunFolder.create(tmp_path / "run", other)
    RunFolder.create(tmp_path / "older", other).close()
