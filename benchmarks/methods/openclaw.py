"""Writes the evidence of OpenClaw-RL: a model of 135M parameters learns the habit of a simulated user.

    python -m benchmarks.methods.openclaw --rows rows.jsonl [--seeds 3]

A run has one user and one seed: 16 updates of 6 sessions. Measured are first answers to 32 questions that were not trained on,
greedy, before and after 8 and 16 updates: the share that follows the user's habit. The arms see the same sessions' beginnings.
`permuted` learns from both signals with votes permuted among the answers of an update, and with another user's hints. Headroom:
`hinted` is the untrained model that is told the habit with each question.
The user `brief` is followed by chance now and then (19 % of 32 training questions, drawn at the temperature of training), `lists`
never (0 of 32): there votes alone have nothing to go by.
Rows are written as they come, and a run that is in the file is not run again.

Tuning: one run of `brief`, without the demand that an answer names what was asked about, at learning rates of 1e-3 (every answer
followed the habit from update 9 on) and 4e-3 (one word was left from update 4 on, hence the demand).
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.methods.write import arm, begin, gap, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import read, spread
from keepworth.base.line_file import read_lines
from keepworth.base.model_files import ModelKind, path_of
from keepworth.methods.recipes import openclaw_rl as openclaw
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Group
from keepworth.training.collect.sources import Source
from keepworth.training.hooks import Hooks
from keepworth.training.run_folder import RunFolder
from keepworth.training.system import Measured, System
from keepworth.training.watch.progress import Progress
from keepworth.worlds.driver import play

ARMS, PERMUTED, HINTED, STEPS = ("both", "directive", "evaluative"), "permuted", "hinted", (0, 8, 16)
USERS = ("brief", "lists")
COMMON = {"precision": "bf16", "threads": 1, "tasks_per_step": 6, "max_tokens": 14, "checkpoint_every": 100}


class Permuted(Source):
    """Votes change places among the answers of an update, and hints are another user's."""

    name, replays = PERMUTED, False

    def __init__(self, seed: int, hint: str) -> None:
        self._seed, self._hint = seed, hint

    def review(self, groups: list[Group], step: int) -> list[Group]:
        samples = [group.episodes[0] for group in groups]
        votes = random.Random(f"{self._seed}/{step}").sample([sample.rewards for sample in samples], len(samples))
        reviewed = []
        for group, sample, vote in zip(groups, samples, votes, strict=True):
            hints = tuple(replace(item, text=self._hint) for item in sample.shown)
            reviewed.append(replace(group, episodes=(replace(sample, rewards=vote, shown=hints),)))
        return reviewed


def curve(user: str, name: str, seed: int, **settings: Any) -> dict[str, float]:
    """The share of held-out answers that follow the user's habit, by updates."""
    signals = "both" if name == PERMUTED else name
    config = openclaw.Config(**{**COMMON, "user": user, "seed": seed, "signals": signals, **settings})
    system = openclaw.system(config)
    (test,) = system.test.values()
    held_out = [*system.dev.tasks, *test.tasks]
    ways = {"": test.ways[""]}
    other = USERS[(USERS.index(user) + 1) % len(USERS)]
    sources = (Permuted(seed, openclaw.USERS[other].wants),) if name == PERMUTED else ()
    hooks = Hooks(regroup=system.hooks.regroup, sources=sources)
    with tempfile.TemporaryDirectory() as folder:
        with RunFolder.create(Path(folder) / "run", {"recipe": "openclaw_rl", **config.model_dump(mode="json")}) as run:
            replace(system, dev=Measured(held_out, ways), test={}, hooks=hooks).learn(config, run, Progress())
        return {str(row["step"]): float(row["mean"]) for row in run.evals() if row["split"] == "dev"}


def share_when_hinted(user: str) -> float:
    """The same share of the untrained model that is told the habit with each question."""
    config = openclaw.Config(**COMMON, user=user)
    model = InProcessModel.load(path_of(config.model, kind=ModelKind.LANGUAGE), precision="bf16")
    return share_of_answers(model, openclaw.system(config), HINTED)


def share_of_answers(model: InProcessModel, system: System, way: str = "") -> float:
    """The share of held-out answers, greedy, that follow the habit."""
    (test,) = system.test.values()
    groups = play(model, [*system.dev.tasks, *test.tasks], test.ways[way], temperature=0.0, limits=system.limits)
    return sum(group.episodes[0].reward for group in groups) / len(groups)


def measure(path: Path, seeds: Sequence[int], users: Sequence[str], arms: Sequence[str], **settings: Any) -> None:
    """Whatever is not yet in the file of rows, seed by seed."""
    done = {tuple(row["run"]) for row in read_lines(path)}
    runs = [(HINTED, user, -1) for user in users]
    runs += [(name, user, seed) for seed in seeds for user in users for name in arms]
    for name, user, seed in runs:
        if (name, user, seed) not in done:
            shares = {"0": share_when_hinted(user)} if name == HINTED else curve(user, name, seed, **settings)
            with path.open("a") as file:
                file.write(json.dumps({"run": [name, user, seed], "shares": shares}) + "\n")
            print(name, user, seed, shares, flush=True)


def conclude(rows: Sequence[dict[str, Any]]) -> None:
    """Writes the evidence of the runs that are there with all arms."""
    shares = {tuple(row["run"]): row["shares"] for row in rows}
    every = (*ARMS, PERMUTED)
    complete = {(user, seed) for _, user, seed in shares if all((name, user, seed) in shares for name in every)}
    runs = sorted(complete)
    if not runs:
        raise SystemExit("No run has all arms yet: give the same command without --arms.")
    seeds = {seed for _, seed in runs}

    def at(name: str, step: int, only: str = "") -> list[float]:
        return [shares[name, user, seed][str(step)] for user, seed in runs if only in ("", user)]

    def arms_of(user: str) -> Iterator[dict[str, Any]]:
        yield arm(f"{user}: before", at("both", 0, user))
        for name in every:
            for step in STEPS[1:]:
                yield arm(f"{user}: {name}, {step} updates", at(name, step, user))
        yield arm(f"{user}: hinted, untrained", [shares[HINTED, user, -1]["0"]] * len(at("both", 0, user)))

    means = {name: [(a + b) / 2 for a, b in zip(at(name, 8), at(name, 16), strict=True)] for name in every}
    gaps = [gap(f"both minus {name}", means["both"], means[name]) for name in (PERMUTED, "directive", "evaluative")]
    gaps += [gap(f"{name} minus {PERMUTED}", means[name], means[PERMUTED]) for name in ARMS[1:]]
    gaps += [gap(f"{name} after 16 minus before", at(name, 16), at(name, 0)) for name in every]

    def by_seed(user: str, name: str) -> str:
        columns = (at(name, step, user) for step in STEPS[1:])
        return f"{name} {' then '.join(', '.join(f'{share:.2f}' for share in column) for column in columns)}"

    users = sorted({user for user, _ in runs})
    shares_said = (
        f"of `{user}` {at('both', 0, user)[0]:.2f} before; {'; '.join(by_seed(user, name) for name in every)}"
        for user in users
    )
    write(
        "openclaw_rl",
        f"python -m benchmarks.methods.openclaw --rows rows.jsonl --seeds {len(seeds)}",
        f"Share that follows the habit, by seeds, after 8 then after 16 updates: {'. And '.join(shares_said)}. "
        f"Over all runs {'; '.join(worded(row, 2, ' ') for row in gaps[:5])}.{_of_traffic()}",
        model="SmolLM2-135M-Instruct, bf16, LoRA of rank 16",
        n=len(runs),
        seeds=len(seeds),
        unit="share of 32 held-out first answers that follow the habit, greedy, by runs (a user and a seed); "
        "comparisons of the first five are of the mean after 8 and after 16 updates of 6 sessions",
        arms=[row for user in users for row in arms_of(user)],
        comparisons=gaps,
        controls=["permuted votes with another user's hints", "before any update", "the habit told in the prompt"],
    )


def _of_traffic() -> str:
    """What serving while learning cost the same user, as its file says."""
    record = read("serving/while_learning")
    seeds = len({run["seed"] for run in record["runs"]})
    means = "; ".join(f"{row['name']} {row['mean']:.2f}" for row in record["arms"])
    return (
        f" Served while it learns ({seeds} seed{'s' * (seeds > 1)}): {means}; {worded(record['comparison'], 2, ' ')}; "
        f"an answer takes {spread(record['latency_with_learning_over_without'])} times as long as without."
    )


def main() -> None:
    parser = measuring(arguments(__doc__, json=False))
    parser.add_argument(
        "--rows", type=Path, required=True, help="where runs are written, and read that were made before"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="from 1000 on: tuning, which writes no evidence")
    parser.add_argument("--users", nargs="*", choices=USERS, default=USERS)
    parser.add_argument("--arms", nargs="*", choices=(*ARMS, PERMUTED), default=(*ARMS, PERMUTED))
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = parser.parse_args()
    begin(options, options.seeds)
    seeds = range(options.first, options.first + options.seeds)
    measure(options.rows, seeds, options.users, options.arms, learning_rate=options.learning_rate)
    if options.first < 1000:
        conclude(list(read_lines(options.rows)))


if __name__ == "__main__":
    main()
