"""What the tests of run folders share: a configuration, an episode, a checkpoint, a measurement."""

from __future__ import annotations

from pathlib import Path

from keepworth.records import Episode, RewardTerm
from keepworth.training.run_folder import RunFolder
from tests.episode_of import episode_of

CONFIG = {"seed": 0, "learning": {"rate": 1e-4, "steps": 45}}


def episode(name: str, reward: float = 0.5, role: str = "answerer") -> Episode:
    more = {"question": "who?", "answer": "Ada", "expected": ("Ada",), "memory_snapshot": "s"}
    return episode_of(name, (), [RewardTerm("f1", reward)], role=role, **more)


def save(run: RunFolder, step: int, text: str = "weights") -> None:
    with run.checkpoint(step) as folder:
        (folder / "adapter").mkdir()
        (folder / "adapter" / "a.bin").write_text(text)
        (folder / "state.json").write_text("{}")


def full(path: Path) -> Path:
    path.symlink_to("/dev/full")
    return path


def measure(run: RunFolder, step: int, mean: float = 0.4) -> None:
    run.append_eval(step, arm="trained", metric="f1", mean=mean, low=mean - 0.1, high=mean + 0.1, n=54)
