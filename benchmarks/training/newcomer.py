"""From a file of JSON lines and a reward in Python to a report and a folder that plain transformers loads: timed, step by step.

    python -m benchmarks.training.newcomer --data FOLDER [--steps 30] [--seed 0] [--plain PYTHON] [--json FILE]

The rows are messages of a bank's customers, each with what it is about: six intents of BANKING77 (Casanueva et al., 2020, CC BY
4.0), read from FOLDER or KEEPWORTH_DATA. Right is the name of the intent. Beside the result stand the most frequent intent and
naive Bayes over words, learned from the same rows with their labels. The script that is timed is `SCRIPT` below, run as a
program of its own. --plain: a Python with transformers and without keepworth, which loads the folder and answers the same
prompts; its greedy answers are compared with those of the trained run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth.base.statistics import estimate
from keepworth.methods.benchmarks.banking77 import customer_queries
from keepworth.models.threads import available_cores
from keepworth.training.run_folder import RunFolder, versions

SCRIPT = """\
import sys
from keepworth import train

def right(answer, row):
    return float(answer.strip().lower() == row["intent"])

run = train(
    "messages.jsonl",
    reward=right,
    max_tokens=8,
    steps=int(sys.argv[1]),
    seed=int(sys.argv[2]),
    precision="fp32",
    evaluate_every=10,
)
print(run)
print(run.export("router"))
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
    drawn = model.generate(**ids, max_new_tokens=8, do_sample=False)[0, ids["input_ids"].shape[1]:]
    answers.append(tokenizer.decode(drawn, skip_special_tokens=True).strip())
print(json.dumps(answers))
"""


WORKED = {
    "card_arrival": "It has been two weeks and I still wait for the new card.",
    "change_pin": "How do I get another number for the cash machine?",
    "exchange_rate": "How many dollars do I get for my euros?",
    "lost_or_stolen_card": "Somebody took my wallet with the card in it.",
    "Refund_not_showing_up": "The shop says it paid me back and I cannot see it.",
    "top_up_failed": "I tried to put money on my account and it was not accepted.",
}
"""The intents, and of each a message of our own with which the conversation begins: a model of this size seldom keeps to a form
that it was only told of, and a reward that is never earned teaches nothing."""
ASKED = "What is the customer's message about? Answer with one of: {}."


def rows(data: Path | None) -> list[dict[str, Any]]:
    """One row a message: the test file's are for testing, one in ten of the others for dev."""
    names = {name: name.lower().replace("_", " ") for name in WORKED}
    before = [{"role": "system", "content": ASKED.format(", ".join(names.values()))}]
    for intent, text in WORKED.items():
        before += [{"role": "user", "content": text}, {"role": "assistant", "content": names[intent]}]
    tasks = []
    for side in ("train", "test"):
        queries = [(text, names[intent]) for text, intent in customer_queries(data, side) if intent in names]
        for number, (text, intent) in enumerate(queries):
            prompt = [*before, {"role": "user", "content": text}]
            split = "dev" if side == "train" and not number % 10 else side
            tasks.append({"id": f"{side}-{number}", "prompt": prompt, "intent": intent, "split": split})
    return tasks


def naive_bayes(examples: Sequence[tuple[str, str]]) -> Callable[[str], str]:
    """From a text to the label that its words make most probable, with add-one smoothing. examples: (text, label)."""
    seen, often = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for text, label in examples:
        seen[label] += 1
        often[label].update(words_of(text))

    def likely(label: str, words: set[str]) -> float:
        return log(seen[label] + 1) + sum(log((often[label][word] + 1) / (seen[label] + 2)) for word in words)

    def label_of(text: str) -> str:
        words = words_of(text) & set().union(*often.values())
        return max(seen, key=lambda label: likely(label, words))

    return label_of


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def measured(data: Path | None, steps: int, seed: int, plain: str) -> dict[str, Any]:
    data_rows = rows(data)
    tests = [row for row in data_rows if row["split"] == "test"]
    learned = [(row["prompt"][-1]["content"], row["intent"]) for row in data_rows if row["split"] == "train"]
    rule, (often, _) = naive_bayes(learned), Counter(intent for _, intent in learned).most_common(1)[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "messages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data_rows))
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
        run = RunFolder.open(folder / "runs" / "messages")
        evals = [row for row in run.evals() if row["split"] != "dev" and row["metric"] == "right"]
        by_policy = {
            when: {episode.episode.task: episode.episode for episode in run.episodes(arm=f"messages,_test-{when}")}
            for when in ("untrained", "trained")
        }
        answers = {task: episode.answer for task, episode in by_policy["trained"].items()}
        gain = estimate(
            [episode.reward - by_policy["untrained"][task].reward for task, episode in by_policy["trained"].items()]
        )
        shown = [test for test in tests if f"messages/{test['id']}" in answers]
        return {
            "lines": sum(bool(line.strip()) for line in SCRIPT.splitlines()),
            "seconds": round(seconds, 1),
            "steps": steps,
            "seed": seed,
            "accuracy": [{key: row[key] for key in ("arm", "mean", "low", "high", "n")} for row in evals],
            "gain": {"mean": gain.mean, "low": gain.low, "high": gain.high},
            "rules": {
                "the most frequent intent": estimate([row["intent"] == often for row in shown]).mean,
                "naive Bayes": estimate([rule(row["prompt"][-1]["content"]) == row["intent"] for row in shown]).mean,
            },
            "rows": Counter(row["split"] for row in data_rows),
            "plain": _plain(plain, folder / "router", shown, answers) if plain else None,
            "versions": versions(),
            "processor": machine(available_cores())["processor"],
            "load": os.getloadavg()[0],
        }


def _plain(python: str, folder: Path, shown: list[dict[str, Any]], answers: dict[str, str]) -> dict[str, Any]:
    """How many of the trained run's greedy answers another program gives with the exported folder."""
    prompts = [row["prompt"] for row in shown]
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
    ours = [answers[f"messages/{row['id']}"] for row in shown]
    return {"n": len(ours), "equal": sum(one == other for one, other in zip(ours, theirs, strict=True))}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=None, help="where BANKING77 is; KEEPWORTH_DATA if not given")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", default=os.environ.get("KEEPWORTH_PLAIN_PYTHON", ""))
    given = parser.parse_args()
    result = measured(given.data, given.steps, given.seed, given.plain)
    save(given.json or Path(__file__).with_suffix(".json"), result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
