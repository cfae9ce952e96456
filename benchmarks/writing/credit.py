"""Forms of credit for a writer, side by side: one small policy, one world, equal numbers of readings.

    python -m benchmarks.writing.credit [--world "4 of 16"] [--seeds 0 1 2]

The policy gives each statement a key, drawn around its score; the facts with the highest keys stay. Each key is a
write of its own, so that every form of credit can reach it:

* episode: every write gets the answer's reward, minus the mean of its group of 8 banks of the same stream;
* attribution (Fine-Mem): half of the reward is shared by all writes, half goes to the items that the reader was
  shown;
* local (Memory-R2's re-rolls): one write of an anchor is drawn again, all else equal, and compared with the others
  so drawn;
* local + global: half of the readings for each;
* leave one out: each item that stayed gets what the answer loses without it;
* worth (ours): a ridge regression of reward on what stayed, over all readings so far: the measured usefulness of an
  item, as the reward of its write; the policy writes what is worth most, with noise;
* worth then episode (ours): the first 1,000 readings are of banks drawn evenly and give a worth to begin with; the rest
  is learned with the reward of the episode.

Readings are the scarce thing (an answer of the frozen reader costs more than everything else here), so the curves are
over readings. While it learns, an answer is replayed: the token F1 of a real reading of the same stream with the same
evidence in the bank. What is learned is measured in evidence kept, on folds that it was not learned from; the final
banks are read by the real reader.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from benchmarks.writing.arms import Floats, stays
from benchmarks.writing.setting import BANKS, FOLDS, WORLDS, Reads, Setting, random_banks, setting
from keepworth.evaluation.statistics import paired_difference, pooled_estimate
from keepworth.learning.run_folder import versions
from keepworth.memory.policy.importance import LoggedBank, WorthFit
from keepworth.tasks.splits import draw_order

OUT = Path(__file__).parent / "credit.json"
READINGS = 6000
"""Readings that a policy may learn from."""
STREAMS, MEMBERS = 16, 8
DECAY = 1e-3
LOOKS = tuple(range(0, READINGS + 1, 500))


class Replay:
    """Answers as in the log of evenly drawn banks: of a bank, the F1 of a reading of the same stream with the same evidence, the
    same one each time. What was read later, to measure, is not in it."""

    def __init__(self, world: Setting, reads: Reads) -> None:
        self.world = world
        self.by: dict[tuple[int, tuple[int, ...]], list[float]] = defaultdict(list)
        pooled: dict[int, list[float]] = defaultdict(list)
        for number, stay in random_banks(world, BANKS):
            score = reads.known.get((world.name, world.streams[number].key, stay))
            if score is not None:
                own = self.evidence(number, stay)
                self.by[number, own].append(score)
                pooled[min(1, len(own))].append(score)
        self.pooled = {some: pooled[some] for some in (0, 1)}
        self.asked = 0

    def evidence(self, number: int, stay: Sequence[int]) -> tuple[int, ...]:
        marks = self.world.streams[number].evidence
        return tuple(fact for fact in sorted(stay) if marks[fact])

    def __call__(self, number: int, stay: Sequence[int]) -> float:
        self.asked += 1
        own = self.evidence(number, stay)
        scores = self.by.get((number, own)) or self.pooled[min(1, len(own))]
        return scores[int(draw_order(self.world.streams[number].key, *sorted(stay)), 16) % len(scores)]


class Adam:
    def __init__(self, size: int, rate: float) -> None:
        self.rate, self.first, self.second, self.steps = rate, np.zeros(size), np.zeros(size), 0

    def step(self, gradient: Floats) -> Floats:
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        return (
            self.rate * (self.first / (1 - 0.9**self.steps)) / (np.sqrt(self.second / (1 - 0.999**self.steps)) + 1e-8)
        )


def stayed(keys: Floats, budget: int) -> tuple[int, ...]:
    return tuple(sorted(int(place) for place in np.argsort(-keys)[:budget]))


def slope(keys: Floats, scores: Floats) -> Floats:
    """The derivative of the log-density of Gumbel keys by their scores."""
    return 1.0 - np.exp(-np.clip(keys - scores, -4.0, None))


Credit = Callable[[Setting, Replay, int, Floats, np.random.Generator], Floats]
"""(world, reader, stream, scores, draws) to the gradient by the scores [length]; it reads as often as it needs."""


def of_episode(world: Setting, reader: Replay, number: int, scores: Floats, draw: np.random.Generator) -> Floats:
    keys = scores + draw.gumbel(size=(MEMBERS, world.length))
    rewards = np.array([reader(number, stayed(each, world.budget)) for each in keys])
    return ((rewards - rewards.mean())[:, None] * slope(keys, scores)).mean(axis=0)


def of_attribution(world: Setting, reader: Replay, number: int, scores: Floats, draw: np.random.Generator) -> Floats:
    keys = scores + draw.gumbel(size=(MEMBERS, world.length))
    given = np.zeros(keys.shape)
    for member, each in enumerate(keys):
        stay = stayed(each, world.budget)
        reward = reader(number, stay)
        given[member] = 0.5 * reward / world.length
        given[member, list(stay)] += 0.5 * reward / world.budget
    return ((given - given.mean(axis=0)) * slope(keys, scores)).mean(axis=0) * world.length


def of_rerolls(
    world: Setting, reader: Replay, number: int, scores: Floats, draw: np.random.Generator, members: int = MEMBERS
) -> Floats:
    """Two writes of one anchor, each drawn again `members / 2` times."""
    anchor, gradient = scores + draw.gumbel(size=world.length), np.zeros(world.length)
    facts = draw.choice(world.length, size=2, replace=False)
    for fact in facts:
        keys = np.repeat(anchor[None], members // 2, axis=0)
        keys[:, fact] = scores[fact] + draw.gumbel(size=members // 2)
        rewards = np.array([reader(number, stayed(each, world.budget)) for each in keys])
        gradient[fact] = ((rewards - rewards.mean()) * slope(keys[:, fact], scores[fact])).mean()
    return gradient * world.length / len(facts)


def of_both(world: Setting, reader: Replay, number: int, scores: Floats, draw: np.random.Generator) -> Floats:
    keys = scores + draw.gumbel(size=(MEMBERS // 2, world.length))
    rewards = np.array([reader(number, stayed(each, world.budget)) for each in keys])
    whole = ((rewards - rewards.mean())[:, None] * slope(keys, scores)).mean(axis=0)
    return whole + of_rerolls(world, reader, number, scores, draw, MEMBERS // 2)


def of_leaving_out(world: Setting, reader: Replay, number: int, scores: Floats, draw: np.random.Generator) -> Floats:
    """Two banks of the stream: what stayed is credited with what the answer loses without it; each bank costs 1 + budget."""
    gradient, banks = np.zeros(world.length), 2
    for _ in range(banks):
        keys = scores + draw.gumbel(size=world.length)
        stay = stayed(keys, world.budget)
        reward = reader(number, stay)
        for fact in stay:
            gain = reward - reader(number, tuple(other for other in stay if other != fact))
            gradient[fact] += gain * slope(keys, scores)[fact]
    return gradient / banks


GRADIENTS: dict[str, Credit] = {
    "episode": of_episode,
    "attribution": of_attribution,
    "local": of_rerolls,
    "local + global": of_both,
    "leave one out": of_leaving_out,
}
FORMS = (*GRADIENTS, "worth", "worth then episode")
EVENLY = 1000
"""Readings of evenly drawn banks that `worth then episode` begins with."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """rate: of a step of the policy gradient. ridge: of the worth; sharpness: how many units of Gumbel noise a worth of 1 stands
    for while the policy explores."""

    rate: float = 0.03
    ridge: float = 30.0
    sharpness: float = 10.0


def learned(
    world: Setting, reader: Replay, form: str, learn: Sequence[int], seed: int, tuned: Tuned
) -> dict[int, Floats]:
    """The weights after each number of readings of `LOOKS`."""
    draw = np.random.default_rng((seed, FORMS.index(form)))
    weights, found = np.zeros(world.vectors.shape[1]), dict[int, Floats]()
    adam, fit, begun = Adam(len(weights), tuned.rate), WorthFit(len(weights)), reader.asked
    looks = list(LOOKS)
    while looks:
        while looks and reader.asked - begun >= looks[0]:
            found[looks.pop(0)] = weights.copy()
        gradient = np.zeros(len(weights))
        for number in draw.choice(learn, size=STREAMS, replace=False):
            matrix = world.vectors[world.rows[number]]
            scores = matrix @ weights
            begins = form == "worth then episode" and reader.asked - begun < EVENLY
            if form == "worth" or begins:
                keys = scores * (not begins) + draw.gumbel(size=(MEMBERS, world.length))
                banks = [stayed(each, world.budget) for each in keys]
                fit.add([LoggedBank(matrix, stay, reader(int(number), stay), "") for stay in banks])
            else:
                credit = GRADIENTS.get(form, of_episode)
                gradient += matrix.T @ credit(world, reader, int(number), scores, draw)
        if form == "worth" or begins:
            weights = fit.weights(tuned.ridge) * tuned.sharpness
        else:
            weights = weights + adam.step(gradient / STREAMS - DECAY * weights)
    return found


GRADIENT_SETTINGS = tuple(Tuned(rate) for rate in (0.01, 0.03, 0.1))
WORTH_SETTINGS = tuple(Tuned(0.03, ridge, sharpness) for ridge in (30.0, 100.0, 300.0) for sharpness in (3.0, 10.0))


def settings_of(form: str) -> tuple[Tuned, ...]:
    return WORTH_SETTINGS if "worth" in form else GRADIENT_SETTINGS


@cache
def tuned_for(name: str, form: str, fold: int) -> Tuned:
    """The settings whose policy is read best on folds that it did not learn from, none of them `fold`."""
    world, reads = setting(name), Reads.on_file()
    learn, _ = world.apart(fold)
    judge = Replay(world, reads)
    value: dict[Tuned, list[float]] = defaultdict(list)
    for inner in sorted(set(world.folds[learn].tolist())):
        own = [number for number in learn if world.folds[number] != inner]
        held = [number for number in learn if world.folds[number] == inner]
        for each in settings_of(form):
            weights = learned(world, Replay(world, reads), form, own, 0, each)[LOOKS[-1]]
            value[each] += [judge(number, stay) for number, stay in kept_after(world, weights, held).items()]
    return max(settings_of(form), key=lambda each: float(np.mean(value[each])))


def kept_after(world: Setting, weights: Floats, numbers: Sequence[int]) -> dict[int, tuple[int, ...]]:
    return stays(world, lambda number: world.vectors[world.rows[number]] @ weights, numbers)


def curve(
    world: Setting, reads: Reads, form: str, seed: int, permuted: bool = False
) -> tuple[dict[int, list[float]], list[float], list[tuple[int, ...]]]:
    """Evidence kept at each look, by stream; the final banks' replayed F1; what stays in the end."""
    evidence = {look: [0.0] * len(world.streams) for look in LOOKS}
    final = [0.0] * len(world.streams)
    banks: list[tuple[int, ...]] = [()] * len(world.streams)
    for fold in range(FOLDS):
        learn, test = world.apart(fold)
        reader = Shuffled(world, reads, seed) if permuted else Replay(world, reads)
        judge = Replay(world, reads)
        for look, weights in learned(world, reader, form, learn, seed, tuned_for(world.name, form, fold)).items():
            for number, stay in kept_after(world, weights, test).items():
                evidence[look][number] = world.evidence(number, stay)
                if look == LOOKS[-1]:
                    final[number], banks[number] = judge(number, stay), stay
    return evidence, final, banks


class Shuffled(Replay):
    """Rewards that belong to another bank: nothing can be learned from them."""

    def __init__(self, world: Setting, reads: Reads, seed: int) -> None:
        super().__init__(world, reads)
        self.every = sorted(score for scores in self.by.values() for score in scores)
        self.seed = seed

    def __call__(self, number: int, stay: Sequence[int]) -> float:
        self.asked += 1
        place = int(draw_order("shuffled", self.seed, self.world.streams[number].key, *sorted(stay)), 16)
        return self.every[place % len(self.every)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--world", choices=WORLDS, default="4 of 16")
    options = parser.parse_args()
    world, reads = setting(options.world), Reads.on_file()
    rows: list[dict[str, Any]] = []
    kept: dict[str, list[float]] = {}
    for form in (*FORMS, "worth, rewards permuted"):
        plain, permuted = form.partition(",")[0], "," in form
        chosen = [asdict(tuned_for(world.name, plain, fold)) for fold in range(FOLDS)]
        runs = [curve(world, reads, plain, seed, permuted) for seed in options.seeds]
        by_look = {look: np.mean([run[0][look] for run in runs], axis=0) for look in LOOKS}
        final = by_look[LOOKS[-1]]
        kept[form] = list(final)
        f1 = np.mean([run[1] for run in runs], axis=0)
        begin, end = float(by_look[0].mean()), float(final.mean())
        near = (
            next(look for look in LOOKS if by_look[look].mean() >= begin + 0.9 * (end - begin)) if end > begin else None
        )
        found, answer = (pooled_estimate(list(each), world.clusters) for each in (final, f1))
        rows.append({
            "form": form, "tuned": chosen, "seeds": len(runs), "evidence": found.mean, "low": found.low, "high": found.high,
            "f1_replayed": answer.mean, "f1_low": answer.low, "f1_high": answer.high, "clusters": found.n,
            "readings_to_90": near, "curve": {str(look): float(each.mean()) for look, each in by_look.items()},
            "by_seed": [float(np.mean(run[0][LOOKS[-1]])) for run in runs],
        })  # fmt: skip
        print(form, f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] f1 {answer.mean:.3f}", near, flush=True)
    against = []
    for form in (*FORMS[1:], "worth, rewards permuted"):
        gap = paired_difference(
            form, [a - b for a, b in zip(kept[form], kept["episode"], strict=True)], clusters=world.clusters
        )
        against.append(
            {"form": form, "minus": "episode", "difference": gap.difference, "low": gap.low, "high": gap.high}
        )
    record = json.loads(OUT.read_text()) if OUT.exists() else {"worlds": {}}
    record["worlds"][world.name] = {
        "streams": len(world.streams), "readings": READINGS, "rows": rows, "against": against, "banks_in_log": BANKS,
        "versions": versions(),
    }  # fmt: skip
    record["command"] = "python -m benchmarks.writing.credit"
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    print(markdown(("credit", "evidence kept", "readings to 90 %"),
                   [(row["form"], f"{row['evidence']:.3f}", row["readings_to_90"]) for row in rows]))  # fmt: skip


if __name__ == "__main__":
    main()
