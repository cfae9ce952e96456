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

from benchmarks.answerer import page
from benchmarks.learning.recipes import averaged, differences, finished, row, scores
from benchmarks.record import arguments, save
from keepworth.episodes import Episode
from keepworth.learning.run_folder import RunFolder, versions

HERE = Path(__file__).parent
SEEDS = (0, 1, 2)
ARMS = {"reinforced": "reinforce", "supervised": "supervised"}
"""As `benchmarks.learning.recipes` calls them."""
CONTROLS = ("no_memory", "wrong_memory", "oracle")


def level(runs: list[RunFolder], arm: str) -> dict[str, float]:
    """Token F1 of every test question in the last measurement of an arm, averaged over seeds."""
    return averaged([scores(run, "test", arm, "token_f1") for run in runs])


def gain(runs: list[RunFolder], after: str, before: str = "untrained") -> dict[str, float]:
    return differences(level(runs, after), level(runs, before))


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


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0, help="0 measures which count is fastest")
    parser.add_argument("--only", default=",".join(ARMS))
    parser.add_argument("--output", type=Path, default=HERE / "arms.json")
    options = parser.parse_args()
    runs = {
        name: [finished("memory_r1", seed, options.runs, options.threads, ARMS[name]) for seed in SEEDS]
        for name in options.only.split(",")
    }
    first = next(iter(runs.values()))
    before = ("no_memory_untrained", "untrained", "wrong_memory_untrained", "oracle_untrained")
    rows = [row(level(first[:1], control), None, arm=control, seeds=1) for control in before]
    for name, group in runs.items():
        after = {name: "trained", **{f"{name}, {control}": control for control in CONTROLS}}
        rows += [row(level(group, arm), None, arm=label, seeds=len(group)) for label, arm in after.items()]
    gains = [
        row(gain(group, after, before), None, arm=f"{name}: {label}", seeds=len(group))
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
    if "reinforced" in runs:
        record["claim"] = claim(runs["reinforced"], gains)
    save(options.output, record)
    print(page.arms(record))


def claim(runs: list[RunFolder], gains: list[dict[str, Any]]) -> dict[str, Any]:
    means = [row(gain([run], "trained"), None)["mean"] for run in runs]
    pool = next(row for row in gains if row["arm"] == "reinforced: with memory")
    flat = [row for row in gains if row["arm"].startswith("reinforced: ") and row is not pool]
    return {
        "gain_of_each_seed": means,
        "every_seed_at_least_0.15": min(means) >= 0.15,
        "mean_at_least_0.20": pool["mean"] >= 0.20,
        "interval_above_0.10": pool["low"] > 0.10,
        "controls_within_0.05_of_zero": all(abs(row["mean"]) < 0.05 for row in flat),
    }


if __name__ == "__main__":
    main()
