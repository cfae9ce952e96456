"""Steps per second of recurrent PPO beside sb3-contrib's RecurrentPPO, with the same network, worlds, threads and settings.

    pip install sb3-contrib
    python -m benchmarks.control.speed --json benchmarks/control/speed.json

Both have an LSTM of 128 over the observation, two layers of 128 for policy and value, the observation alone as input, rollouts of
128, 4 epochs of 4 minibatches, in popgym's RepeatPreviousEasy. They take turns in one process; the figure is the ratio in each
round (processor time), its median and range over rounds. A second setting of ours is its default network, which has a layer
before the memory and takes the action before.
"""

from __future__ import annotations

import statistics
import time
from importlib.metadata import version
from typing import Any

from benchmarks.control.cells import Row, collect
from benchmarks.record import arguments
from keepworth.control.ppo import Trainer
from keepworth.control.settings import PpoSettings
from keepworth.control.worlds import maker

WORLD = "popgym-RepeatPreviousEasy-v0"
ROLLOUT, EPOCHS, MINIBATCHES, WIDTH = 128, 4, 4, 128


class Theirs:
    """RecurrentPPO of sb3-contrib, with the `update` of our trainer."""

    def __init__(self, envs: int) -> None:
        from sb3_contrib import RecurrentPPO
        from stable_baselines3.common.logger import Logger
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv

        worlds = DummyVecEnv([lambda: Monitor(maker(WORLD)()) for _ in range(envs)])
        shape = {"pi": [WIDTH], "vf": [WIDTH]}
        network = {"lstm_hidden_size": WIDTH, "shared_lstm": True, "enable_critic_lstm": False, "net_arch": shape}
        batch = ROLLOUT * envs // MINIBATCHES
        self.model = RecurrentPPO(
            "MlpLstmPolicy",
            worlds,
            n_steps=ROLLOUT,
            batch_size=batch,
            n_epochs=EPOCHS,
            learning_rate=1e-3,
            ent_coef=0.01,
            policy_kwargs=network,
            device="cpu",
        )
        self.model.set_logger(Logger(folder=None, output_formats=[]))
        self.steps = ROLLOUT * envs

    def update(self) -> None:
        self.model.learn(self.steps, reset_num_timesteps=False)


def seconds(work: Any, updates: int) -> float:
    """Processor time of so many updates."""
    before = time.process_time()
    for _ in range(updates):
        work.update()
    return time.process_time() - before


def measure(envs: int, rounds: int, updates: int) -> dict[str, Any]:
    """Steps per second of processor time of each, and the ratio in each round."""
    arms = {
        "sb3-contrib": Theirs(envs),
        "keepworth, same network": Trainer(PpoSettings(WORLD, "lstm", envs=envs, encoder=False, action_input=False)),
        "keepworth, its default network": Trainer(PpoSettings(WORLD, "lstm", envs=envs)),
    }
    for work in arms.values():
        work.update()
    times: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name in sorted(arms, reverse=bool(turn % 2)):
            times[name].append(seconds(arms[name], updates))
    steps = envs * ROLLOUT * updates
    out: dict[str, Any] = {"envs": envs, "rounds": rounds, "updates": updates}
    for name, spent in times.items():
        ratios = [theirs / ours for theirs, ours in zip(times["sb3-contrib"], spent, strict=True)]
        out[name] = {
            "steps_per_second": round(steps / statistics.median(spent)),
            "ratio": round(statistics.median(ratios), 2),
            "least": round(min(ratios), 2),
            "greatest": round(max(ratios), 2),
        }
    return out


def main() -> None:
    """Measure at 16 and 64 worlds, and print or write JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=2)
    options = parser.parse_args()
    rows = (measure(envs, options.rounds, options.updates) for envs in (16, 64))

    def report(rows: list[Row]) -> Row:
        unit = "steps of worlds per second of processor time; ratio: their time over ours, median of rounds"
        return {"sb3-contrib": version("sb3-contrib"), "popgym": version("popgym"), "unit": unit, "rows": rows}

    collect("speed", None, options.json, rows, report)


if __name__ == "__main__":
    main()
