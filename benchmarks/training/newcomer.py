"""From a file of JSON lines and a reward in Python to a report and a folder that plain transformers loads: timed, step by step.

    python -m benchmarks.training.newcomer [--steps 30] [--seed 0] [--plain PYTHON] [--json FILE]

The rows are SVAMP's word problems (arXiv 2103.07191, MIT), asked which of four operations solves each; right is what the
set names. Beside the result stand chance and the most frequent operation. The script that is timed is `SCRIPT` below, run as a
program of its own. --plain: a Python with transformers and without keepworth, which loads the folder and answers the same
prompts; its greedy answers are compared with those of the trained run, token by token.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from keepworth.evaluation.statistics import estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.tasks.arithmetic import problems

OPERATIONS = ("addition", "subtraction", "multiplication", "division")
SCRIPT = """\
import sys
from keepworth import train

def operation(answer, row):
    return float(answer.strip().lower().strip(".") == row["operation"])

run = train(
    "problems.jsonl",
    reward=operation,
    max_tokens=6,
    steps=int(sys.argv[1]),
    seed=int(sys.argv[2]),
    evaluate_every=10,
)
print(run)
print(run.export("operations", probe=True))
"""
PLAIN = """\
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts = sys.argv[1], json.load(sys.stdin)
try:
    import keepworth
    raise SystemExit("keepworth is installed here")
except ImportError:
    pass
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
answers = []
for messages in prompts:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    drawn = model.generate(**ids, max_new_tokens=6, do_sample=False)[0, ids["input_ids"].shape[1]:]
    answers.append(tokenizer.decode(drawn, skip_special_tokens=True).strip())
print(json.dumps(answers))
"""


ASKED = "Which operation solves the problem: addition, subtraction, multiplication or division? Answer in one word."
WORKED = (
    ("Mary had 7 pens. She lost 3 of them. How many pens does Mary have left?", "subtraction"),
    ("A box holds 6 eggs. How many eggs are there in 5 boxes?", "multiplication"),
    ("Tom has 8 toys and Ann has 9 toys. How many toys do they have together?", "addition"),
    ("12 cookies are shared by 4 children. How many cookies does each child get?", "division"),
)
"""Turns of the conversation before the question: without them a model of this size never answers in one word, and a reward that
is never earned teaches nothing."""


def rows() -> list[dict[str, Any]]:
    """One row a problem, on its side of the fixed split: a conversation, the operation that is right."""
    before: list[dict[str, str]] = [{"role": "system", "content": ASKED}]
    for question, operation in WORKED:
        before += [{"role": "user", "content": question}, {"role": "assistant", "content": operation}]
    return [
        {
            "id": each.id,
            "prompt": [*before, {"role": "user", "content": each.question}],
            "operation": each.type.removeprefix("common-"),
            "split": each.split,
        }
        for each in problems("svamp")
    ]


def measured(steps: int, seed: int, plain: str) -> dict[str, Any]:
    data = rows()
    tests = [each for each in data if each["split"] == "test"]
    most = Counter(each["operation"] for each in data if each["split"] == "train").most_common(1)[0][0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "problems.jsonl").write_text("".join(json.dumps(each) + "\n" for each in data))
        (folder / "script.py").write_text(SCRIPT)
        begun = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "script.py", str(steps), str(seed)],
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
        )
        seconds = time.perf_counter() - begun
        if done.returncode:
            raise SystemExit(f"the script failed:\n{done.stdout}")
        run = RunFolder.open(folder / "runs" / "problems")
        evals = [row for row in run.evals() if row["split"] != "dev" and row["metric"] == "operation"]
        shown = tests[:100]
        answers = {
            stored.episode.task: stored.episode.answer for stored in run.episodes() if stored.arm.endswith("-trained")
        }
        return {
            "lines": sum(bool(line.strip()) for line in SCRIPT.splitlines()),
            "seconds": round(seconds, 1),
            "steps": steps,
            "seed": seed,
            "accuracy": [{key: row[key] for key in ("arm", "mean", "low", "high", "n")} for row in evals],
            "chance": 1 / len(OPERATIONS),
            "most_frequent": {
                "operation": most,
                "mean": estimate([float(each["operation"] == most) for each in shown]).mean,
            },
            "plain": _plain(plain, folder / "operations", shown, answers) if plain else None,
            "versions": versions(),
            "load": os.getloadavg()[0],
        }


def _plain(python: str, folder: Path, shown: list[dict[str, Any]], answers: dict[str, str]) -> dict[str, Any]:
    """How many of the trained run's greedy answers another program gives with the exported folder."""
    system = next(line.split('"')[1] for line in SCRIPT.splitlines() if "system=" in line)
    prompts = [[{"role": "system", "content": system}, {"role": "user", "content": each["prompt"]}] for each in shown]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", PLAIN, str(folder)],
        input=json.dumps(prompts),
        env=clean,
        text=True,
        capture_output=True,
        check=True,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = [answers[f"problems/{each['id']}"] for each in shown]
    return {"n": len(ours), "equal": sum(one == other for one, other in zip(ours, theirs, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", default=os.environ.get("KEEPWORTH_PLAIN_PYTHON", ""))
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    found = measured(given.steps, given.seed, given.plain)
    given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
