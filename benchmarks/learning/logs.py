"""Train on logs without labels, and test on another data set's questions.

    python -m benchmarks.learning.logs --data FOLDER [--steps 16] [--questions 40] [--seeds 0,1,2] [--runs runs]

The logs are the sessions of LongMemEval's training questions, as a file of conversations: its cloze and next-sentence tasks
are trained on, through the front door: by imitation of their answers, and by reinforcement from the model as it is. Tested
before and after, greedily: questions of LoCoMo (read from FOLDER or KEEPWORTH_DATA, never shipped) whose short answer stands
in their evidence, over the whole conversation as memory; and tasks of the logs' own held-out sessions. Controls: no memory,
another question's memory, the evidence. The numbers go to `logs.json`: token F1, gains paired by question, intervals that
resample questions (LoCoMo: two conversations) and sets of sessions (logs).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.episodes.episode import Task
from keepworth.evaluation.statistics import estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.recipes.front_door import train
from keepworth.recipes.logs import SETTINGS, log_of
from keepworth.tasks.competing import covered
from keepworth.tasks.locomo import locomo
from keepworth.tasks.longmemeval import training_sessions
from keepworth.tasks.metrics import tokens
from keepworth.tasks.own import OwnTasks
from keepworth.tasks.splits import draw_order
from keepworth.tasks.unlabelled import LogReport, unlabelled

HERE = Path(__file__).parent
WAYS = ("", "no_memory", "another_memory", "oracle_evidence")
METHODS: dict[str, dict[str, Any]] = {
    "supervised": {"group_size": 2},  # tasks an update, all different, for each of tasks_per_step
    "reinforce": {"group_size": 6, "temperature": 0.7},
}
LONGEST = 5
"""Words of an answer."""
DEV, OWN = 4, 16
"""Held-out tasks of the logs: measured while training, and before and after."""
DISTRACTORS = 2
"""Other sessions in the memory of a task of the logs."""


def written(path: Path) -> Path:
    """The training sessions as a log of conversations, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        {
            "session": session.id,
            "time": session.date,
            "messages": [{"role": turn.speaker, "content": turn.text} for turn in session.turns],
        }
        for session in training_sessions()
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def locomo_questions(data: Path | None, count: int) -> list[Task]:
    """Answerable ones with a short answer that stands in their evidence, drawn, in order of conversation."""
    found = [
        task
        for task in locomo("test", data=data, protocol="wide", categories=("single-hop",))
        if len(tokens(task.answers[0])) <= LONGEST
        and covered(task.answers[0], [t.text for session in task.sessions for t in session.turns if t.evidence])
    ]
    drawn = sorted(found, key=lambda task: draw_order(0, task.key))[:count]
    return sorted(drawn, key=lambda task: (task.tags["conversation"], task.key))


def mixed(source: Path, data: Path | None, count: int) -> tuple[OwnTasks, LogReport]:
    made = unlabelled(log_of(source), ("cloze", "next"), distractors=DISTRACTORS)
    tasks, asked = made.tasks, locomo_questions(data, count)
    by_split = {
        "train": tasks.by_split["train"],
        "dev": tasks.by_split["dev"][:DEV],
        "test": (*asked, *tasks.by_split["test"][:OWN]),
    }
    cluster = {**tasks.cluster, **{task.key: task.key for task in asked}}  # two conversations are too few to resample
    return replace(tasks, name="logs", by_split=by_split, cluster=cluster), made.report


def scores(run: RunFolder, way: str, when: str) -> dict[str, float]:
    arm = when if not way else way if when == "trained" else f"{way}_{when}"
    return {each.episode.task: each.episode.reward for each in run.episodes(arm=f"logs,_test-{arm}")}


def rows_of(method: str, runs: Sequence[RunFolder], tasks: OwnTasks) -> list[dict[str, Any]]:
    """Levels and gains of each set of test tasks, averaged over seeds first."""
    sets = {"LoCoMo questions": "locomo/", "cloze of held-out sessions": "cloze/", "next of held-out sessions": "next/"}
    rows = []
    for name, prefix in sets.items():
        keys = [task.key for task in tasks.by_split["test"] if task.key.startswith(prefix)]
        clusters = [tasks.cluster[key] for key in keys]
        for way in WAYS:
            both = {}
            for when in ("untrained", "trained"):
                found = [scores(run, way, when) for run in runs]
                both[when] = [sum(each[key] for each in found) / len(found) for key in keys]
            gain = [after - before for before, after in zip(both["untrained"], both["trained"], strict=True)]
            for what, values in (*both.items(), ("gain", gain)):
                e = estimate(values, clusters=clusters)
                row = {
                    "method": method,
                    "test": name,
                    "way": way or "memory",
                    "what": what,
                    "mean": e.mean,
                    "low": e.low,
                    "high": e.high,
                }
                rows.append({**row, "n": len(keys), "clusters": len(set(clusters)), "seeds": len(runs)})
    return rows


def told(run: RunFolder, tasks: OwnTasks) -> dict[str, dict[str, int]]:
    """Of the tasks for the next sentence, how often each number is right, and how often an answer begins with it."""
    asked = {task.key: task.answers[0] for task in tasks.by_split["test"] if task.key.startswith("next/")}
    said: dict[str, Counter[str]] = {"right": Counter(asked.values())}
    for when in ("untrained", "trained"):
        episodes = (each.episode for each in run.episodes(arm=f"logs,_test-{when}"))
        said[when] = Counter(each.answer.strip()[:1] for each in episodes if each.task in asked)
    return {name: dict(sorted(counts.items())) for name, counts in said.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="where LoCoMo is; KEEPWORTH_DATA if not given")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--threads", type=int, default=0, help="0 measures which count is fastest")
    parser.add_argument("--output", type=Path, default=HERE / "logs.json")
    options = parser.parse_args()
    tasks, report = mixed(written(options.runs / "longmemeval_sessions.jsonl"), options.data, options.questions)
    settings: dict[str, Any] = {
        **SETTINGS,
        "steps": options.steps,
        "tasks_per_step": 4,
        "recall": 2,
        "evaluate_every": options.steps,
        "checkpoint_every": 4,
        "questions": None,
        "threads": options.threads,
    }
    rows, rewards, numbers = [], {}, {}
    for method, own in METHODS.items():
        runs = []
        for seed in map(int, options.seeds.split(",")):
            more = {**settings, **own, "method": method, "seed": seed}
            done = train(tasks, name=f"logs-{method}-{seed}", runs=options.runs, **more)
            runs.append(RunFolder.open(done.path))
        rows += rows_of(method, runs, tasks)
        numbers[method] = [told(run, tasks) for run in runs]
        rewards[method] = [[line.get("reward") for line in run.metrics()] for run in runs]
    how = f"--steps {options.steps} --questions {options.questions} --seeds {options.seeds}"
    record = {
        "what": "cloze and next-sentence training on LongMemEval's training sessions, tested on LoCoMo",
        "command": f"python -m benchmarks.learning.logs {how}",
        "rows": rows,
        "reward_by_step": rewards,
        "next_by_seed": numbers,
        "report": report.to_json(),
        "settings": settings,
        "methods": METHODS,
        "versions": versions(),
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    for row in record["rows"]:
        interval = f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        print(f"{row['method']:11} {row['test']:28} {row['way']:16} {row['what']:10} {interval} n={row['n']}")


if __name__ == "__main__":
    main()
