"""Exported folders in other programs: how many greedy answers are the run's, token by token.

    keepworth export demo merged --probe
    keepworth export demo adapter --adapter --with-base --probe
    python -m benchmarks.learning.exported merged adapter --plain PYTHON [--vllm PYTHON] --json benchmarks/learning/exported.json

PYTHON: one with transformers and PEFT, one with vLLM; keepworth is installed in neither. Each folder is read in the type that its
program chooses by itself, and in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[2] / "tests" / "end_to_end"
SHOWN = ("kind", "computed_in", "same", "of", "versions")


def read_by(python: str, script: str, folder: Path, dtype: str) -> dict[str, Any]:
    """What a program in another Python answers: the JSON object that it prints last."""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [python, str(SCRIPTS / script), str(folder.resolve()), "--dtype", dtype],
            capture_output=True, text=True, cwd=elsewhere, env=bare, check=True,
        )  # fmt: skip
    # An engine that is ended has last words of its own.
    found: dict[str, Any] = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--plain", required=True)
    parser.add_argument("--vllm", default="")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    programs = [("transformers", given.plain, "plain_answers.py", ("auto", "float32"))]
    if given.vllm:
        programs.append(("vllm", given.vllm, "vllm_answers.py", ("float32",)))
    records = [json.loads((folder / "export.json").read_text(encoding="utf-8")) for folder in given.folders]
    exports = [{name: each[name] for name in ("run", "role", "kind", "step", "dtype", "agreement")} for each in records]
    rows = []
    for program, python, script, dtypes in programs:
        for folder in given.folders:
            for dtype in dtypes:
                found = read_by(python, script, folder, dtype)
                rows.append({"program": program, **{name: found[name] for name in SHOWN}})
                print(f"{program:13} {found['kind']:8} {found['computed_in']:9} {found['same']} of {found['of']}")
                if given.json:  # after each: an engine takes minutes to start
                    text = json.dumps({"exports": exports, "rows": rows}, indent=2)
                    given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
