"""Train a recipe over its seeds, and put its test questions side by side, with intervals.

    python -m benchmarks.learning.recipes strings|overwrite_reading|arithmetic|tool_policy

Runs that are finished are read, not repeated; unfinished ones continue. The numbers go to `<recipe>.json` beside this file.
`strings` and `overwrite_reading` have a supervised arm: from the same start, the same number of updates imitates as many
right answers as reinforcement samples, at the recipe's rate for imitation. `tool_policy` is `arithmetic` with a calculator
and the story in a memory that is searched; beside the numbers stand how often the model was called for an answer, and the
same question without tools. A level is the mean of each question's value averaged over seeds; a gain is the paired difference
of two arms on the same questions.
Intervals are 95 % bootstrap intervals over what is generalised over: compositions for `strings`, each counting once; questions
elsewhere. They are about the models that were trained, not about further seeds: those stand beside them one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learning.rules import best_of
from benchmarks.record import arguments, save
from benchmarks.tables import markdown, spread
from keepworth.evaluation.statistics import estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.learning.watch.progress import progress_for
from keepworth.methods.benchmarks._arithmetic import problems
from keepworth.methods.recipes._strings import composition_of
from keepworth.recipes.front_door import find_recipe
from keepworth.recipes.system import CALLS, term_value
from keepworth.tasks.metrics import tokens

HERE = Path(__file__).parent
TERMS = {"strings": "same_words", "overwrite_reading": "token_f1", "arithmetic": "expression", "tool_policy": "numeric"}
"""The reward term whose value is reported."""
WITH: dict[str, tuple[str, dict[str, Any]]] = {
    "tool_policy": (
        "arithmetic",
        {"answer": "calculator", "stories": 8, "steps": 40, "questions": 150, "temperature": 0.7},
    ),
}
"""A recipe with settings that are not its defaults, under a name of its own."""
METRICS = {"strings": "accuracy", "overwrite_reading": "f1", "arithmetic": "accuracy", "tool_policy": "accuracy"}
"""What that term is called among a run's measurements."""
BESIDE: dict[str, dict[str, dict[str, Any]]] = {
    "strings": {"supervised": {"method": "supervised", "learning_rate": 1e-3}},
    "overwrite_reading": {"supervised": {"method": "supervised", "learning_rate": 5e-4}},
    "memory_r1": {"supervised": {"method": "supervised", "steps": 42}},
}
"""Arms that are trained beside reinforcement, and what they are configured with. Of `memory_r1`, see `benchmarks.answerer.arms`:
so many steps make as many token passes as its 45 of reinforcement, which trains only on groups whose rewards differ but must
sample all."""
BEFORE = {
    **{name: ("untrained", "imitated", *arms) for name, arms in BESIDE.items()},
    "tool_policy": ("untrained", "no_tool", "no_tool_untrained"),
}
"""Arms that the trained one is compared with; the untrained model elsewhere."""
UNITS: dict[str, Callable[[str], str]] = {"strings": composition_of}
"""From a task's key to what is generalised over; the question itself elsewhere."""


def finished(recipe: str, seed: int, runs: Path, threads: int, arm: str = "reinforce") -> RunFolder:
    """The run of one seed with the recipe's defaults, trained now if it is not there."""
    called, settings = WITH.get(recipe, (recipe, {}))
    module = find_recipe(called)
    other = BESIDE[recipe][arm] if arm != "reinforce" else {}
    config = module.Config(seed=seed, threads=threads, **settings, **other)
    record = {"recipe": called, **config.model_dump(mode="json")}
    name = f"{recipe}-{seed}" if arm == "reinforce" else f"{recipe}-{arm}-{seed}"
    with RunFolder.create(runs / name, record) as run:
        if run.result() is None:
            module.train(config, run, progress_for())
    return run


def measured_arms(run: RunFolder) -> list[tuple[str, str]]:
    """(test set, arm) of everything measured on test questions, in order."""
    return list(dict.fromkeys((str(row["split"]), str(row["arm"])) for row in run.evals() if row["split"] != "dev"))


def scores(run: RunFolder, split: str, arm: str, term: str) -> dict[str, float]:
    """The value of every question in the last measurement of an arm."""
    stored = run.episodes(arm=f"{split}-{arm}".replace(" ", "_"))
    return {episode.episode.task: term_value(episode.episode, term) for episode in stored}


Arms = dict[str, list[RunFolder]]
"""The runs of each arm that was trained, one a seed."""


def by_seed(runs: Arms, split: str, arm: str, term: str) -> list[dict[str, float]]:
    """Each question's value in every seed. Raises ValueError where seeds were asked different questions."""
    of_arm, name = (runs[arm], "trained") if arm in runs else (runs["reinforce"], arm)
    every = [scores(run, split, name, term) for run in of_arm]
    if any(values.keys() != every[0].keys() for values in every):
        raise ValueError(f"the seeds were asked different questions: {split}, {arm}")
    return every


def averaged(every: list[dict[str, float]]) -> dict[str, float]:
    return {task: sum(values[task] for values in every) / len(every) for task in every[0]}


def written_of(runs: Arms) -> dict[str, Any]:
    """Whether the memory that an answer was given from held the answer: what reward has done to the writing itself."""
    held: dict[str, dict[str, float]] = {}
    for arm in (*BEFORE["overwrite_reading"], "trained"):
        of_arm, name = (runs[arm], "trained") if arm in runs else (runs["reinforce"], arm)
        of_runs = []
        for run in of_arm:
            levels = {}
            for stored in run.episodes(arm=f"test questions-{name}".replace(" ", "_")):
                episode = stored.episode
                memory = " ".join(tokens(episode.segments[-2].text))
                gold = " ".join(tokens(episode.expected[0]))
                levels[episode.task] = float(f" {gold} " in f" {memory} ")
            of_runs.append(levels)
        held[arm] = averaged(of_runs)
    gains = [
        row(differences(held["trained"], held[before]), None, over=before) for before in BEFORE["overwrite_reading"]
    ]
    return {"written": [row(values, None, arm=arm) for arm, values in held.items()], "written_gains": gains}


def reckoning(runs: Arms, split: str, arm: str) -> dict[str, float]:
    """Of all seeds' episodes: which share used the calculator, and which share of those, and of the others, was right."""
    right: dict[bool, list[float]] = {True: [], False: []}
    for run in runs["reinforce"]:
        for stored in run.episodes(arm=f"{split}-{arm}".replace(" ", "_")):
            used = any(segment.text.strip().startswith("calculate") for segment in stored.episode.segments)
            right[used].append(term_value(stored.episode, TERMS["tool_policy"]))
    shares = {used: sum(values) / max(1, len(values)) for used, values in right.items()}
    used, others = len(right[True]), len(right[False])
    return {"reckoned": used / (used + others), "right_of_those": shares[True], "right_of_others": shares[False]}


def ruled(trained: dict[str, float]) -> dict[str, Any]:
    """The simple rule that is right most often of these very questions, told the whole problem, and how far above it the trained
    policy is."""
    every = problems("svamp")
    asked = {problem.id: (problem.question, float(problem.answer)) for problem in every}
    learned = [asked[problem.id] for problem in every if problem.split == "train"]
    ids = {task: task.rsplit("/", 1)[-1] for task in trained}
    name, right = best_of(learned, [asked[ids[task]] for task in trained])
    values = dict(zip(trained, right, strict=True))
    return {**row(values, None, name=name), "trained_minus": row(differences(trained, values), None)}


def differences(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {task: after[task] - before[task] for task in after}


def row(values: dict[str, float], unit: Callable[[str], str] | None, **more: Any) -> dict[str, Any]:
    clusters = [unit(task) for task in values] if unit else None
    mean = estimate(list(values.values()), clusters=clusters)
    return {**more, "mean": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n, "questions": len(values)}


def mean_of(values: dict[str, float], unit: Callable[[str], str] | None) -> float:
    return float(row(values, unit)["mean"])


def record_of(recipe: str, runs: Arms) -> dict[str, Any]:
    """Levels of every arm on every test set, gains over the arms before and beside it, and what a step cost."""
    term, unit, first = TERMS[recipe], UNITS.get(recipe), runs["reinforce"]
    measured = measured_arms(first[0])
    splits = list(dict.fromkeys(split for split, _ in measured))
    others = [arm for arm in runs if arm != "reinforce"]
    measured = [
        pair
        for split in splits
        for pair in (*(p for p in measured if p[0] == split), *((split, arm) for arm in others))
    ]
    levels, gains = [], []
    for split, arm in measured:
        every = by_seed(runs, split, arm, term)
        of_seeds = [mean_of(values, unit) for values in every]
        levels.append(row(averaged(every), unit, test=split, arm=arm, seeds=len(every), by_seed=of_seeds))
    for split in splits:
        after = by_seed(runs, split, "trained", term)
        for before in BEFORE.get(recipe, ("untrained",)):
            base = by_seed(runs, split, before, term)
            of_seeds = [mean_of(differences(one, other), unit) for one, other in zip(after, base, strict=True)]
            gap = differences(averaged(after), averaged(base))
            gains.append(row(gap, unit, test=split, over=before, seeds=len(after), by_seed=of_seeds))
    metric = METRICS[recipe]
    dev = [
        [(line["step"], line["mean"]) for line in run.evals() if line["split"] == "dev" and line["metric"] == metric]
        for run in first
    ]
    more = written_of(runs) if recipe == "overwrite_reading" else {}
    if recipe == "tool_policy":
        more["reckoning"] = [
            {"arm": arm, **reckoning(runs, split, arm)} for split, arm in measured if "no_tool" not in arm
        ]
        more["rule"] = ruled(averaged(by_seed(runs, splits[0], "trained", term)))
        calls = {arm: by_seed(runs, split, arm, CALLS) for split, arm in measured}
        more["calls"] = [
            row(averaged(series), unit, arm=arm, by_seed=[mean_of(values, unit) for values in series])
            for arm, series in calls.items()
        ]
    return {
        "what": f"{term} of the recipe {recipe}, greedy, test questions read once before and once after",
        "interval": f"95 % bootstrap over {'compositions' if unit else 'questions'}",
        "levels": levels,
        "gains": gains,
        "dev_by_seed": dev,
        **more,
        "reward_by_step": [[line["reward"] for line in run.metrics()] for run in first],
        "sampled_by_step": [
            [line.get("curriculum/reward_sampled", line["reward"]) for line in run.metrics()] for run in first
        ],
        "tokens": {
            arm: [sum(line["response_length"] * line["episodes"] for line in run.metrics()) for run in of_arm]
            for arm, of_arm in runs.items()
        },
        "groups_by_step": {
            arm: [[line["groups"] for line in run.metrics()] for run in of_arm] for arm, of_arm in runs.items()
        },
        "versions": versions(),
        "configuration": first[0].config,
        **{f"configuration_{arm}": runs[arm][0].config for arm in others},
        "environment": first[0].environment,
    }


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("recipe", choices=sorted(TERMS))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0, help="0 measures which count is fastest")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    seeds = [int(part) for part in options.seeds.split(",")]
    arms = ("reinforce", *BESIDE.get(options.recipe, ()))
    runs: Arms = {arm: [] for arm in arms}
    for seed in seeds:
        for arm in arms:
            runs[arm].append(finished(options.recipe, seed, options.runs, options.threads, arm))
    record = record_of(options.recipe, runs)
    save((options.output or HERE / f"{options.recipe}.json"), record)
    for key, name in (("levels", "arm"), ("gains", "over")):
        rows = [(row["test"], row[name], spread(row), row["n"], row["seeds"]) for row in record[key]]
        print(markdown((f"{key}, test", name, "mean [95 %]", "n", "seeds"), rows, left=2) + "\n")


if __name__ == "__main__":
    main()
