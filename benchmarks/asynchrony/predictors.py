"""Can the length of an answer be told from its prompt, before it is drawn, and what is that worth to a schedule?

From recorded answers (`benchmarks.asynchrony.answers`). Every predictor learns online, one finished group after the other, and is
asked about tasks that it has not seen: five folds of the tasks, each told by a predictor that learned from the other four.
Counted are

* the share of the variance of log length that lies between prompts;
* the rank correlation (Spearman) of single answers with what was told of them, beside an estimate of the most that a predictor
  which sees only the prompt can reach;
* the decoding steps of updates of 8 groups, longest first by each prediction: the share that is closed of the gap between the
  order in which the answers came and longest first by the lengths themselves; and the same where every answer gets its slot
  beforehand;
* how large that share becomes in log-normal lengths, of which more and more lies between prompts.

Writes predictors.json after every part, and goes on with what its predictors have told; delete it to begin anew.

    python -m benchmarks.asynchrony.predictors
"""

from __future__ import annotations

import heapq
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import rankdata
from torch import nn

from benchmarks.asynchrony import answers as recordings
from benchmarks.asynchrony.digits import DigitDecoder
from benchmarks.asynchrony.lengths import LONGEST, MEDIAN
from benchmarks.asynchrony.orders import Answer, Order, decoding_steps
from benchmarks.asynchrony.setting import HERE, small, write
from benchmarks.speed.setting import machine
from benchmarks.tables import takes_nothing
from keepworth.episodes.model import Tokens
from keepworth.learning.collect.pipeline import ExpectedLengths

PATH = HERE / "predictors.json"
FOLDS, RESAMPLES = 5, 1000
GROUPS, SLOTS = 8, (8, 16, 32)
"""Of an update; each group has all recorded answers of one prompt."""
PASSES = 100
"""Over tasks drawn with replacement, for the intervals of steps."""
SHARES, SIGMA, UPDATES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0), 1.0, 300
"""In lengths that are made up: of the variance of log length between prompts; its root; and how many updates of each."""
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt whose answers are recorded. hidden: the model's last hidden state at its end. place: its sentence vector."""

    key: str
    kind: str
    text: str
    prompt: Tokens
    hidden: Vector
    place: Vector
    lengths: tuple[int, ...]


class Predictor(Protocol):
    def learn(self, task: Asked) -> None:
        """A group of this task has ended."""
        ...

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        """Tokens that an answer is expected to take; only their order counts."""
        ...


# -- predictors -----------------------------------------------------------------------------------------------------


class TaskMean:
    """What `order="longest_first"` uses. Of a task that it never saw it says the mean of all, so it says the same of each."""

    def __init__(self) -> None:
        self._lengths = ExpectedLengths()

    def learn(self, task: Asked) -> None:
        for length in task.lengths:
            self._lengths.learn(task.key, length)

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        return [self._lengths.of(task.key) for task in tasks]


class KindMean:
    """The running mean of the kind of prompt, for whoever knows it."""

    def __init__(self) -> None:
        self._lengths: dict[str, list[int]] = {}

    def learn(self, task: Asked) -> None:
        self._lengths.setdefault(task.kind, []).extend(task.lengths)

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        return [statistics.fmean(self._lengths[task.kind]) for task in tasks]


class Ridge:
    """Linear in features of the prompt, on the logarithm of the length; the penalty is the best by leaving one task out. Fitted
    anew from what was learned, which gives what updates after each group would give."""

    def __init__(self, features: Callable[[Asked], Vector]) -> None:
        self._features = features
        self._rows: list[Vector] = []
        self._targets: list[float] = []

    def learn(self, task: Asked) -> None:
        self._rows.append(self._features(task))
        self._targets.append(log_mean(task))

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        x, y = np.array(self._rows), np.array(self._targets)
        centre, spread = x.mean(0), x.std(0) + 1e-9
        fits = [ridge((x - centre) / spread, y, penalty) for penalty in 10.0 ** np.arange(-1, 6)]
        weights, _ = min(fits, key=lambda fit: float((fit[1] ** 2).mean()))
        asked = (np.array([self._features(task) for task in tasks]) - centre) / spread
        return [float(each) for each in np.exp(asked @ weights + y.mean())]


def ridge(x: Vector, y: Vector, penalty: float) -> tuple[Vector, Vector]:
    """Weights for centred features x [T, F], and the error of each row where it is left out of the fit."""
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    kept, error = s**2 / (s**2 + penalty), y - y.mean()
    fitted = u @ (kept * (u.T @ error))
    leverage = (u**2 * kept).sum(1) + 1 / len(y)
    return vt.T @ (s / (s**2 + penalty) * (u.T @ error)), (error - fitted) / (1 - leverage)


def log_mean(task: Asked) -> float:
    return statistics.fmean(map(math.log, task.lengths))


def counts(task: Asked) -> Vector:
    """What a statistician would count in a prompt."""
    text, words = task.text, task.text.split()
    found = (
        len(task.prompt),
        len(words),
        sum(each.isdigit() for each in text),
        sum(each.isupper() for each in text),
        text.count("?"),
        text.count("\n"),
        text.count(","),
        sum(text.count(each) for each in ".!?"),
    )
    return np.array([math.log1p(each) for each in found] + [len("".join(words)) / max(1, len(words))])


class Neighbours:
    """The mean of the most alike prompts, by MiniLM's vectors; how many is the best by leaving one task out."""

    def __init__(self) -> None:
        self._tasks: list[Asked] = []

    def learn(self, task: Asked) -> None:
        self._tasks.append(task)

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        known = np.array([each.place for each in self._tasks])
        y = np.array([log_mean(each) for each in self._tasks])
        among = known @ known.T
        np.fill_diagonal(among, -np.inf)
        errors = {k: float(((_nearest(among, y, k) - y) ** 2).mean()) for k in (3, 5, 10, 20, 40)}
        best = min(errors, key=lambda k: errors[k])
        told = _nearest(np.array([each.place for each in tasks]) @ known.T, y, best)
        return [float(each) for each in np.exp(told)]


def _nearest(likeness: Vector, values: Vector, k: int) -> Vector:
    found: Vector = values[np.argsort(-likeness, axis=1)[:, :k]].mean(1)
    return found


STEPS = 4
"""Of gradient after each group, of both networks."""


class Bins:
    """A classifier of two layers over log-spaced bins of length, from the model's own last hidden state, which reading the prompt
    leaves behind anyway. Its steps are on answers drawn from all it has seen."""

    COUNT, ROWS = 12, 64

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._random = random.Random(seed)
        self._edges = np.exp(np.linspace(0, math.log(recordings.LONGEST), self.COUNT))
        self._seen: list[tuple[torch.Tensor, int]] = []
        self._net: nn.Sequential | None = None

    def learn(self, task: Asked) -> None:
        hidden = torch.tensor(task.hidden, dtype=torch.float32)
        if self._net is None:
            width = len(hidden)
            self._net = nn.Sequential(
                nn.LayerNorm(width, elementwise_affine=False),
                nn.Linear(width, 64),
                nn.GELU(),
                nn.Dropout(0.2),
                nn.Linear(64, self.COUNT),
            )
            self._optimiser = torch.optim.AdamW(self._net.parameters(), lr=1e-3, weight_decay=0.1)
        bins = np.searchsorted(self._edges, task.lengths).clip(max=self.COUNT - 1)
        self._seen += [(hidden, int(each)) for each in bins]
        self._net.train()
        for _ in range(STEPS):
            rows = self._random.choices(self._seen, k=self.ROWS)
            logits = self._net(torch.stack([hidden for hidden, _ in rows]))
            loss = nn.functional.cross_entropy(logits, torch.tensor([each for _, each in rows]))
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()

    @torch.inference_mode()
    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        assert self._net is not None
        self._net.eval()
        rows = torch.tensor(np.array([task.hidden for task in tasks]), dtype=torch.float32)
        told = self._net(rows).softmax(-1) @ torch.tensor(self._edges, dtype=torch.float32)
        return [float(each) for each in told]


class Digits:
    """`DigitDecoder`; the median of 64 drawn numbers."""

    ROWS, DRAWN = 16, 64

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._random = random.Random(seed)
        self._net = DigitDecoder()
        self._optimiser = torch.optim.AdamW(self._net.parameters(), lr=1e-3, weight_decay=0.1)
        self._seen: list[tuple[Tokens, int]] = []
        self._draws = torch.Generator().manual_seed(seed)

    def learn(self, task: Asked) -> None:
        self._seen += [(task.prompt, length) for length in task.lengths]
        self._net.train()
        for _ in range(STEPS):
            rows = self._random.choices(self._seen, k=self.ROWS)
            loss = self._net.loss([prompt for prompt, _ in rows], [length for _, length in rows])
            self._optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
            self._optimiser.step()

    def expect(self, tasks: Sequence[Asked]) -> list[float]:
        return [statistics.median(self._net.numbers(task.prompt, self.DRAWN, self._draws)) for task in tasks]


TASK, KIND = "running mean per task", "running mean of the kind"
PREDICTORS: dict[str, Callable[[int], Predictor]] = {
    TASK: lambda seed: TaskMean(),
    KIND: lambda seed: KindMean(),
    "ridge on counts": lambda seed: Ridge(counts),
    "nearest prompts": lambda seed: Neighbours(),
    "ridge on the hidden state": lambda seed: Ridge(lambda task: task.hidden),
    "classifier on the hidden state": Bins,
    "digit decoder on the prompt": Digits,
}
OWN, CEILING = "mean of the prompt known", "ceiling, estimated"
CAME, KNOWN = "as they came", "lengths known"


# -- how well -------------------------------------------------------------------------------------------------------


def gathered() -> list[Asked]:
    """Every prompt with recorded answers, with what is known of it before it is answered."""
    from keepworth.models.encoders import encoder

    recorded, written, minilm, model = recordings.recorded(), recordings.texts(), encoder("minilm"), small()
    found = []
    for kind, prompts in recordings.prompts(model).items():
        keys = [key for key in prompts if key in recorded[kind]]
        places = minilm.encode([written[kind][key] for key in keys]).astype(np.float64)
        for key, place in zip(keys, places, strict=True):
            prompt = prompts[key]
            with torch.inference_mode():
                hidden = model.hidden_states(torch.tensor([prompt]), torch.arange(len(prompt))[None], None, None)
            last: Vector = hidden[0, -1].double().numpy()
            found.append(Asked(key, kind, written[kind][key], prompt, last, place, tuple(recorded[kind][key])))
    return found


def folds(tasks: Sequence[Asked]) -> list[list[Asked]]:
    """Every fifth of a fixed shuffle."""
    shuffled = random.Random(0).sample(list(tasks), len(tasks))
    return [shuffled[fold::FOLDS] for fold in range(FOLDS)]


def unseen(tasks: Sequence[Asked], name: str) -> tuple[dict[str, float], float]:
    """What predictor `name` says of each task, from the fold that holds it; processor seconds to learn one group."""
    told: dict[str, float] = {}
    learned, groups, parts = 0.0, 0, folds(tasks)
    for fold, held in enumerate(parts):
        predictor = PREDICTORS[name](fold)
        others = [task for part in parts if part is not held for task in part]
        begun = time.process_time()
        for task in random.Random(fold).sample(others, len(others)):
            predictor.learn(task)
        learned += time.process_time() - begun
        groups += len(others)
        told |= dict(zip((task.key for task in held), predictor.expect(held), strict=True))
    return told, learned / groups


def between(rows: Vector) -> float:
    """The share of the variance that lies between prompts (one-way random effects). rows: [T, M]."""
    within = float(rows.var(1, ddof=1).mean())
    among = max(0.0, float(rows.mean(1).var(ddof=1)) - within / rows.shape[1])
    return among / (among + within)


def ceiling(lengths: Vector) -> float:
    """The correlation of ranks with their prompt's true mean rank, from the variance between prompts. lengths: [T, M]."""
    return math.sqrt(between(rankdata(lengths).reshape(lengths.shape)))


def correlation(told: Vector, lengths: Vector) -> float:
    """Spearman; 0 where everything is told to be the same."""
    if np.ptp(told) == 0 or np.ptp(lengths) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(told), rankdata(lengths))[0, 1])


def spearman(tasks: Sequence[Asked], told: Mapping[str, Vector]) -> dict[str, Any]:
    """Of single answers with what was told of them: of all kinds mixed, and the mean over kinds alone, each the mean over folds,
    because what two predictors say cannot be ranked together; and what is above the mean of the kind. Last the ceiling, over all
    folds. told: [T, M] by name."""
    at = {task.key: index for index, task in enumerate(tasks)}
    kinds = sorted({task.kind for task in tasks})
    cells = [[np.array([at[t.key] for t in part if t.kind == kind]) for kind in kinds] for part in folds(tasks)]
    lengths = np.array([task.lengths for task in tasks], dtype=np.float64)

    def of(chosen: Sequence[Sequence[npt.NDArray[np.int64]]]) -> Vector:
        """[names, mixed | alone | above the mean of the kind, mixed]"""
        found = []
        for values in told.values():
            rows = [np.concatenate(part) for part in chosen]
            mixed = statistics.fmean(correlation(values[r].ravel(), lengths[r].ravel()) for r in rows)
            alone = [correlation(values[r].ravel(), lengths[r].ravel()) for part in chosen for r in part]
            found.append((mixed, statistics.fmean(alone)))
        of_kinds = [lengths[np.concatenate(each)] for each in zip(*chosen, strict=True)]
        found.append((ceiling(np.concatenate(of_kinds)), statistics.fmean(map(ceiling, of_kinds))))
        both = np.array(found)
        return np.column_stack([both, both[:, 0] - both[list(told).index(KIND), 0]])

    generator = np.random.default_rng(0)
    drawn = [of([[generator.choice(cell, len(cell)) for cell in part] for part in cells]) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    mean = of(cells)
    scopes = ("mixed", "one kind at a time", "mixed, above the mean of the kind")
    return {
        name: {
            scope: {"mean": float(mean[i, j]), "low": float(low[i, j]), "high": float(high[i, j])}
            for j, scope in enumerate(scopes)
        }
        for i, name in enumerate((*told, CEILING))
    }


# -- what for -------------------------------------------------------------------------------------------------------


def planned_steps(answers: Sequence[Answer], slots: int, order: Order) -> int:
    """Steps where every answer gets its slot beforehand: longest first, each in the slot that is expected to be free first."""
    ends = [(0.0, slot, 0) for slot in range(slots)]
    for answer in sorted(answers, key=lambda each: (-order(each), each.place)):
        expected, slot, steps = ends[0]
        heapq.heapreplace(ends, (expected + order(answer), slot, steps + answer.tokens))
    return max(steps for _, _, steps in ends)


def update_of(groups: Sequence[Sequence[int]]) -> list[Answer]:
    """The answers of an update, a group after the other. groups: the lengths of each; `task` says which group."""
    pairs = [(str(group), length) for group, own in enumerate(groups) for length in own]
    return [Answer(place, group, length) for place, (group, length) in enumerate(pairs)]


def steps_of(groups: Sequence[Sequence[int]], slots: int, told: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Decoding steps of an update by each order. told: what each predictor says of each group."""
    answers = update_of(groups)
    running = ExpectedLengths()
    running.load({"": statistics.fmean(answer.tokens for answer in answers)})
    found = {
        CAME: decoding_steps(answers, slots, lambda a: 0),
        KNOWN: decoding_steps(answers, slots, lambda a: a.tokens),
        TASK: decoding_steps(answers, slots, lambda a: running.of(a.task), lambda a: running.learn(a.task, a.tokens)),
        f"{KNOWN}, planned": planned_steps(answers, slots, lambda a: a.tokens),
    }
    for name, own in told.items():
        if name != TASK:  # of tasks that are new to it, it learns within the update
            found[name] = decoding_steps(answers, slots, lambda a, own=own: own[int(a.task)])
            found[f"{name}, planned"] = planned_steps(answers, slots, lambda a, own=own: own[int(a.task)])
    return found


def schedules(pools: Sequence[Sequence[Asked]], told: Mapping[str, Mapping[str, float]], slots: int) -> dict[str, Any]:
    """Of passes over the tasks of each pool, drawn with replacement: all groups of an update are of one pool."""
    generator, passes = random.Random(0), []
    for _ in range(PASSES):
        total: dict[str, int] = {}
        for pool in pools:
            drawn = generator.choices(pool, k=len(pool))
            for first in range(0, len(drawn) - GROUPS + 1, GROUPS):
                chosen = drawn[first : first + GROUPS]
                of_groups = {name: [own[task.key] for task in chosen] for name, own in told.items()}
                add(total, steps_of([task.lengths for task in chosen], slots, of_groups))
        passes.append(total)
    return closed(passes, passes)


def add(total: dict[str, int], steps: Mapping[str, int]) -> None:
    for name, count in steps.items():
        total[name] = total.get(name, 0) + count


def closed(steps: Sequence[Mapping[str, int]], resampled: Iterable[Mapping[str, int]]) -> dict[str, Any]:
    """Steps beside those as they came, and the share of the gap to the lengths known that each order closes, with 95 % intervals
    over `resampled`."""
    total = {name: sum(each[name] for each in steps) for name in steps[0]}

    def share(own: Mapping[str, int], name: str) -> float:
        return (own[CAME] - own[name]) / (own[CAME] - own[KNOWN])

    again = list(resampled)
    found = {}
    for name in total:
        low, high = np.quantile([share(each, name) for each in again], (0.025, 0.975))
        found[name] = {
            "steps": total[name] / total[CAME],
            "closed": share(total, name),
            "low": float(low),
            "high": float(high),
        }
    return found


def made_up(share: float) -> dict[str, Any]:
    """Log-normal lengths as in `benchmarks.asynchrony.lengths`, with this share of the variance of their logarithm between
    prompts, whose means are known."""
    generator = np.random.default_rng(0)
    members = len(next(iter(recordings.recorded()["problem"].values())))
    prompts = generator.standard_normal((UPDATES, GROUPS, 1))
    own = generator.standard_normal((UPDATES, GROUPS, members))
    logs = math.log(MEDIAN) + SIGMA * (math.sqrt(share) * prompts + math.sqrt(1 - share) * own)
    lengths = np.exp(logs).round().clip(1, LONGEST).astype(int)
    expected = np.exp(SIGMA * math.sqrt(share) * prompts[..., 0])
    found: dict[str, Any] = {
        "spearman": correlation(np.repeat(expected.ravel(), members), lengths.ravel().astype(np.float64))
    }
    for slots in SLOTS:
        steps = [
            steps_of(each, slots, {OWN: told}) for each, told in zip(lengths.tolist(), expected.tolist(), strict=True)
        ]
        again = []
        for _ in range(RESAMPLES):
            total: dict[str, int] = {}
            for index in generator.integers(UPDATES, size=UPDATES):
                add(total, steps[index])
            again.append(total)
        found[str(slots)] = closed(steps, again)
    return found


def main() -> None:
    takes_nothing(__doc__)
    torch.set_num_threads(1)
    setting = machine(1)
    tasks = gathered()
    by_kind = {kind: [task for task in tasks if task.kind == kind] for kind in recordings.KINDS}
    result: dict[str, Any] = {
        "machine": setting,
        "longest": recordings.LONGEST,
        "tasks": len(tasks),
        "samples": len(tasks[0].lengths),
        "folds": FOLDS,
        "groups": GROUPS,
        "kinds": {
            kind: {
                "tasks": len(own),
                "median": statistics.median(length for task in own for length in task.lengths),
                "cut": statistics.fmean(length == recordings.LONGEST for task in own for length in task.lengths),
                "between_prompts": between(np.log([task.lengths for task in own])),
            }
            for kind, own in {**by_kind, "all kinds mixed": tasks}.items()
        },
    }
    begun = time.process_time()

    def done(name: str) -> None:
        write(PATH.name, result)
        print(f"{name:40} {time.process_time() - begun:6.1f} processor seconds so far", flush=True)

    before = json.loads(PATH.read_text()) if PATH.exists() else {}
    told = result["told"] = before.get("told", {})
    seconds = result["cpu_seconds_to_learn_a_group"] = before.get("cpu_seconds_to_learn_a_group", {})
    for name in PREDICTORS:
        if told.get(name, {}).keys() != {task.key for task in tasks}:
            told[name], seconds[name] = unseen(tasks, name)
            done(name)
    told = {**told, OWN: {task.key: statistics.fmean(task.lengths) for task in tasks}}
    members = len(tasks[0].lengths)
    values = {name: np.repeat([[own[task.key]] for task in tasks], members, 1) for name, own in told.items()}
    result["spearman"] = spearman(tasks, values)
    done("spearman")
    result["steps"] = {"mixed": {}, "one kind at a time": {}}
    for scope, pools in (("mixed", [tasks]), ("one kind at a time", list(by_kind.values()))):
        for slots in SLOTS:
            result["steps"][scope][str(slots)] = schedules(pools, told, slots)
            done(f"{scope}, {slots} slots")
    result["made_up"] = {"median": MEDIAN, "sigma": SIGMA, "longest": LONGEST, "updates": UPDATES, "shares": {}}
    for share in SHARES:
        result["made_up"]["shares"][str(share)] = made_up(share)
        done(f"{share} of the variance between prompts")


if __name__ == "__main__":
    main()
