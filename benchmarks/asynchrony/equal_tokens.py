"""Schedules that sample the tail differently, at equal tokens: is what is learned the same, and what does it cost?

Long-tailed answers (log-normal, median 4 tokens, sigma 1, at most 48) on the task of `staleness`. Every arm trains until it
has drawn the same number of tokens, and the score is of the model after the update at which it had.

* plain: synchronous, a batch at a time;
* parked: APRIL (arXiv 2509.18521): half a batch more than needed is started, the rest goes on in the next round;
* token budget: C3PO++ (arXiv 2510.18855): an update ends when a batch's mean number of tokens is drawn, and trains on what is
  whole; as many groups are under way as in "parked". Purged: a group that is more than one update old is given up;
* micro-groups: half a group at a time (Infinite Sampling, arXiv 2506.22950), synchronous;
* discarded: what over-sampling alone would do: the unfinished tail is thrown away, so that short answers win.

Decoding steps are counted, because a step of few sequences costs nearly what a full one does. Prints a table and writes
equal_tokens.json.

python -m benchmarks.asynchrony.equal_tokens
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.asynchrony.budget import Old, budgeted
from benchmarks.asynchrony.setting import HERE, World, learner_of, lognormal, run, share, tiny, write
from benchmarks.asynchrony.staleness import OBJECTIVES, PROMPTS, interval
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.learning.collect.pipeline import Asynchrony, Pipeline, Staleness

GROUPS, MEMBERS, RATE = 4, 8, 2e-3
BUDGET = 24_000
SEEDS = (0, 1, 2, 3, 4)
PATH = HERE / "equal_tokens.json"
A_BATCH = GROUPS * MEMBERS * 13 // 2
"""Tokens of a batch, whose answers have 6.5 on average."""
ARMS: dict[str, tuple[int, float, int, Old | None]] = {
    # max_staleness, pipeline_depth, slots, what a token budget does about old groups
    "plain": (0, 1.0, GROUPS * MEMBERS, None),
    "parked": (4, 1.5, GROUPS * MEMBERS * 3 // 2, None),
    "token budget": (4, 1.5, GROUPS * MEMBERS * 3 // 2, "keep"),
    "token budget, purged": (1, 1.5, GROUPS * MEMBERS * 3 // 2, "purge"),
    "micro-groups": (0, 1.0, MEMBERS // 2, None),
    "discarded": (4, 1.5, GROUPS * MEMBERS * 3 // 2, None),
}


class Counted(Pipeline):
    """Stops when the tokens are drawn; counts decoding steps."""

    spent = purged = 0
    discards = False
    last: Counted | None = None

    def begin(self, *arguments: Any) -> None:
        Counted.last = self
        super().begin(*arguments)

    def collect(self, step: int) -> Any:
        collected = super().collect(step)
        self.spent += sum(len(s.ids) for g in collected.groups for e in g.episodes for s in e.segments)
        if self.discards:
            self._loop.do(self._discard())
        return collected

    async def _discard(self) -> None:
        """Give up every group that is not finished, and start others in their place."""
        self.spent += sum(len(d.ids) for d in (*self.batch.live, *self.batch.waiting))
        gone, self._open = list(self._open), {}
        self._group_order.done |= set(gone)
        members = [task for task in self._loop._tasks if "_member" in str(task.get_coro())]
        for task in members:
            task.cancel()
        await asyncio.gather(*members, return_exceptions=True)

    def publish(self) -> dict[str, float]:
        metrics = super().publish()
        if self.spent + self.purged >= BUDGET:
            raise Enough
        return metrics


class Discarding(Counted):
    discards = True


class Enough(Exception):
    """The tokens are drawn."""


@dataclass(frozen=True, slots=True)
class Outcome:
    score: float
    tokens: int
    updates: int
    decoding_steps: int
    trained_length: float
    longest_lag: int


def outcome(arm: str, seed: int) -> Outcome:
    staleness, depth, slots, old = ARMS[arm]
    model = tiny(seed)
    learner = learner_of(model, OBJECTIVES["decoupled"], RATE)
    world = World(lognormal(4, 1.0, seed, 1, 48), prompts=PROMPTS)
    asynchrony = Asynchrony(Staleness(GROUPS, staleness, depth), MEMBERS, mode="turns", slots=slots, seed=seed)
    lengths: list[float] = []
    lags: list[int] = []
    update = learner.update

    def counting(groups: Any) -> dict[str, float]:
        segments = [s for g in groups for e in g.episodes for s in e.segments]
        lengths.extend(len(s.ids) for s in segments)
        lags.extend(learner.steps - span.version for s in segments for span in s.spans)
        return update(groups)

    learner.update = counting  # type: ignore[method-assign]
    with contextlib.suppress(Enough):
        pipeline = Discarding if arm == "discarded" else Counted if old is None else budgeted(Counted, A_BATCH, old)
        run(learner, world, asynchrony, 10_000, pipeline)
    prompts = [world.encode(world.task(number).input) for number in range(PROMPTS)]
    drawn = model.sample(prompts, SamplingParams(4, n=64, seed=7))
    scores = [share(number, sample.ids) for number, samples in enumerate(drawn) for sample in samples]
    assert Counted.last is not None
    return Outcome(
        statistics.fmean(scores),
        Counted.last.spent + Counted.last.purged,
        learner.steps,
        Counted.last.batch.steps,
        statistics.fmean(lengths),
        max(lags, default=0),
    )


def minus(scores: list[float], plain: list[float], same: bool) -> dict[str, float]:
    mean, low, high = (0.0, 0.0, 0.0) if same else interval([a - b for a, b in zip(scores, plain, strict=True)])
    return {"mean": mean, "low": low, "high": high}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    asked.add_argument(
        "--arms", nargs="+", choices=list(ARMS), default=list(ARMS), help="others are kept as they are stored"
    )
    options = asked.parse_args()
    torch.set_num_threads(1)
    setting = machine(1)
    found: dict[str, list[Outcome]] = {arm: [outcome(arm, seed) for seed in options.seeds] for arm in options.arms}
    before: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {"arms": {}}
    if len(found) < len(ARMS) and before.get("seeds") != options.seeds:
        raise SystemExit(f"the stored arms have the seeds {before.get('seeds')}: measure all arms, or those seeds")
    plain = [one.score for one in found["plain"]] if "plain" in found else before["arms"]["plain"]["scores"]
    arms: dict[str, Any] = {arm: before["arms"][arm] for arm in ARMS if arm not in found}
    for arm, each in found.items():
        arms[arm] = {
            "revision": setting["revision"],
            "scores": [one.score for one in each],
            "mean": statistics.fmean(one.score for one in each),
            **{
                name: statistics.fmean(getattr(one, name) for one in each)
                for name in ("tokens", "updates", "decoding_steps", "trained_length", "longest_lag")
            },
        }
        print(arm, json.dumps(arms[arm]))
    for arm, stored in arms.items():
        stored["minus_plain"] = minus(stored["scores"], plain, arm == "plain")
    write(
        "equal_tokens.json",
        {
            "machine": setting,
            "n": len(options.seeds),
            "seeds": options.seeds,
            "interval": "95 %, Student's t over seeds, paired with plain",
            "token_budget": BUDGET,
            "lengths": {"median": 4, "sigma": 1.0, "longest": 48},
            "groups": GROUPS,
            "members": MEMBERS,
            "learning_rate": RATE,
            "arms": {arm: arms[arm] for arm in ARMS},
        },
    )


if __name__ == "__main__":
    main()
