"""Train every arm over its seeds, and put the held-out answers side by side.

    python -m benchmarks.answerer.arms [--runs runs] [--threads N] [--only reinforced,supervised]

Arms, three seeds each: `reinforced` (the claim) and `supervised` (the answer key imitated with as many token passes as
reinforcement used). Runs that are already finished are read, not repeated; unfinished ones continue. The numbers go to
`arms.json`.

The claim: every one of three seeds gains at least 0.15 token F1 over the untrained model, the mean at least 0.20, its
95 % interval lies above 0.10 (bootstrap over questions, each question's gain averaged over seeds first), and without
the right memory nothing is gained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.record import arguments, save
from keepworth.episodes import Episode
from keepworth.evaluation.statistics import MeanEstimate, estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import progress_for
from keepworth.methods.recipes import memory_r1

HERE = Path(__file__).parent
SUPERVISED_STEPS = 42
"""As many token passes as reinforcement makes in its 45 steps, which trains only on groups whose rewards differ but must
sample all: `token_passes` in the JSON holds both."""
SEEDS = (0, 1, 2)
ARMS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "reinforced": (SEEDS, {}),
    "supervised": (SEEDS, {"method": "supervised", "steps": SUPERVISED_STEPS}),
}
CONTROLS = ("no_memory", "wrong_memory", "oracle")


def finished(name: str, seed: int, settings: dict[str, Any], runs: Path, threads: int) -> RunFolder:
    """The run of one arm and seed, trained now if it is not there."""
    config = memory_r1.Config(seed=seed, threads=threads, **settings)
    record = {"recipe": "memory_r1", **config.model_dump(mode="json")}
    with RunFolder.create(runs / f"answerer-{name}-{seed}", record) as run:
        if run.result() is None:
            memory_r1.METHOD.make.train(config, run, progress_for())
    return run


def scores(run: RunFolder, arm: str) -> dict[str, float]:
    """Token F1 of every test question in the last measurement of an arm."""
    by_task: dict[str, float] = {}
    for stored in run.episodes(arm=f"test-{arm}"):
        by_task[stored.episode.task] = next(t.value for t in stored.episode.rewards if t.name == "token_f1")
    return by_task


def token_passes(run: RunFolder) -> float:
    """Token forwards of all training: one to sample or read a token, three to train on it (forward and backward).

    A prompt is computed once for its group. A group whose rewards are all equal is sampled but not trained on.
    """
    supervised = run.config.get("method") == "supervised"
    groups: dict[tuple[int, str], list[Episode]] = {}
    for stored in run.episodes(arm="train"):
        groups.setdefault((stored.step, stored.episode.task), []).append(stored.episode)
    total = 0.0
    for episodes in groups.values():
        tokens = len(episodes[0].segments[0].context) + sum(len(episode.segments[0].ids) for episode in episodes)
        trained = supervised or len({episode.reward for episode in episodes}) > 1
        total += (0 if supervised else tokens) + (3 * tokens if trained else 0)
    return total


def pooled(runs: list[RunFolder], after: str, before: str = "untrained") -> MeanEstimate:
    """Gain per question, averaged over seeds, then over questions; the interval resamples questions."""
    gains: dict[str, list[float]] = {}
    for run in runs:
        low, high = scores(run, before), scores(run, after)
        for task in high:
            gains.setdefault(task, []).append(high[task] - low[task])
    return estimate([sum(gain) / len(gain) for gain in gains.values()])


def level(runs: list[RunFolder], arm: str) -> MeanEstimate:
    values: dict[str, list[float]] = {}
    for run in runs:
        for task, value in scores(run, arm).items():
            values.setdefault(task, []).append(value)
    return estimate([sum(value) / len(value) for value in values.values()])


def as_row(name: str, value: MeanEstimate, **more: Any) -> dict[str, Any]:
    return {"arm": name, "mean": value.mean, "low": value.low, "high": value.high, "n": value.n, **more}


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0, help="0 measures which count is fastest")
    parser.add_argument("--only", default=",".join(ARMS))
    parser.add_argument("--output", type=Path, default=HERE / "arms.json")
    options = parser.parse_args()
    chosen = {name: ARMS[name] for name in options.only.split(",")}
    runs = {
        name: [finished(name, seed, settings, options.runs, options.threads) for seed in seeds]
        for name, (seeds, settings) in chosen.items()
    }
    first = next(iter(runs.values()))
    before = ("no_memory_untrained", "untrained", "wrong_memory_untrained", "oracle_untrained")
    rows = [as_row(control, level(first[:1], control), seeds=1) for control in before]
    for name, group in runs.items():
        after = {name: "trained", **{f"{name}, {control}": control for control in CONTROLS}}
        rows += [as_row(label, level(group, arm), seeds=len(group)) for label, arm in after.items()]
    gains = [
        as_row(f"{name}: {label}", pooled(group, after, before), seeds=len(group))
        for name, group in runs.items()
        for label, after, before in (
            ("with memory", "trained", "untrained"),
            ("without memory", "no_memory", "no_memory_untrained"),
            ("another question's memory", "wrong_memory", "wrong_memory_untrained"),
        )
    ]
    record: dict[str, Any] = {
        "what": "token F1 on LongMemEval extractive test questions, evidence plus distractors, 3 memories shown",
        "levels": rows,
        "gains": gains,
        "versions": versions(),
        "token_passes": {name: [token_passes(run) for run in group] for name, group in runs.items()},
        "configurations": {name: group[0].config for name, group in runs.items()},
    }
    if len(runs.get("reinforced", ())) == 3:
        record["claim"] = claim(runs["reinforced"], gains)
    save(options.output, record)
    show(record)


def claim(runs: list[RunFolder], gains: list[dict[str, Any]]) -> dict[str, Any]:
    means = [pooled([run], "trained").mean for run in runs]
    pool = next(row for row in gains if row["arm"] == "reinforced: with memory")
    flat = [row for row in gains if row["arm"].startswith("reinforced: ") and row is not pool]
    return {
        "gain_of_each_seed": means,
        "every_seed_at_least_0.15": min(means) >= 0.15,
        "mean_at_least_0.20": pool["mean"] >= 0.20,
        "interval_above_0.10": pool["low"] > 0.10,
        "controls_within_0.05_of_zero": all(abs(row["mean"]) < 0.05 for row in flat),
    }


def show(record: dict[str, Any]) -> None:
    console = Console()
    for title, key in (("Token F1", "levels"), ("Gain over the untrained model, same memory", "gains")):
        table = Table(title=title, box=None)
        for column in ("arm", "mean", "95 % interval", "questions", "seeds"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for row in record[key]:
            interval = f"[{row['low']:.2f}, {row['high']:.2f}]"
            table.add_row(row["arm"], f"{row['mean']:.3f}", interval, str(row["n"]), str(row["seeds"]))
        console.print(table)
    for name, value in record.get("claim", {}).items():
        console.print(f"{name}: {value}", highlight=False)


if __name__ == "__main__":
    main()
