"""Steps per second of the off-policy learner beside SAC of stable-baselines3, without a memory, an update per step.

    pip install --target build/sb3 --no-deps stable-baselines3 cloudpickle pandas python-dateutil pytz six tzdata
    PYTHONPATH=src:build/sb3 python -m benchmarks.control.off_policy_speed --json benchmarks/control/off_policy_speed.json

Pendulum-v1 with its speed shown. Both learn from 256 transitions at once, here 32 sequences of 8, and both have an actor and two
critics of four hidden layers of 64: stable-baselines3's critics have all four layers of their own, ours share the first two.
`gru` is the same with a GRU in the place of the first two layers. Steps are per second of processor time, in turns.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.control.cells import Row, collect
from benchmarks.record import arguments
from keepworth.control.off_policy import OffPolicyTrainer
from keepworth.control.settings import OffPolicySettings

TURNS, STEPS = 5, 60
WIDTH = 64


def ours(memory: str) -> Any:
    """A function that plays and learns for some steps."""
    settings = OffPolicySettings(
        "Pendulum-v1",
        memory,
        every=STEPS,
        warmup=STEPS,
        batch=32,
        length=8,
        width=WIDTH,
        encoder=False,
        action_input=False,
    )
    trainer = OffPolicyTrainer(settings)
    trainer.update()
    return trainer.update


def theirs() -> Any:
    """The same of stable-baselines3."""
    import torch
    from stable_baselines3 import SAC

    policy = {"net_arch": [WIDTH] * 4, "activation_fn": torch.nn.ReLU}
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=policy, learning_starts=STEPS, seed=0, device="cpu")
    model.learn(STEPS)
    return lambda: model.learn(STEPS, reset_num_timesteps=False)


def main(words: list[str] | None = None) -> None:
    options = arguments(__doc__).parse_args(words)
    makers = {"ours": lambda: ours("mlp"), "stable-baselines3": theirs, "ours, gru": lambda: ours("gru")}
    speeds: dict[str, list[float]] = {name: [] for name in makers}

    def measure() -> Any:
        learners = {name: make() for name, make in makers.items()}
        for learn in learners.values():  # the first turn is not counted
            learn()
        for turn in range(TURNS):
            for name, learn in learners.items():
                began = time.process_time()
                learn()
                speeds[name].append(STEPS / (time.process_time() - began))
                yield {"learner": name, "turn": turn, "steps_per_second": round(speeds[name][-1], 1)}

    def report(rows: list[Row]) -> Row:
        medians = {name: round(float(np.median(of)), 1) for name, of in speeds.items() if of}
        ratios = [a / b for a, b in zip(speeds["ours"], speeds["stable-baselines3"], strict=False)]
        return {"medians": medians, "ratio": round(float(np.median(ratios)), 3) if ratios else None, "rows": rows}

    packages = ("torch", "gymnasium", "numpy", "stable-baselines3")
    collect("off_policy_speed", words, options.json, measure(), report, packages)


if __name__ == "__main__":
    main()
