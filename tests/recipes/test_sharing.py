"""Runs in processes of their own share groups through a folder; what cannot share says so at the start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run_folder import RunFolder
from keepworth.methods.recipes import arithmetic, strings
from keepworth.recipes.interactive import require_sharing
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.pages import lines_that_run_in

OWN = """
tasks = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(4)]

def reward(answer, row):
    return len(answer) / 10 + float(row["answer"] in answer)

settings = {"format": "plain", "max_tokens": 6}
"""
TINY = {
    "precision": "fp32",
    "threads": 1,
    "steps": 3,
    "group_size": 2,
    "questions": 2,
    "evaluate_every": 3,
    "checkpoint_every": 1,
}


def started(words: list[str], folder: Path, checkpoint: Path, name: str, **more: Any) -> subprocess.Popen[str]:
    """`keepworth train ...` in a process of its own, in `folder`, with a tiny model and few steps."""
    assert words[:2] == ["keepworth", "train"]
    sets = [word for key, value in {**TINY, **more}.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "keepworth", *words[1:], "--name", name, "--model", str(checkpoint), *sets]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def ended(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
def test_lines_of_the_page_in_two_processes_at_once(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "model")
    (tmp_path / "my_recipe.py").write_text(OWN)
    lines = lines_that_run_in("cluster.md", "tests/recipes/test_sharing.py")
    assert lines
    for number, words in enumerate(lines):
        words = [each.replace("/mnt/experience", str(tmp_path / "shared")) for each in words]
        at_once = [
            started(words, tmp_path, checkpoint, f"{name}-{number}", tasks_per_step=4, foreign=2, seed=seed)
            for seed, name in enumerate(("one", "other"), 1)
        ]
        for each in at_once:
            ended(each)
        # One more, to whom both have something to offer whatever the clock was.
        ended(started(words, tmp_path, checkpoint, f"late-{number}", tasks_per_step=4, foreign=2, seed=9))
        run = RunFolder.open(tmp_path / "runs" / f"late-{number}")
        rows = [row for row in run.shared() if row["what"] == "trained"]
        assert [row["step"] for row in run.metrics()] == [1, 2, 3]
        assert len({row["name"] for row in rows}) == len(rows) > 0
        assert {row["run"] for row in rows} <= {f"one-{number}", f"other-{number}"}
        ids = {each.episode.id.rpartition("/")[0] for each in run.episodes(arm="train")}
        assert {row["name"] for row in rows} <= ids
        for row in rows:  # the same reward, so what was claimed is what it earned here
            assert row["reward"] == pytest.approx(row["claimed"])
        shutil.rmtree(tmp_path / "shared")


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_shares_continues_and_trains_nothing_twice(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "model")
    (tmp_path / "my_recipe.py").write_text(OWN)
    words = ["keepworth", "train", "my_recipe.py", "--set", f"share={tmp_path / 'shared'}"]
    ended(started(words, tmp_path, checkpoint, "other", tasks_per_step=4, steps=4))
    more = {"tasks_per_step": 3, "foreign": 1, "seed": 3, "steps": 6, "evaluate_every": 6}
    path = tmp_path / "runs" / "one"
    for kill in range(3):
        process = started(words, tmp_path, checkpoint, "one", **more)
        while process.poll() is None and len(_steps(path)) <= kill:
            pass
        process.kill()
        process.communicate()
        left = [each for each in (tmp_path / "shared").rglob("*.json") if not each.name.startswith(".")]
        assert all(json.loads(each.read_text())["members"] for each in left)
    ended(started(words, tmp_path, checkpoint, "one", **more))
    run = RunFolder.open(path)
    names = [row["name"] for row in run.shared() if row["what"] == "trained"]
    assert _steps(path) == [1, 2, 3, 4, 5, 6]
    assert len(names) == len(set(names)) > 0
    assert len(list((tmp_path / "shared").glob("one-*"))) == 1


def _steps(path: Path) -> list[int]:
    return [row["step"] for row in RunFolder(path).metrics()] if (path / "metrics.jsonl").exists() else []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"foreign": 4}, "without share"),
        ({"foreign": 8, "share": "x"}, "leaves 0 groups"),
        ({"foreign": 5, "share": "x", "minibatches": 4, "passes": 2}, "leaves 3 groups"),
        ({"foreign": 6, "share": "x", "workers": 3}, "leaves 2 groups"),
        ({"foreign": -1, "share": "x"}, "greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be_are_errors(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        arithmetic.Config(**given)


def test_imitation_shares_nothing() -> None:
    with pytest.raises(ValidationError, match="share = 'x' has no effect with method = supervised"):
        strings.Config(method="supervised", share="x")


def test_recipes_whose_groups_cannot_be_replayed_say_so() -> None:
    config = strings.Config(hints=0.5, share="x")
    system = strings.system(config)
    with pytest.raises(KeepworthError, match="its tasks come in an order"):
        require_sharing(system, system.objective)
    plain = arithmetic.system(arithmetic.Config(share="x"))
    require_sharing(plain, plain.objective)
