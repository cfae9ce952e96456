"""How often a judge behind an OpenAI-compatible URL is wrong on planted answers, beside the lexical scores.

    keepworth serve
    python -m benchmarks.statistics.judges http://127.0.0.1:8000 smollm2-135m-instruct --out benchmarks/statistics/judges.json

Given again with another model, the file holds both.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.statistics.verifiers import row
from keepworth.evaluation.judge import by_verifier, errors, planted_answers
from keepworth.models.chat import ChatModel, judge
from keepworth.tasks.metrics import exact_match, token_f1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--key-variable", default="", help="the environment variable that holds the key")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    planted = planted_answers()
    known = json.loads(asked.out.read_text())["scorers"] if asked.out and asked.out.exists() else {}
    known["exact_match"] = row(errors(by_verifier(exact_match), planted))
    known["token_f1 of at least 0.5"] = row(errors(by_verifier(token_f1), planted))
    began = time.perf_counter()
    chat = ChatModel(asked.url, asked.model, key_variable=asked.key_variable, max_tokens=64, seed=0)
    known[asked.model] = {**row(errors(judge(chat), planted)), "seconds": time.perf_counter() - began}
    for name, each in known.items():
        means = {key: each[key] and f"{each[key]['mean']:.3f}" for key in ("precision", "recall", "false accept")}
        print(f"{name:28} n={each['n']} failed {each['failed']} {means} {each.get('failure', '')}")
    if asked.out:
        versions = {"python": platform.python_version(), "keepworth": version("keepworth")}
        asked.out.write_text(json.dumps({"scorers": known, "versions": versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
