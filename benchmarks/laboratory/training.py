"""What the laboratory's benchmarks share: answers of a model in a world, a run of training, and results that are kept."""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.objectives.run import weights_of
from benchmarks.record import save
from benchmarks.tables import ROOT
from keepworth.base.model_files import path_of, sha256_of
from keepworth.models.adapter import unfreeze
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Group, Task
from keepworth.training.critic import CriticSettings
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.presets import preset, presets
from keepworth.worlds.chat import Chat
from keepworth.worlds.driver import Limits, Play, play
from keepworth.worlds.laboratory import WORLDS, ComposedWorld

MODEL = "lab-small"
ROLE = "policy"
TASKS, ANSWERS = 48, 32
"""Of a measurement: tasks, spread evenly over the compositions, and answers to each at temperature 1."""
TUNING = 100_000
"""The first seed of runs that choose a rate; they are measured on compositions that reward trains, never on held-out ones."""


@dataclass(frozen=True)
class Arm:
    """An objective with its changes. permuted: whether rewards are dealt out anew among the episodes of each update."""

    name: str
    preset: str = "grpo"
    changes: Mapping[str, Any] = field(default_factory=dict)
    rate: float = 3e-4
    permuted: bool = False


@dataclass(frozen=True)
class Course:
    """How long an arm trains: `updates` of `tasks` prompts with `answers` each, which it goes over `passes` times. lag: how many
    updates the sampler is behind."""

    updates: int = 40
    tasks: int = 16
    answers: int = 16
    passes: int = 2
    lag: int = 0


GRPO = Arm("grpo", changes={"kl": None})
PERMUTED = replace(GRPO, name="permuted rewards", permuted=True)


def digest() -> str:
    """Of the model's weights."""
    return sha256_of(path_of(MODEL) / "model.safetensors")


def load() -> InProcessModel:
    torch.set_num_threads(1)
    return InProcessModel.load(path_of(MODEL), MODEL, precision="fp32")


def answers(model: InProcessModel, world: ComposedWorld, tasks: Sequence[Task], count: int, seed: int) -> list[Group]:
    """Episodes of each task, in the way of a training on tasks of one's own."""
    how = Play(world.play, lambda task, memory: Chat(max_tokens=world.tokens))
    return play(model, tasks, how, n=count, seed=seed, limits=Limits(max_turns=world.turns))


def rewards(
    model: InProcessModel, world: ComposedWorld, tasks: Sequence[Task], count: int = ANSWERS, seed: int = 1
) -> np.ndarray:
    """[tasks, count] The rewards of answers that are drawn at temperature 1."""
    groups = [
        group
        for at in range(0, len(tasks), 16)
        for group in answers(model, world, tasks[at : at + 16], count, seed + at)
    ]
    return np.array([[episode.reward for episode in group.episodes] for group in groups])


def dealt(groups: Sequence[Group], draw: random.Random) -> list[Group]:
    """The rewards of an update, dealt out anew among its episodes."""
    terms = [episode.rewards for group in groups for episode in group.episodes]
    draw.shuffle(terms)
    anew = iter(terms)
    return [replace(group, episodes=tuple(replace(e, rewards=next(anew)) for e in group.episodes)) for group in groups]


def train(world: ComposedWorld, arm: Arm, seed: int, course: Course = Course(), tasks: int = TASKS) -> dict[str, Any]:
    """One arm, one seed: pass@1 before and after on compositions that were trained and on held-out ones, and what it cost."""
    model = load()
    changes = dict(arm.changes)
    if presets()[arm.preset].needs_length_budget:
        changes["length_budget"] = world.tokens * world.turns
    if presets()[arm.preset].adapter_decay:
        changes["adapter_decay"] = 0.0  # all weights are trained
    objective = preset(arm.preset, **changes)
    passes = course.passes if objective.takes_passes else 1
    extras = {"critic": CriticSettings(learning_rate=3e-3, warmup=2)} if objective.needs_critic else {}
    optimisation = Optimisation(learning_rate=arm.rate, token_budget=8192, checkpointing="off", passes=passes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a clip that cannot act where there is one step an update
        learner = Learner(model, named := unfreeze(model), objective, optimisation, ROLE, **extras)
    tuning = seed >= TUNING
    measured = {"train": world.tasks("train", tasks, 1)} | ({} if tuning else {"test": world.tasks("test", tasks, 1)})
    before = {side: rewards(model, world, of).mean(1).tolist() for side, of in measured.items()}
    asked = world.tasks("train", course.updates * course.tasks, 1000 + seed)
    past: deque[tuple[int, dict[str, torch.Tensor]]] = deque(maxlen=course.lag + 1)
    draw, begun, seconds, drawn, curve = random.Random(seed), time.process_time(), [0.0, 0.0], 0, []
    for update in range(course.updates):
        started = time.process_time()
        past.append((now := model.version, {key: value.detach().clone() for key, value in named.items()}))
        model.version, old = past[0]
        batch = asked[update * course.tasks : (update + 1) * course.tasks]
        with weights_of(named, old if course.lag else None):
            groups = answers(model, world, batch, course.answers, 10_000 * (seed + 1) + update)
        model.version = now
        drawn += sum(len(segment.ids) for group in groups for e in group.episodes for segment in e.segments)
        curve.append(float(np.mean([e.reward for group in groups for e in group.episodes])))
        sampled = time.process_time()
        learner.update(dealt(groups, draw) if arm.permuted else groups)
        seconds = [seconds[0] + sampled - started, seconds[1] + time.process_time() - sampled]
    cost = time.process_time() - begun
    after = {side: rewards(model, world, of).mean(1).tolist() for side, of in measured.items()}
    return {
        "before": {side: float(np.mean(of)) for side, of in before.items()},
        "after": {side: float(np.mean(of)) for side, of in after.items()},
        "curve": [round(value, 4) for value in curve],
        "drawn_tokens": drawn,
        "cpu_seconds": round(cost, 1),
        "seconds_an_update": {"sampling": seconds[0] / course.updates, "learning": seconds[1] / course.updates},
    }


class Kept:
    """Results in a file of the build folder, so that a command that was stopped goes on. They are of one model and revision."""

    def __init__(self, name: str, revision: str) -> None:
        self._path = ROOT / "build" / f"laboratory-{name}.json"
        self._of = {"digest": digest(), "revision": revision}
        self._results: dict[str, Any] = {}
        if self._path.is_file():
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            if kept["of"] == self._of and "dirty" not in revision:
                self._results = kept["results"]

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The result of this key, made where it is not there yet."""
        if key not in self._results:
            self._results[key] = make()
            self._path.parent.mkdir(exist_ok=True)
            save(self._path, {"of": self._of, "results": self._results})
        return self._results[key]


def chosen(names: str) -> list[str]:
    """The worlds that are named, with commas between; all of them for "". Raises SystemExit."""
    listed = [name for name in names.split(",") if name] or list(WORLDS)
    if unknown := [name for name in listed if name not in WORLDS]:
        raise SystemExit(f"There is no world {unknown[0]!r}. There are {', '.join(WORLDS)}. Nothing was run.")
    return listed


def path_in(name: str) -> Path:
    return Path(__file__).parent / f"{name}.json"
