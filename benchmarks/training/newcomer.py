"""From a file of JSON lines and a reward in Python to a report and a folder that plain transformers loads: timed, step by step.

    python -m benchmarks.training.newcomer [--steps 30] [--seed 0] [--plain PYTHON] [--json FILE]

The rows are SVAMP's word problems (arXiv 2103.07191, MIT). Each asks for the arithmetic that solves it; right is what comes
to the number that the set names. Beside the result stands the best simple rule: the first two numbers of the problem with the
sign that is right most often among the rows that are trained on. The script that is timed is `SCRIPT` below, run as a program
of its own. --plain: a Python with transformers and without keepworth, which loads the folder and answers the same prompts;
its greedy answers are compared with those of the trained run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.setting import machine
from keepworth.evaluation.statistics import estimate
from keepworth.learning.run_folder import RunFolder, versions
from keepworth.models.threads import available_cores
from keepworth.tasks.arithmetic import problems

SCRIPT = """\
import re, sys
from keepworth import train

def solves(answer, row):
    said = re.match(r"[-\\d.+*/() ]*", answer.strip())[0]
    try:
        return float("**" not in said and abs(eval(said) - row["number"]) < 1e-6)
    except (SyntaxError, TypeError, ZeroDivisionError):
        return 0.0

run = train(
    "problems.jsonl",
    reward=solves,
    max_tokens=16,
    temperature=0.7,
    steps=int(sys.argv[1]),
    seed=int(sys.argv[2]),
    evaluate_every=10,
)
print(run)
print(run.export("problem-solver", probe=True))
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
    drawn = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1]:]
    answers.append(tokenizer.decode(drawn, skip_special_tokens=True).strip())
print(json.dumps(answers))
"""


ASKED = "Write the arithmetic that solves the problem, and nothing else."
WORKED = (
    ("Mary had 7 pens. She lost 3 of them. How many pens does Mary have left?", "7 - 3"),
    ("A box holds 6 eggs. How many eggs are there in 5 boxes?", "6 * 5"),
    ("Tom has 8 toys and Ann has 9 toys. How many toys do they have together?", "8 + 9"),
    ("12 cookies are shared by 4 children. How many cookies does each child get?", "12 / 4"),
)
"""Turns of the conversation before the question: without them a model of this size seldom answers with arithmetic alone, and a
reward that is never earned teaches nothing."""


def rows() -> list[dict[str, Any]]:
    """One row a problem, on its side of the fixed split: a conversation, the number that is right."""
    before: list[dict[str, str]] = [{"role": "system", "content": ASKED}]
    for question, solution in WORKED:
        before += [{"role": "user", "content": question}, {"role": "assistant", "content": solution}]
    return [
        {
            "id": each.id,
            "prompt": [*before, {"role": "user", "content": each.question}],
            "number": float(each.answer),
            "split": each.split,
        }
        for each in problems("svamp")
    ]


RULES: dict[str, Callable[[float, float], float]] = {
    "first + second": lambda one, two: one + two,
    "first - second": lambda one, two: one - two,
    "second - first": lambda one, two: two - one,
    "first * second": lambda one, two: one * two,
    "first / second": lambda one, two: one / two if two else 0.0,
    "second / first": lambda one, two: two / one if one else 0.0,
}


def ruled(row: Mapping[str, Any], rule: str) -> float:
    """Whether a rule on the first two numbers of the problem comes to the right one."""
    return solved(row["prompt"][-1]["content"], row["number"], rule)


def solved(problem: str, number: float, rule: str) -> float:
    numbers = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", problem)]
    return float(len(numbers) > 1 and abs(RULES[rule](*numbers[:2]) - number) < 1e-6)


def measured(steps: int, seed: int, plain: str) -> dict[str, Any]:
    data = rows()
    tests = [each for each in data if each["split"] == "test"]
    rule = max(RULES, key=lambda name: sum(ruled(each, name) for each in data if each["split"] == "train"))
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
        evals = [row for row in run.evals() if row["split"] != "dev" and row["metric"] == "solves"]
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
            "rule": {"name": rule, "mean": estimate([ruled(each, rule) for each in shown]).mean},
            "plain": _plain(plain, folder / "problem-solver", shown, answers) if plain else None,
            "versions": versions(),
            "processor": machine(available_cores())["processor"],
            "load": os.getloadavg()[0],
        }


def _plain(python: str, folder: Path, shown: list[dict[str, Any]], answers: dict[str, str]) -> dict[str, Any]:
    """How many of the trained run's greedy answers another program gives with the exported folder."""
    prompts = [each["prompt"] for each in shown]
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
