"""Weights under traffic: a model answers its user while it learns from the same conversation, and new weights reach it meanwhile.

    python -m benchmarks.serving.while_learning --json benchmarks/serving/while_learning.json [--seeds 2]

The user `brief` of the recipe `openclaw_rl` talks without a pause with a replica of the model (`Replica` of
`keepworth.models.adapter`). A second thread makes an update of the learner's adapter from the sessions before and publishes it
into the replica between two sessions, with a proof that it arrived. Rounds: at least six sessions while nobody learns, then
sessions until the update is published. Measured are the seconds of an answer, the wait for a publication included, with the ratio
of both halves of a round; and the share of 32 held-out answers, greedy, that follow the user's habit before and after, beside an
arm whose votes are permuted among the answers of an update and whose hints are another user's.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.methods.openclaw import COMMON, PERMUTED, USERS, Permuted, share_of_answers
from benchmarks.methods.write import arm, gap
from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine, ratio
from keepworth.methods.recipes import openclaw_rl as openclaw
from keepworth.records.episode import Episode, Group
from keepworth.training.learner import Learner
from keepworth.training.replica import Replica
from keepworth.training.run import prepare_learner
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import System
from keepworth.training.watch.progress import Progress
from keepworth.worlds.driver import play

BOTH, SESSIONS = "both", 6


@dataclass
class Traffic:
    """A user who talks with the replica. between: held during a session, and by whoever changes the weights."""

    config: openclaw.Config
    system: System
    served: Replica
    between: threading.Lock = field(default_factory=threading.Lock)
    numbers: Any = field(default_factory=count)

    def talk(self) -> tuple[Episode, float]:
        """A session, and the seconds of each of its answers."""
        number, begun = next(self.numbers), time.perf_counter()
        task = self.system.train[number * 7 % len(self.system.train)]
        with self.between:
            heat, limits = self.config.temperature, self.system.limits
            seed = 1000 * self.config.seed + number
            (group,) = play(self.served.model, [task], self.system.play, temperature=heat, seed=seed, limits=limits)
        session = group.episodes[0]
        return replace(session, id=str(number)), (time.perf_counter() - begun) / len(session.segments)


def learn(learner: Learner, groups: list[Group], traffic: Traffic) -> float:
    """An update, and its publication; the seconds of that."""
    learner.update(groups)
    sent = traffic.served.outgoing()
    with traffic.between:
        return traffic.served.publish(sent).seconds


def run(name: str, seed: int, updates: int) -> dict[str, Any]:
    """One user, one seed: the held-out share before and after, and of each round the seconds of an answer without and with an
    update beside it."""
    config = openclaw.Config(**{**COMMON, "tasks_per_step": SESSIONS, "seed": seed})
    system = openclaw.system(config)
    permuted = Permuted(seed, openclaw.USERS[USERS[1]].wants) if name == PERMUTED else None
    rounds, published = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        RunFolder.create(
            Path(folder) / "run", {"recipe": "openclaw_rl", **config.model_dump(mode="json")}
        ) as folder_of,
        prepare_learner(config, config.default_objective, "policy", folder_of, Progress()) as (model, learner),
        ThreadPoolExecutor(1) as beside,
    ):
        traffic = Traffic(config, system, Replica(model, learner.master_weights.named))
        before, samples = share_of_answers(traffic.served.model, system), list[Group]()
        for step in range(updates):
            alone, together = list[float](), list[float]()
            while len(samples) < SESSIONS or len(alone) < SESSIONS:
                alone.append(_talk_and_keep(traffic, samples))
            trained, samples = samples, []
            work: Future[float] = beside.submit(
                learn, learner, permuted.review(trained, step) if permuted else trained, traffic
            )
            while not together or not work.done():
                together.append(_talk_and_keep(traffic, samples))
            published.append(work.result())
            rounds.append({"alone": sum(alone) / len(alone), "beside": sum(together) / len(together)})
        after = share_of_answers(traffic.served.model, system)
    return {"arm": name, "seed": seed, "before": before, "after": after, "rounds": rounds, "publish": published}


def _talk_and_keep(traffic: Traffic, samples: list[Group]) -> float:
    """A session whose answers are added to what an update learns from; the seconds of an answer."""
    session, seconds = traffic.talk()
    samples += [
        Group(session.task, session.memory_snapshot, (sample,)) for sample in openclaw.samples_of(session, BOTH)
    ]
    return seconds


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=8)
    options = parser.parse_args()
    setting, runs = machine(1), list[dict[str, Any]]()
    for seed in range(options.seeds):
        runs += [run(name, seed, options.updates) for name in (BOTH, PERMUTED)]
        rounds = [times for one in runs for times in one["rounds"]]
        before = [one["before"] for one in runs if one["arm"] == BOTH]
        after = {name: [one["after"] for one in runs if one["arm"] == name] for name in (BOTH, PERMUTED)}
        record = {
            "setting": setting,
            "command": f"python -m benchmarks.serving.while_learning --seeds {seed + 1} --updates {options.updates}",
            "rounds": len(rounds),
            "latency_with_learning_over_without": ratio(*([of[half] for of in rounds] for half in ("beside", "alone"))),
            "arms": [arm(f"{BOTH}, before", before)]
            + [arm(f"{name}, after {options.updates} updates", values) for name, values in after.items()],
            "comparison": gap(f"{BOTH} minus {PERMUTED}", after[BOTH], after[PERMUTED]) if seed > 1 else None,
            "runs": runs,
        }
        save(options.json, record)
        print(seed, record["arms"], record["latency_with_learning_over_without"], flush=True)


if __name__ == "__main__":
    main()
