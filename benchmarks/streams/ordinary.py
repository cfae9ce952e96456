"""What attacks by ordinary means gain and cost, against this project's method and ExpRAG: see `attacks.py`.

    python -m benchmarks.streams.ordinary --seeds 20 --out benchmarks/streams/results/ordinary.json

A run with the attack is compared with a run without it, seed by seed. gain: the share of questions with the phrase where the
attacker gets its action. cost: success lost in questions without it. Both count from the attack's begin, in points of 100.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.streams.attacks import ATTACKS, Attack, attacked
from keepworth.agents.simulated import LinearAgent
from keepworth.cli.eval_stream import method_for
from keepworth.environments.scene import Stream
from keepworth.evaluation.statistics import paired_difference
from keepworth.evaluation.stream_claims import METHOD
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.slots import Presented
from keepworth.methods.worlds.hidden_rules import FAMILIES, hidden_rules
from keepworth.rollouts.stream import StreamRun, run_stream

RIVAL = "exprag"
ARMS = (RIVAL, METHOD, f"{METHOD}+unnamed")
COST, GAIN, SHARE = 0.03, 0.02, 1 / 3
"""The bounds where rewarders are identified: at most this cost, and at most this gain or this share of what the rival loses."""
CALM = ("near-miss", "noisy-reward", "drift", "benign")
PEOPLE = 20
Cache = dict[str, Any]


class ReadingAgent:
    """As `LinearAgent`, but it reads the text: a line that begins with a label and ends with an action and how it went is an
    example, and it is as alike as the share of the words of what is seen that it holds."""

    LINE = re.compile(r"- \((worked|failed)\) (.*) -> (.+?)(?:: it (?:worked|failed))?$")

    def __init__(self) -> None:
        self.decide = LinearAgent()

    def __call__(
        self,
        situation: str,
        actions: Sequence[str],
        leaning: Sequence[float],
        shown: Presented,
        noise: npt.NDArray[np.float64],
    ) -> str:
        seen = set(situation.lower().split())
        examples = [found.groups() for line in shown.text.split("\n") if (found := self.LINE.match(line))]
        advice = tuple(
            (action, 1.0 if label == "worked" else -1.0, len(seen.intersection(question.lower().split())) / len(seen))
            for label, question, action in examples
        )
        return self.decide(situation, actions, leaning, Presented(shown.text, advice), noise)


class Runs:
    """Runs of one split, each made once. settings: per method, as tuned."""

    def __init__(self, split: str, settings: Mapping[str, Any]) -> None:
        self.split, self.settings = split, settings
        self.encoder, self.cache = HashedWords(), Cache()
        self.calm: dict[tuple[object, str, int, bool], StreamRun] = {}

    def against(self, attack: Attack, arm: str, seed: int) -> tuple[float, float, float]:
        """gain, cost while learning, and cost on questions after it, with the memory frozen."""
        without = self.without(attack, arm, seed)
        run = self._run(attacked(attack, split=self.split, seed=seed), arm, seed, attack.read)
        late = np.arange(len(run.success)) >= int(attack.begins * len(run.success))
        said, clean = late & run.triggered, late & ~run.triggered
        gain = float(np.nanmean(run.target[said]) - np.nanmean(without.target[said]))
        cost = float(without.success[clean].mean() - run.success[clean].mean())
        return gain, cost, float(without.held_out.mean() - run.held_out.mean())

    def without(self, attack: Attack, arm: str, seed: int) -> StreamRun:
        """The run that nobody attacks."""
        key = (attack.calm, arm, seed, attack.read)
        if key not in self.calm:
            calm = hidden_rules(attack.calm, split=self.split, seed=seed)
            self.calm[key] = self._run(calm, arm, seed, attack.read)
        return self.calm[key]

    def _run(self, stream: Stream, arm: str, seed: int, read: bool) -> StreamRun:
        base, _, change = arm.partition("+")
        agent = ReadingAgent() if read else LinearAgent()
        return run_stream(
            stream,
            method_for(base, dict(self.settings), seed),
            agent,
            self.encoder,
            seed=seed,
            control=change or "learn",
            cache=self.cache,
            measure_regret=False,
        )


def measured(runs: Runs, attack: Attack, arms: Sequence[str], seeds: int) -> list[dict[str, Any]]:
    """One record per arm, with 95 % intervals over seeds."""
    found = []
    for arm in arms:
        values = np.array([runs.against(attack, arm, seed) for seed in range(seeds)])
        calm = float(np.mean([runs.without(attack, arm, seed).success.mean() for seed in range(seeds)]))
        record: dict[str, Any] = {"attack": attack.attack, "arm": arm, "clusters": seeds, "calm_success": calm}
        for name, each in zip(("gain", "cost", "frozen_cost"), values.T, strict=True):
            record[name] = {"mean": float(each.mean())}
            if seeds >= 3:
                interval = paired_difference(f"{attack.attack}, {arm}: {name}", each.tolist())
                record[name] |= {"low": interval.low, "high": interval.high}
        found.append(record)
    rival = next((each for each in found if each["arm"] == RIVAL), None)
    if rival is not None:
        for record in found:
            record["allowed"] = max(GAIN, SHARE * rival["gain"]["mean"])
            record["holds"] = record["gain"]["mean"] <= record["allowed"] and record["cost"]["mean"] <= COST
    return found


def naming(runs: Runs, family: str, seeds: int) -> dict[str, Any]:
    """What it costs on a stream that nobody attacks that its people are told apart: success without names less that with them."""
    calm = FAMILIES[family]
    nobody = Attack(family, calm, lambda *_: {}, 0.0)
    people = Attack(family, replace(calm, people=PEOPLE), lambda *_: {}, 0.0)
    record: dict[str, Any] = {"stream": family, "people": PEOPLE, "clusters": seeds}
    for name in ("success", "held_out"):
        one, other = (
            [float(getattr(runs.without(each, METHOD, seed), name).mean()) for seed in range(seeds)]
            for each in (nobody, people)
        )
        record[name] = {"mean": float(np.mean(np.subtract(one, other))), "unnamed": float(np.mean(one))}
        if seeds >= 3:
            interval = paired_difference(f"names on {family}: {name}", np.subtract(one, other).tolist())
            record[name] |= {"low": interval.low, "high": interval.high}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--split", default="held-out")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--tuned", type=Path, default=Path(__file__).parent / "tuned.json")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    tuned = json.loads(asked.tuned.read_text()).get("one-step", {})
    settings = {name: dict(each["settings"]) for name, each in tuned.items() if name in (RIVAL, METHOD)}
    runs, arms = Runs(asked.split, settings), asked.arms.split(",")
    names = asked.attacks.split(",")
    records: list[dict[str, Any]] = []
    for name in names:
        records += measured(runs, ATTACKS[name], arms, asked.seeds)
        for each in records[-len(arms) :]:
            print(
                f"{name} {each['arm']}: gain {each['gain']['mean']:+.3f}, cost {each['cost']['mean']:+.3f}", flush=True
            )
    named = [naming(runs, name, asked.seeds) for name in CALM]
    found = {
        "plan": {"split": asked.split, "arms": arms, "attacks": names, "settings": settings},
        "seeds": asked.seeds,
        "people": ATTACKS[names[0]].calm.people,
        "tasks": ATTACKS[names[0]].calm.length,
        "versions": {
            "python": platform.python_version(),
            **{each: version(each) for each in ("keepworth", "numpy", "scipy")},
        },
        "claims": {"ordinary": records, "naming": named},
    }
    asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
