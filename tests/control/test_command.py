"""`keepworth control`: train, go on, table; and what is said where a name is wrong."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from benchmarks.control.table import main as make_table
from keepworth.cli.main import main
from keepworth.control.published import POPGYM, find_published
from keepworth.control.run import CHECKPOINT, CURVE
from keepworth.control.table import MEMORIES, TableCell, summarise
from keepworth.registry import methods

QUICK = ["control", "train", "--world", "CartPole-v1", "--steps", "256", "--envs", "2"]
QUICK += ["--set", "rollout=32", "--set", "chunk=32", "--set", "width=8"]


def test_a_run_shows_its_curve_goes_on_and_is_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs" / "one"
    command = [*QUICK, "--memory", "frame_stack", "--set", "frames=3", "--folder", str(folder)]
    assert main([*command, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["steps"] for row in rows] == [64, 128, 192, 256]
    command[command.index("256")] = "320"
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "320 steps" in out
    assert "curve.json" in out
    settings = json.loads((folder / "curve.json").read_text(encoding="utf-8"))["settings"]
    assert settings["memory_settings"] == {"frames": 3}
    assert main(["control", "table", str(folder.parent), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["world"], row["memory"], row["n"], row["steps"]) == ("CartPole-v1", "frame_stack", 1, [320])


def test_a_table_keeps_the_cells_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds, file = ("RepeatFirstEasy", "CountRecallEasy", "HigherLowerEasy"), tmp_path / "table.json"
    cells = [
        {"world": f"popgym-{world}-v0", "memory": memory, "seed": 0, "steps": 100, "best": best, "last": best}
        for memory, scores in (("gru", (0.1, 0.2, 0.5)), ("ffm", (0.3, 0.25, 0.6)))
        for world, best in zip(worlds, scores, strict=True)
    ]
    file.write_text(json.dumps({"cells": [{**cell, "steps_per_second": 1.0} for cell in cells]}), encoding="utf-8")
    words = [str(tmp_path / "runs"), "--steps", "100", "--seeds", "0", "--json", str(file), "--onto"]
    monkeypatch.setattr(sys, "argv", ["table", *words, "--worlds", *worlds, "--memories", "gru", "ffm"])
    make_table()  # no run is made, so POPGym is not asked for
    made = json.loads(file.read_text(encoding="utf-8"))
    assert len(made["cells"]) == 6
    assert made["mean_rank"] == {"ffm": 1.0, "gru": 2.0}
    gap = made["minus_gru"]["ffm"]
    assert gap["mean"] == pytest.approx(0.1167)
    assert gap["interval"][0] < 0.0 < gap["interval"][1]  # three worlds decide nothing


def test_going_on_with_a_run_of_others_runs_no_code_of_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    folder = tmp_path / "run"
    command = [*QUICK, "--memory", "gru", "--folder", str(folder)]
    assert main(command) == 0
    saved = torch.load(folder / CHECKPOINT, weights_only=True)
    signature = saved["worlds"][:32].numpy().tobytes()
    saved["worlds"] = torch.frombuffer(bytearray(signature + pickle.dumps(Evil())), dtype=torch.uint8)
    torch.save(saved, folder / CHECKPOINT)
    command[command.index("256")] = "320"
    assert main(command) == 0
    assert not (tmp_path / "ran").exists()
    # The same on another machine, whose key is another one.
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "other"))
    command[command.index("320")] = "384"
    assert main(command) == 0
    # Where no key can be read or made.
    (tmp_path / "file").touch()
    monkeypatch.setenv("KEEPWORTH_CACHE", str(tmp_path / "file"))
    command[command.index("384")] = "448"
    assert main(command) == 0
    assert json.loads((folder / CURVE).read_text(encoding="utf-8"))["done"]


@pytest.mark.parametrize(("words", "hint"), [
    (["--memory", "lrux"], "lru"),
    (["--set", "trace_s=3"], "trace"),
    (["--set", "rollout=half"], "rollout"),
    (["--world", "CartPol-v1"], "CartPole-v1"),
    (["--set", "chunk=7"], "chunk"),
    (["--threads", "0"], "--threads"),
    (["--seed", "-1"], "--seed"),
    (["--memory", "ffm", "--set", "traces=-1"], "'ffm' cannot be made with traces = -1"),
    (["--memory", "hcam", "--set", "heads=3"], "'hcam' cannot be made with heads = 3, width = 8"),
    (["--memory", "rotating_gates", "--set", "width=9"], "'rotating_gates' cannot be made with width = 9"),
    (["--set", "memory=lstm"], "no setting 'memory'"),
    (["--set", "bonus_weight=1"], "bonus_weight has no effect without bonus"),
    (["--world", "no_module:World-v0"], "No module named 'no_module'"),
])  # fmt: skip
def test_a_wrong_name(words: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is answered with the right one, and nothing is made."""
    assert main([*QUICK, *words, "--folder", str(tmp_path / "run")]) == 2
    assert hint in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main(["control", "table", str(tmp_path)]) == 2


def test_the_memories_of_the_table_are_methods() -> None:
    assert set(MEMORIES) <= set(methods("memory_module"))


def test_ranks_are_over_worlds_that_all_memories_share() -> None:
    runs = (("a", "x", 0, 0.5), ("a", "x", 1, 0.7), ("a", "y", 0, 0.9), ("b", "x", 0, 0.9))
    table = summarise([TableCell(world, memory, seed, 10, best, 0.4, 1.0) for world, memory, seed, best in runs])
    assert table["ranked_worlds"] == ["a"]
    assert table["mean_rank"] == {"x": 2, "y": 1}
    first = table["rows"][0]
    assert (first["n"], first["best"], first["least"], first["greatest"]) == (2, 0.6, 0.5, 0.7)


def test_published_numbers_are_of_worlds_by_their_ids() -> None:
    assert find_published("popgym-RepeatPreviousMedium-v0") == (-0.315, 0.789, "LMU")
    assert find_published("CartPole-v1") is None
    assert all(gru <= best for gru, best, _ in POPGYM.values())


class Masked(gymnasium.Env[Any, Any]):
    """Allows one action of two: `says` is "info", "method" or "nothing"; `pays` is what every step pays."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def __init__(self, says: str = "nothing", pays: Any = 1.0) -> None:
        self.says, self.pays = says, pays
        if says == "method":
            self.action_masks = lambda: np.array([True, False])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {"action_mask": np.array([1, 0])} if self.says == "info" else {}

    def step(self, action: Any) -> tuple[int, Any, bool, bool, dict[str, Any]]:
        return 0, self.pays, True, False, {}


for _says in ("info", "method"):
    gymnasium.register(f"tests/Masked-{_says}-v0", Masked, kwargs={"says": _says})
for _name, _pays in (("array", np.array([1.0])), ("none", None), ("text", "1"), ("huge", 1e300)):
    gymnasium.register(f"tests/Pays-{_name}-v0", Masked, kwargs={"pays": _pays})


@pytest.mark.parametrize(("world", "says"), [
    ("tests/Masked-info-v0", "World 0 says which actions are allowed (action_mask)"),
    ("tests/Masked-method-v0", "World 0 says which actions are allowed (action_mask)"),
    ("tests/Pays-array-v0", "World 0 gave a reward that is a ndarray of shape (1,), not one number"),
    ("tests/Pays-none-v0", "World 0 gave a reward that is None, not a number"),
    ("tests/Pays-text-v0", "World 0 gave a reward that is '1', not a number"),
    ("tests/Pays-huge-v0", "World 0 gave a reward that is 1e+300, which float32 does not hold"),
])  # fmt: skip
def test_action_masks_and_invalid_rewards_are_refused_with_the_world(
    world: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [world if word == "CartPole-v1" else word for word in QUICK]
    assert main([*words, "--memory", "gru", "--folder", str(tmp_path / "run")]) == 2
    assert says in capsys.readouterr().err


def test_run_states_its_duration_and_published_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepworth.control.published.find_published", lambda world: POPGYM["RepeatPreviousMedium"])
    assert main([*QUICK, "--memory", "gru", "--folder", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "64 of 256 steps" in out
    assert "steps/s  left " in out
    assert (
        "Published after 15 million steps of PPO (transcribed, not checked): GRU -0.32, the best of 13 0.79 (LMU)."
        in out
    )
    assert "Yours after 256: " in out


def test_doctor_names_missing_control_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepworth.base.extras.find_spec", lambda name: None if name == "popgym" else object())
    assert main(["doctor"]) == 0
    assert "control (without popgym)" in capsys.readouterr().out
    assert main(["doctor", "--all"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "control: small networks with memory in Gymnasium's worlds (popgym is not there)" in out
