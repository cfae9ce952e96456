"""Rewards in processes of their own: the same run, bit for bit, a judge that is loaded once in each, and what they refuse."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from safetensors.torch import load_file

from keepworth.episodes.errors import KeepworthError
from keepworth.learning.placement import Needs, Part, WorkerDied, WorkerFailed
from keepworth.learning.run_folder import RunFolder
from keepworth.recipes import own
from keepworth.recipes.front_door import train
from keepworth.recipes.scorers import DEATHS, Scorers
from keepworth.recipes.training import kept_weights
from keepworth.recipes.workers import Origin
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.learning.loop_cluster import LoopCluster
from tests.pages import lines_that_run_in
from tests.recipes.test_workers import TINY, in_a_loop, rows, run_line, run_of  # noqa: F401

JUDGED = """
import functools, os
from pathlib import Path

HERE = Path(__file__).parent
tasks = [{"prompt": f"{n} + {n}", "answer": str(2 * n)} for n in range(40)]

@functools.cache
def judge():  # stands for a model that is slow to load
    with open(HERE / "loaded", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return 10.0

def reward(answer, row):
    by = judge()
    with open(HERE / "asked", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return len(answer) / by + float(row["answer"] in answer)

settings = {"format": "plain", "max_tokens": 6, "evaluate_every": 2, "checkpoint_every": 1}
"""
BROKEN = """
tasks = [{"prompt": f"{n}", "answer": str(n)} for n in range(40)]

def reward(answer, row):
    return row["nothing"]
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


def trained(checkpoint: Path, folder: Path, **settings: Any) -> tuple[RunFolder, list[str], Path]:
    folder.mkdir()
    file = folder / "mine.py"
    file.write_text(JUDGED)
    run, notes = run_of(Origin(str(file)), checkpoint, folder / "run", **settings)
    return run, notes, folder


def require_alike(one: RunFolder, other: RunFolder) -> None:
    assert rows(one) == rows(other)
    first, second = (load_file(kept_weights(run, "policy") / "adapter_model.safetensors") for run in (one, other))
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)
    kept = [[each.episode.rewards for each in run.episodes()] for run in (one, other)]
    assert kept[0] == kept[1]


def test_scorers_reward_as_the_training_process_does(checkpoint: Path, tmp_path: Path) -> None:
    alone, _, _ = trained(checkpoint, tmp_path / "alone")
    apart, notes, _ = trained(checkpoint, tmp_path / "apart", scorers=2, workers=2)
    require_alike(apart, alone)
    assert [each for each in notes if "scorer" in each] == []
    RunFolder.create(apart.path, {**apart.config, "scorers": 0}).close()  # where rewards run says nothing about the run


def test_rewards_that_fail_are_named_before_anything_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    with pytest.raises(WorkerFailed, match=r"scorer 1 on .*no field 'nothing'"):
        run_of(Origin(str(file)), tmp_path / "no model", tmp_path / "run", scorers=1)


@pytest.mark.slow
def test_the_lines_of_docs_cluster_md_train_with_scorers(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.jsonl").write_text("".join(f'{{"prompt": "{n} + {n}", "answer": "{2 * n}"}}\n' for n in range(40)))
    Path("my_reward.py").write_text("def score(answer, row):\n    return len(answer) / 10\n")
    for number, words in enumerate(lines_that_run_in("cluster.md", "tests/recipes/test_scorers.py")):
        run_line(words, checkpoint, f"run-{number}", max_tokens=4, evaluate_every=2)
        run = RunFolder.open(tmp_path / "runs" / f"run-{number}")
        assert [row["step"] for row in run.metrics()] == [1, 2]


def test_what_scorers_cannot_do_says_so(checkpoint: Path, tmp_path: Path) -> None:
    config = {"model": str(checkpoint), **TINY}
    tasks = [{"prompt": f"{n}", "answer": "1"} for n in range(40)]

    def reward(answer: str, row: Any) -> float:
        return 1.0

    with pytest.raises(KeepworthError, match="scorers = 1: a scorer makes the recipe anew"):
        train(tasks, reward=reward, runs=tmp_path, scorers=1, **config)
    with pytest.raises(ValueError, match="scorers = 1 has no effect without rewards of your own"):
        train(tasks, runs=tmp_path, scorers=1, **config)
    with pytest.raises(ValidationError, match="scorer_label = 'room=gpu' has no effect with scorers = 0"):
        own.Config(**config, ray_address="h:1", workers=1, scorer_label="room=gpu")
    with pytest.raises(ValidationError, match="worker_label = 'room=cpu' has no effect without ray_address"):
        own.Config(**config, workers=1, worker_label="room=cpu")
    with pytest.raises(ValidationError, match="worker_label"):
        own.Config(**config, workers=1, ray_address="h:1", worker_label="cpu")
    own.Config(**config, scorers=1, ray_address="h:1", scorer_gpus=1, scorer_label="room=gpu")


@pytest.fixture
def two() -> Iterator[tuple[Scorers, list[str]]]:
    """Two scorers, and what is noted of them."""
    cluster, notes = LoopCluster(), list[str]()
    yield Scorers(cluster, Part("tests.cluster.parts:Judge"), 2, notes.append, Needs()), notes
    cluster.close()


async def asked(scorers: Scorers, *answers: str) -> list[int]:
    """Process ids of who rewarded the answers, asked at once."""
    found = await asyncio.gather(*(scorers.terms("task 7", each) for each in answers))
    return [int(term.value) for (term,) in found]


def test_answers_go_to_the_scorer_that_has_the_fewest_before_it(two: tuple[Scorers, list[str]]) -> None:
    counts = Counter(asyncio.run(asked(two[0], *"abcdef")))
    assert sorted(counts.values()) == [3, 3]


def test_a_reward_that_raises_fails_its_answer_alone(two: tuple[Scorers, list[str]]) -> None:
    async def both() -> None:
        with pytest.raises(WorkerFailed, match=r"scorer . on .*no reward for task 7"):
            await asyncio.gather(asked(two[0], "fine"), two[0].terms("task 7", "fail"))

    asyncio.run(both())
    assert len(asyncio.run(asked(two[0], "a"))) == 1
    assert two[1] == []


def test_an_answer_that_kills_its_scorer_is_given_up_and_others_are_rewarded() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    from keepworth.cluster.ray import RayCluster

    cluster, notes = RayCluster(), list[str]()
    try:
        scorers = Scorers(cluster, Part("tests.cluster.parts:Judge"), 2, notes.append, Needs())
        with pytest.raises(WorkerDied, match="scorer 1"):
            asyncio.run(asked(scorers, "die"))
        assert len(notes) == DEATHS
        assert len(asyncio.run(asked(scorers, "a", "b"))) == 2
    finally:
        cluster.close()
