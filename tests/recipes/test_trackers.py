"""Trackers by name, against stand-ins of their packages where these are not installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import keepworth
from keepworth.training import trackers
from keepworth.training.front_door import TrainedRun
from keepworth.training.watch.progress import Progress
from tests.recipes import tiny_runs

ROWS = [{"prompt": f"Say {letter}.", "answer": letter} for letter in "abcdefghijkl"]
Train = Callable[..., TrainedRun]


@pytest.fixture
def train(chat_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    usual = {
        "model": str(chat_checkpoint),
        "runs": tmp_path,
        "progress": Progress(),
        "name": "run",
        "max_tokens": 4,
        "patience": 0,
    }
    return lambda **more: keepworth.train(ROWS, **{**tiny_runs.TINY, **usual, **more})


def test_numbers_go_to_weights_and_biases_and_a_continued_run_goes_on_there(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, Any]] = []
    logged: list[tuple[int, dict[str, float]]] = []
    finished: list[bool] = []

    def init(**options: Any) -> Any:
        opened.append(options)
        log = lambda numbers, step: logged.append((step, numbers))  # noqa: E731
        return SimpleNamespace(log=log, finish=lambda: finished.append(True))

    monkeypatch.setitem(sys.modules, "wandb", stand_in("wandb", init=init))
    train(track="wandb")
    assert [step for step, _ in logged] == [1, 2]
    assert {"reward", "episodes"} <= logged[0][1].keys()
    assert (opened[0]["project"], opened[0]["name"], opened[0]["resume"]) == ("keepworth", "run", "allow")
    train(track="wandb", steps=3)
    assert [step for step, _ in logged] == [1, 2, 3]
    assert opened[1]["id"] == opened[0]["id"]
    assert len(finished) == 2


def test_numbers_go_to_mlflow_and_a_continued_run_goes_on_there(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    logged: list[int] = []

    def start_run(**options: Any) -> Any:
        started.append(options)
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))

    parts = {
        "set_experiment": lambda name: None, "start_run": start_run, "end_run": lambda: None,
        "log_dict": lambda values, name: None, "log_metrics": lambda numbers, step: logged.append(step),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "mlflow", stand_in("mlflow", **parts))
    train(track="mlflow")
    train(track="mlflow", steps=3)
    assert started == [{"run_name": "run"}, {"run_id": "r1"}]
    assert logged == [1, 2, 3]


def test_numbers_go_to_tensorboard(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, int]] = []
    opened: list[tuple[str, int | None]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            opened.append((Path(folder).name, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, step))

        def flush(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in("tensorboard", SummaryWriter=Writer))
    train(track="tensorboard")
    train(track="tensorboard", steps=3)
    assert opened == [("tensorboard", None), ("tensorboard", 3)]
    assert [step for name, step in written if name == "reward"] == [1, 2, 3]


def stand_in(name: str, **parts: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(parts)
    return module
