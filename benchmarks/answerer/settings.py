"""The trained answerer in harder settings: more candidates, all question types, real retrieval.

    python -m benchmarks.answerer.settings --run NAME [--runs runs] [--threads N]

Each setting is one `keepworth eval answerer --run NAME --set ...`; the numbers are gathered in `settings.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SETTINGS: dict[str, tuple[str, ...]] = {
    "3 candidates, extractive": (),
    "5 retrieved, 50 more sessions, extractive": ("recall=retrieved", "distractors=50", "memories=5"),
    "5 candidates, extractive": ("memories=5",),
    "10 candidates, extractive": ("memories=10",),
    "3 candidates, all question types": ("extractive=false",),
    "20 candidates, extractive": ("memories=20",),
    "5 retrieved, 50 more sessions, all question types": (
        "recall=retrieved",
        "distractors=50",
        "memories=5",
        "extractive=false",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "settings.json")
    options = parser.parse_args()
    found = {}
    for name, assigned in SETTINGS.items():
        print(f"-- {name}", flush=True)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            sets = [f"--set={each}" for each in (*assigned, f"threads={options.threads}")]
            command = ["-m", "keepworth", "eval", "answerer", "--run", options.run, "--runs", str(options.runs)]
            subprocess.run([sys.executable, *command, *sets, "--json", file.name], check=True)
            found[name] = json.loads(Path(file.name).read_text())
        # After each: a benchmark that is stopped keeps what it measured.
        options.output.write_text(json.dumps({"settings": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
