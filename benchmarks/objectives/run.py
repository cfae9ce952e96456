"""Every objective on the tiny model, and each claim against the objective that does not make it.

    python -m benchmarks.objectives.run [--seeds 5] [--only stale,sparse] [--processes 2]
    python -m benchmarks.objectives.run --tune

Settings (`world.py`): `all` (graded answers of unequal lengths, fresh data: does every preset learn?), `stale` (the
sampler is eight updates behind), `sparse` (one answer in 64 is right, so most groups are all wrong), `turns` and
`longer` (a walk of up to seven or twelve moves, reward at the end), `small` (an adapter of rank 4, long answers of
which one token decides), `utterances` (a short walk, reward at the end: a critic of utterances), `timed` (samplers run
for a time, so that slow answers come into a batch less often). Within a setting every arm has the same number of
updates and episodes per update, unless the table says otherwise. An update is four optimiser steps on its episodes, so
that clips can act (one in `utterances`, two in `timed`); one for objectives without a ratio, which take no more. Every
arm has the best of five learning rates, chosen on two other seeds (`--tune`); in the longer walk those of the short
one. Seeds are shared, so that differences to the baseline are paired. What is measured is the share of reward after the
last update (`final`) and the mean over measurements along the way (`area`, which a faster learner raises).
Writes `objectives.json`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.objectives import page
from benchmarks.objectives.world import (
    BRANCHING,
    GRADED,
    ROLE,
    SPARSE,
    WORDS,
    Corridor,
    OneCall,
    Timed,
    aid,
    tiny,
    with_turn_rewards,
)
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import interval
from keepworth.methods.objectives.a_star_po import reference_values
from keepworth.methods.recipes._bank.rerolls import sampled_sessions
from keepworth.models.adapter import Named, attach_lora, unfreeze
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Group
from keepworth.training.critic import CriticSettings
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.objective.advantage import rejection
from keepworth.training.objective.presets import preset, presets

HERE = Path(__file__).parent
WALK, LONG_WALK = Corridor(), Corridor(length=5, turns=12)


@dataclass(frozen=True)
class Arm:
    """A preset, changes to it, and what it needs besides. refill: sample until `groups` of them pass its filter, at
    most four times; rerolls: local groups from the states of one walk; lag: overrides the setting's."""

    name: str
    preset: str
    changes: dict[str, Any] = field(default_factory=dict)
    refill: bool = False
    aid: bool = False
    turn_rewards: bool = False
    rerolls: bool = False
    lag: int | None = None
    critic: dict[str, Any] = field(default_factory=dict)
    """What the arm's critic has besides the learning rate and warm-up that all have."""
    world: Any = None
    """In the place of the setting's."""


@dataclass(frozen=True)
class Setting:
    world: Any
    arms: tuple[Arm, ...]
    baseline: str
    steps: int
    rate: float
    size: int = 8
    lag: int = 0
    rank: int | None = None
    budget: int = 12
    passes: int = 4
    rates_of: str = ""
    """The setting whose learning rates are taken; its own where empty."""


def _free(name: str, **changes: Any) -> Arm:
    """A preset without its KL term: the reference is not what is being tested."""
    return Arm(name, name, {"kl": None, **changes})


def every() -> tuple[Arm, ...]:
    """All presets as they are, but for those that need turns, their durations or re-rolls: in answers of one call they would be
    another's twin."""
    needs_turns = ("gigpo", "fine_mem", "memory_r2", "archer", "duration")
    return tuple(Arm(name, name, aid=name == "memory_r_plus") for name in presets() if name not in needs_turns)


WALKERS = (
    Arm("lite_ppo", "lite_ppo"),
    _free("grpo"),
    _free("gigpo"),
    _free("ppo"),
    _free("reinforce_pp", advantage="RewardToGo(0.9, scale=Whitened)"),
    Arm("fine_mem", "fine_mem", turn_rewards=True),
    Arm("memory_r2", "memory_r2", {}, rerolls=True),
)

SETTINGS: dict[str, Setting] = {
    "all": Setting(GRADED, every(), "grpo", 40, 3e-3),
    "stale": Setting(
        GRADED,
        (
            Arm("fresh", "lite_ppo", lag=0),
            Arm("uncorrected", "lite_ppo"),
            Arm("areal", "areal"),
            Arm("tis", "tis"),
            Arm("icepop", "icepop"),
            Arm("vcpo", "vcpo"),
        ),
        "uncorrected",
        60,
        2e-2,
        lag=8,
    ),
    "sparse": Setting(
        SPARSE,
        (
            _free("grpo"),
            _free("reinforce"),
            _free("ppo"),
            Arm("dapo, refilled", "dapo", refill=True),
            Arm("memory_r_plus", "memory_r_plus", aid=True),
            Arm("kdrl", "kdrl", {"teacher": "Teacher(0.05, wrong, Anneal(0.01, 60))"}),
        ),
        "grpo",
        60,
        3e-3,
        budget=2,
    ),
    "turns": Setting(WALK, WALKERS, "lite_ppo", 40, 2e-3, budget=7),
    "longer": Setting(LONG_WALK, WALKERS, "lite_ppo", 40, 2e-3, budget=12, rates_of="turns"),
    "small": Setting(
        BRANCHING,
        (
            _free("grpo"),
            Arm("s_grpo", "s_grpo", {"selection": "FirstAndRandom(2, 0.3)"}),
            Arm("t_spmo", "t_spmo"),
            Arm("a_star_po", "a_star_po"),
            Arm("dr_grpo", "dr_grpo"),
        ),
        "grpo",
        60,
        3e-3,
        size=16,
        rank=4,
        budget=6,
    ),
    "utterances": Setting(
        Corridor(length=2, turns=4),
        (
            Arm("lite_ppo", "lite_ppo"),
            _free("ppo"),
            Arm("archer", "archer", critic={"replay": 80}),
            Arm("archer, no replay", "archer"),
        ),
        "lite_ppo",
        24,
        1e-2,
        passes=1,
    ),
    "timed": Setting(
        Timed(),
        (
            Arm("unweighed", "duration", {"weight": None}),
            Arm("duration", "duration"),
            Arm("duration, no cap", "duration", {"weight": "Duration(100)"}),
            Arm("duration, permuted", "duration", world=Timed(permuted=True)),
            Arm("unweighed, unlimited time", "duration", {"weight": None}, world=Timed(limited=False)),
        ),
        "unweighed",
        30,
        1e-2,
        passes=2,
    ),
}


@contextlib.contextmanager
def weights_of(named: Named, past: dict[str, torch.Tensor] | None) -> Iterator[None]:
    """Inside, the model is as it was: what a sampler that lags behind would draw from."""
    if past is None:
        yield
        return
    now = {name: value.data for name, value in named.items()}
    for name, value in named.items():
        value.data = past[name]
    try:
        yield
    finally:
        for name, value in named.items():
            value.data = now[name]


def taught(world: OneCall, seed: int) -> InProcessModel:
    """A teacher: the same kind of model, shown right answers until it gives them about half of the time."""
    model = tiny(1000 + seed)
    learner = Learner(model, unfreeze(model), preset("rloo"), Optimisation(learning_rate=3e-3), ROLE)
    generator = np.random.default_rng(seed)
    for _ in range(60):
        pairs = []
        for number, prompt in enumerate(world.prompts):
            right = [w for w in range(WORDS) if w % 8 == number and w not in world.stops]
            pairs += [(prompt, tuple(int(w) for w in generator.choice(right, world.tokens))) for _ in range(4)]
        learner.imitate(pairs)
    return model


def rerolled(world: Corridor, model: InProcessModel, groups: Sequence[Group], seed: int, size: int) -> list[Group]:
    """Local groups from two states of the first walk's (Memory-R2): the same room for all members."""
    anchor = groups[0].episodes[0]
    rerolls = []
    for index in sampled_sessions(len(anchor.segments), 0.5, seed)[:2]:
        room = int(anchor.segments[index].state.split()[1])
        walks = world.walk(model, 77_000 + 10 * seed + index, room, size, f"{anchor.id}@{index}", anchor.id)
        rerolls.append(Group(f"from {room}", "", tuple(walks)))
    return rerolls


def train(setting: Setting, arm: Arm, seed: int) -> dict[str, Any]:
    """One arm, one seed: what it measured, and what it cost."""
    torch.set_num_threads(1)
    model = tiny(seed)
    world = arm.world or setting.world
    changes = dict(arm.changes)
    if presets()[arm.preset].needs_length_budget:
        changes["length_budget"] = setting.budget
    if setting.rank is None and presets()[arm.preset].adapter_decay:
        changes["adapter_decay"] = 0.0
    objective = preset(arm.preset, **changes)
    named = unfreeze(model) if setting.rank is None else attach_lora(model, setting.rank, seed=seed)
    extras: dict[str, Any] = {}
    if objective.teacher is not None:
        extras["teacher"] = taught(SPARSE if world is SPARSE else GRADED, seed)
    if objective.needs_soft_values:
        extras["soft_values"] = reference_values(world.rollout(model, 5_000_000, 8), objective)
    if objective.needs_critic:
        extras["critic"] = CriticSettings(learning_rate=1e-2, warmup=3, **arm.critic)
    passes = setting.passes if objective.takes_passes else 1
    optimisation = Optimisation(learning_rate=setting.rate, token_budget=8192, passes=passes)
    learner = Learner(model, named, objective, optimisation, ROLE, **extras)
    aided = aid() if arm.aid else None
    lag = setting.lag if arm.lag is None else arm.lag
    past: deque[tuple[int, dict[str, torch.Tensor]]] = deque(maxlen=lag + 1)
    measured = [world.measure(model, 0)]
    sampled, begun = 0, time.process_time()
    for step in range(setting.steps):
        past.append((model.version, {name: value.detach().clone() for name, value in named.items()}))
        now = model.version
        version, weights = past[0]
        with weights_of(named, weights if lag else None):
            model.version = version
            groups = world.rollout(model, 1000 * seed + step, setting.size)
            for again in range(3 if arm.refill else 0):
                used = [not rejection([e.metric for e in group.episodes], objective) for group in groups]
                if sum(used) >= 4:
                    break
                groups += world.rollout(model, 1_000_000 * (again + 1) + 1000 * seed + step, setting.size)
            if arm.rerolls:
                groups += rerolled(world, model, groups, 1000 * seed + step, setting.size // 2)
            sampled += sum(len(g.episodes) for g in groups)
        model.version = now
        if arm.turn_rewards:
            groups = with_turn_rewards(groups)
        if aided is not None:
            groups = aided.review(groups)
        learner.update(groups)
        if (step + 1) % 10 == 0 or step + 1 == setting.steps:
            measured.append(world.measure(model, step))
    return {
        "measured": measured,
        "final": measured[-1],
        "area": float(np.mean(measured[1:])),
        "episodes": sampled,
        "optimiser_steps": passes * setting.steps,
        "cpu_seconds": time.process_time() - begun,
    }


def paired(values: Sequence[float], baseline: Sequence[float]) -> dict[str, Any]:
    """Mean difference over seeds with a 95 % interval."""
    gap = np.subtract(values, baseline)
    ends = interval(gap.tolist())
    return {"mean": float(gap.mean()), "low": ends.low, "high": ends.high}


def coinciding(measured: Mapping[str, Any]) -> list[list[str]]:
    """Arms whose measurements are the same to the last bit in every seed: here they are one and the same update."""
    twins: dict[str, list[str]] = {}
    for name, curves in measured.items():
        twins.setdefault(json.dumps(curves), []).append(name)
    return [names for names in twins.values() if len(names) > 1]


RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
TUNING = 100_000
"""The first of the seeds on which learning rates are chosen."""
TUNED = HERE / "tuned.json"


def tune(name: str, seeds: int, processes: int) -> dict[str, dict[str, float]]:
    """The mean area of every arm of a setting by learning rate, on seeds that are measured nowhere else."""
    tried = list(itertools.product(SETTINGS[name].arms, RATES))
    areas: dict[str, dict[str, float]] = {}
    for (arm, rate), runs in zip(tried, trained(name, tried, range(TUNING, TUNING + seeds), processes), strict=True):
        areas.setdefault(arm.name, {})[f"{rate:g}"] = float(np.mean([result["area"] for result in runs]))
    return areas


def trained(
    name: str, tried: Sequence[tuple[Arm, float]], seeds: Sequence[int], processes: int
) -> list[list[dict[str, Any]]]:
    """The results of arms at learning rates, of each those of all seeds."""
    with ProcessPoolExecutor(processes) as pool:
        pending = [
            [pool.submit(train, replace(SETTINGS[name], rate=rate), arm, seed) for seed in seeds] for arm, rate in tried
        ]
        return [[job.result() for job in runs] for runs in pending]


def rate_of(name: str, arm: Arm) -> float:
    """The learning rate at which the arm did best while tuning."""
    areas = json.loads(TUNED.read_text())["area"][SETTINGS[name].rates_of or name][arm.name]
    return float(max(areas, key=areas.__getitem__))


def run(name: str, seeds: int, processes: int) -> dict[str, Any]:
    """What a setting measures of each arm."""
    setting = SETTINGS[name]
    tried = [(arm, rate_of(name, arm)) for arm in setting.arms]
    runs_of_arms = trained(name, tried, range(seeds), processes)
    results = {arm.name: runs for (arm, _), runs in zip(tried, runs_of_arms, strict=True)}
    series = {
        arm: {key: [result[key] for result in runs] for key in ("final", "area", "measured")}
        for arm, runs in results.items()
    }
    base = series[setting.baseline]
    return {
        "steps": setting.steps,
        "group": setting.size,
        "lag": setting.lag,
        "passes": setting.passes,
        "coincide": coinciding({arm: values["measured"] for arm, values in series.items()}),
        "adapter_rank": setting.rank,
        "baseline": setting.baseline,
        "arms": [
            {
                "name": arm.name,
                "preset": arm.preset,
                "changes": arm.changes,
                "learning_rate": rate_of(name, arm),
                **series[arm.name],
                "episodes": float(np.mean([result["episodes"] for result in results[arm.name]])),
                "optimiser_steps": results[arm.name][0]["optimiser_steps"],
                "final_beyond_baseline": paired(series[arm.name]["final"], base["final"]),
                "area_beyond_baseline": paired(series[arm.name]["area"], base["area"]),
                "cpu_seconds": float(np.mean([result["cpu_seconds"] for result in results[arm.name]])),
            }
            for arm in setting.arms
        ],
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--only", default=",".join(SETTINGS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "objectives.json")
    options = parser.parse_args()
    names = options.only.split(",")
    about = machine(1)
    if options.tune:
        areas = json.loads(TUNED.read_text())["area"] if TUNED.exists() else {}
        for name in (name for name in names if not SETTINGS[name].rates_of):
            areas[name] = tune(name, 2, options.processes)
            save(TUNED, {"seeds": [TUNING, TUNING + 1], "area": areas, **about})
        return
    settings = json.loads(options.output.read_text())["settings"] if options.output.exists() else {}
    for name in names:
        settings[name] = run(name, options.seeds, options.processes) | {"machine": about}
        print(page.table(settings[name]))
        save(options.output, {"what": __doc__, "seeds": options.seeds, "settings": settings})


if __name__ == "__main__":
    main()
