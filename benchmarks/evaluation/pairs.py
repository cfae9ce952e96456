"""Every system on every benchmark: one row each, of questions drawn evenly, or the reason why there is none.

    python -m benchmarks.evaluation.pairs --data DATA --python RIVALS/bin/python [--only gsm8k] [--reader-runs runs]

What evidence was found, where a benchmark marks it; where none is marked, what the reader answered: the answerer that `keepworth
demo` trains, the run `demo` in --reader-runs. Samples are small: the rows say that each pair works and about where it stands, and
the intervals how little that is. Larger tables are those of `benchmarks.evaluation.run`. `pairs.json` is written after each
benchmark, and those that are in it are left alone; runs/eval/pairs holds what was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.evaluation.rivals import by_command, by_name

OUT = Path(__file__).parent / "pairs.json"
OURS = ("none", "random", "latest", "full", "bm25", "dense", "search", "keepworth", "policy:mixture")
RULES = ("success-counter", "utility-average", "lesson-dropout")
THEIRS = ("mem0", "langgraph", "bm25s")
FOUND = {
    "longmemeval": 40,
    "longmemeval+50": 10,
    "longmemeval+500": 100,
    "locomo": 200,
    "locomo-corrected": 200,
    "bfcl-memory": 100,
    "hotpotqa": 60,
    "hotpotqa-pooled": 200,
    "2wiki": 60,
    "2wiki-pooled": 200,
    "timebench": 60,
    "timebench-pooled": 200,
    "prefeval": 40,
    "needles": 100,
    "order-recall": 60,
    "event-book": 100,
    "compositions": 120,
    "compositions-3": 120,
}
"""Questions of those where evidence is marked."""
READ = {"timebench-choices": 12, "time-ranges": 12, "gsm8k": 24, "svamp": 24, "math500": 12, "banking77": 12}
"""Questions of those where the answer alone is scored."""
SHIPPED = ("longmemeval", "needles", "order-recall", "event-book", "compositions", "svamp")
MEASURES = ("turn@5", "session@5", "shown")
NO_ROW = {
    "benchmarks": {
        "longmemeval-file": "the files are not given with the package; loaded by path, its shape is tested on made files",
        "longmemeval-v2": "the same",
        "memoryagentbench": "the same",
        "memoryarena": "the same",
        "lifelongagentbench": "the same",
        "tau2-bench": "the same; tasks that act need the user's endpoint",
    },
    "systems": {
        "reme": "its package cannot stand beside those of the other rivals, and its counters move only where rewards are told: "
        "its rule is in the rows as `success-counter`",
        "command:WORDS": "the user's own program",
        "endpoint:URL": "the user's own agent",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/eval/pairs"))
    parser.add_argument("--reader-runs", type=Path, default=Path("runs"), help="the folder that holds the run `demo`")
    parser.add_argument("--only", nargs="*", default=[*FOUND, *READ], choices=[*FOUND, *READ])
    options = parser.parse_args()
    kept = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {"rows": {}}
    for name in options.only:
        if name in kept["rows"]:
            continue
        words = [name, *OURS, *RULES, *THEIRS, "--limit", str((FOUND | READ)[name])]
        reader = ["--reader", "none"] if name in FOUND else ["--reader", "run:demo", "--runs", str(options.reader_runs)]
        own = [] if name.startswith(SHIPPED) else ["--data", options.data]
        folder = options.runs / name
        command = [sys.executable, "-m", "keepworth", "eval", "run", *by_command(words, options.python), *reader, *own]
        subprocess.run([*command, "--out", str(folder)], check=True)
        summary = json.loads(by_name((folder / "summary.json").read_text(encoding="utf-8"), options.python))
        kept["rows"][name] = row(summary)
        kept |= {"no row": NO_ROW, "versions": summary["versions"]}
        kept["command"] = "python -m benchmarks.evaluation.pairs --data DATA --python PYTHON"
        OUT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def row(summary: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one benchmark."""
    systems = {}
    for arm, values in summary["arms"].items():
        cells = {name: values["evidence"][name] for name in MEASURES if values["evidence"].get(name)}
        cells |= {name: values["scores"][name] for name in ("score",) if values["scores"].get(name)}
        if values["questions"] and values["does not fit"] == values["questions"]:
            systems[arm] = {"does not fit": values["questions"]}
            continue
        systems[arm] = {
            **{name: {key: short(value) for key, value in cell.items()} for name, cell in cells.items()},
            "failed": values["failed"],
            "tokens": round(values["shown tokens"]),
        }
    named = ("questions", "of", "split", "data", "tokens", "reader", "encoder")
    return {**{name: summary[name] for name in named}, "systems": systems}


def short(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)


if __name__ == "__main__":
    main()
