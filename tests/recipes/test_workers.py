"""Recipes with rollout workers: the same run, bit for bit; and what cannot run in a worker says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keepworth.base.errors import KeepworthError
from keepworth.cli.main import main
from keepworth.training.front_door import make_recipe, record_of, train
from keepworth.training.recipe import Origin
from keepworth.training.run_folder import RunFolder
from tests.learning.loop_cluster import LoopCluster
from tests.pages import lines_that_run_in
from tests.recipes.tiny_runs import READING, STRINGS, TINY, Notes, same, weights_of

OWN = """
import os, signal, time
from pathlib import Path

tasks = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(40)]

def reward(answer, row):
    order = Path(__file__).with_name("kill")  # what ends, and the process that is spared: it measures with the same reward
    try:
        what, spared = order.read_text().split()
        if spared != str(os.getpid()):
            order.unlink()
            os.kill(os.getppid() if what == "raylet" else os.getpid(), signal.SIGKILL)
            time.sleep(60)
    except FileNotFoundError:  # nobody is to end, or another was faster
        pass
    return len(answer) / 10 + float(row["answer"] in answer)

settings = {"format": "plain", "max_tokens": 6, "evaluate_every": 2, "checkpoint_every": 1}
"""


@pytest.fixture(autouse=True)
def in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in a thread of this process; test_workers_ray.py has those of Ray."""
    monkeypatch.setattr("keepworth.training.ray.RayCluster", lambda address: LoopCluster())


def run_of(origin: Origin, checkpoint: Path, path: Path, **settings: Any) -> tuple[RunFolder, list[str]]:
    recipe, progress = make_recipe(origin), Notes()
    base = getattr(recipe, "settings", {})
    config = recipe.Config(model=str(checkpoint), **{**base, **TINY, **settings})
    with RunFolder.create(path, record_of(recipe, config, "own")) as run:
        recipe.train(config, run, progress)
    return run, progress.notes


def run_line(words: list[str], checkpoint: Path, name: str, **more: Any) -> None:
    """Trains as a line of a page says, with a tiny model and few steps, in the current folder."""
    settings = [f"{key}={value}" for key, value in {**TINY, **more}.items()]
    assert words[:2] == ["keepworth", "train"]
    sets = [word for setting in settings for word in ("--set", setting)]
    assert main([*words[1:], "--name", name, "--model", str(checkpoint), *sets]) == 0


def rows(run: RunFolder) -> list[Mapping[str, Any]]:
    """What was measured of every step, without what a clock says, and which requests were decoded together."""
    timed = ("time", "seconds", "_per_second", "decode/")
    return [
        {name: value for name, value in row.items() if not any(each in name for each in timed)} for row in run.metrics()
    ]


def test_own_tasks_from_a_file_run_alike_with_workers(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    origin = Origin(str(tmp_path / "mine.py"))
    alone, _ = run_of(origin, checkpoint, tmp_path / "alone")
    apart, _ = run_of(origin, checkpoint, tmp_path / "apart", workers=2)
    assert rows(apart) == rows(alone)
    assert same(weights_of(alone), weights_of(apart))
    kept = [[episode.episode for episode in run.episodes(arm="train")] for run in (alone, apart)]
    assert [each.segments for each in kept[0]] == [each.segments for each in kept[1]]
    assert [each.rewards for each in kept[0]] == [each.rewards for each in kept[1]]
    # A run goes on with another number of workers: where the work is done says nothing about the run.
    RunFolder.create(apart.path, {**apart.config, "workers": 0}).close()


PROGRAM = """
import httpx

tasks = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(40)]

def agent(row, endpoint):
    asked = row["prompt"]
    for _ in range(2):
        call = {"model": "any", "messages": [{"role": "user", "content": asked}], "max_tokens": 6}
        answer = httpx.post(f"{endpoint.openai}/chat/completions", json=call, trust_env=False, timeout=120).json()
        asked = f"{answer['choices'][0]['message']['content']} again"
    return asked

def reward(answer, row):
    return len(set(answer)) / 20

settings = {"format": "plain", "max_tokens": 6, "evaluate_every": 2, "checkpoint_every": 1}
"""


def test_agents_that_are_programs_run_alike_with_workers(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    origin = Origin(str(tmp_path / "mine.py"))
    alone, _ = run_of(origin, checkpoint, tmp_path / "alone")
    apart, _ = run_of(origin, checkpoint, tmp_path / "apart", workers=2)
    kept = [[stored.episode for stored in run.episodes(arm="train")] for run in (alone, apart)]
    assert {len(episode.segments) for episode in kept[0]} == {2}
    assert [episode.segments for episode in kept[0]] == [episode.segments for episode in kept[1]]
    assert [episode.rewards for episode in kept[0]] == [episode.rewards for episode in kept[1]]
    assert rows(apart) == rows(alone)
    assert same(weights_of(alone), weights_of(apart))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), [
    ("arithmetic", {"answer": "calculator", "max_tokens": 4, "evaluate_every": 2}),
    ("strings", STRINGS),
    ("overwrite_reading", READING),
    ("memory_r1", {"evaluate_every": 2, "max_tokens": 4, "distractors": 2}),
])  # fmt: skip
def test_shipped_recipes_run_alike(checkpoint: Path, tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    alone, _ = run_of(Origin(name), checkpoint, tmp_path / "alone", **settings)
    apart, notes = run_of(Origin(name), checkpoint, tmp_path / "apart", workers=2, **settings)
    assert rows(apart) == rows(alone)
    assert [row for row in notes if "worker" in row] == []
    (role,) = alone.finished_roles()
    assert same(weights_of(alone, role), weights_of(apart, role))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["turns", "overlap"])
def test_sampling_ahead_with_workers_runs_whole(checkpoint: Path, tmp_path: Path, sampling: str) -> None:
    settings = {"answer": "calculator", "max_tokens": 4, "evaluate_every": 2, "sampling": sampling}
    run, _ = run_of(Origin("arithmetic"), checkpoint, tmp_path / "run", workers=2, **settings)
    assert [row["step"] for row in run.metrics()] == [1, 2]
    kept = [stored.episode for stored in run.episodes(arm="train")]
    assert len(kept) == 8
    assert len({each.id for each in kept}) == 8  # none was trained on twice


@pytest.mark.slow
def test_the_lines_of_docs_cluster_md_train(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_recipe.py").write_text(OWN)
    Path("my.jsonl").write_text("".join(f'{{"prompt": "{n} + {n}", "answer": "{2 * n}"}}\n' for n in range(40)))
    Path("my_reward.py").write_text("def score(answer, row):\n    return len(answer) / 10\n")
    for number, words in enumerate(lines_that_run_in("cluster.md", "tests/recipes/test_workers.py")):
        most = {"tasks_per_step": 4} if "workers=4" in words else {}
        run_line(words, checkpoint, f"run-{number}", max_tokens=4, evaluate_every=2, **most)
        run = RunFolder.open(tmp_path / "runs" / f"run-{number}")
        assert [row["step"] for row in run.metrics()] == [1, 2]


def test_options_unusable_in_workers_are_refused_before_loading(checkpoint: Path, tmp_path: Path) -> None:
    tasks = [{"prompt": f"{n}", "answer": "1"} for n in range(40)]
    with pytest.raises(KeepworthError, match="given as objects") as caught:
        train(tasks, model=str(checkpoint), runs=tmp_path, workers=2, **TINY)
    assert "keepworth train FILE.py" in caught.value.fix
    with pytest.raises(KeepworthError, match="a reader that is loaded in this process"):
        run_of(Origin("bounded_bank"), checkpoint, tmp_path / "bank", workers=2)
    with pytest.raises(KeepworthError, match="manager"):
        run_of(Origin("memory_r1"), checkpoint, tmp_path / "manager", workers=2, role="manager")


def test_an_origin_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "rows.jsonl"):
        (tmp_path / name).touch()
    rewards = ("mine.py:reward", "token_f1", "package.module:f")
    found = Origin("", tasks="rows.jsonl", reward=rewards, environment="mine.py:World").anywhere()
    assert found.tasks == str(tmp_path / "rows.jsonl")
    assert found.reward == (f"{tmp_path}/mine.py:reward", "token_f1", "package.module:f")
    assert found.environment == f"{tmp_path}/mine.py:World"
    assert Origin("mine.py").anywhere().recipe == str(tmp_path / "mine.py")
    assert Origin("arithmetic").anywhere() == Origin("arithmetic")
