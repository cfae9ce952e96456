"""What the demo promises and what it takes, and how many threads it chooses.

    python -m benchmarks.demo --cores 2          # the demo and the quick demo, one after the other, from the beginning
    python -m benchmarks.demo --cores 1
    python -m benchmarks.demo --starts 20        # the choice of threads at 20 starts, without the training

On an idle machine. What `demo.json` beside this file holds already is not measured again, but for --again. With `--runs runs`
the run folder stays where `python -m benchmarks.readme` looks for it.
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

from benchmarks.speed.setting import MODEL, machine

OUTPUT = Path(__file__).with_suffix(".json")
START = f"""
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.models.threads import settle_threads
print(settle_threads(InProcessModel.load(path_of({MODEL!r}))))
"""


def on_cores(count: int, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """The command on the first `count` cores that this process may use, with no thread count asked for."""
    cores = sorted(os.sched_getaffinity(0))[:count]
    if len(cores) < count:
        raise SystemExit(f"this process may use {len(cores)} cores, not {count}")
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    root = Path(__file__).parents[1]
    environment["PYTHONPATH"] = os.pathsep.join([str(root / "src"), environment.get("PYTHONPATH", "")])
    bind = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
    return subprocess.run(command, check=True, text=True, cwd=root, env=environment, preexec_fn=bind, **more)


def demonstrated(cores: int, quick: bool, runs: Path) -> dict[str, Any]:
    """Minutes that the whole command of the demo takes."""
    about = machine(cores)
    command = [
        sys.executable,
        "-m",
        "keepworth",
        "demo",
        "--fresh",
        "--runs",
        str(runs),
        *(["--quick"] if quick else []),
    ]
    begun = time.monotonic()
    on_cores(cores, command)
    whole = (time.monotonic() - begun) / 60
    folder = runs / ("demo-quick" if quick else "demo")
    computing = json.loads((folder / "config.json").read_text())["environment"]
    fields = ("threads", "precision")
    shown = "make demo QUICK=1" if quick else "make demo"
    return {"command": shown, "whole_command": whole, **{k: computing[k] for k in fields}, "machine": about}


def chosen(cores: int, starts: int) -> dict[str, Any]:
    """How often which number of threads is chosen."""
    about = machine(cores)
    runs = []
    for _ in range(starts):
        output = on_cores(cores, [sys.executable, "-c", START], stdout=subprocess.PIPE).stdout
        runs.append({"threads": int(output)})
        print(runs[-1], flush=True)
    counts = Counter(str(row["threads"]) for row in runs)
    return {"cores": cores, "starts": starts, "chosen": dict(counts), "each": runs, "machine": about}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--starts", type=int, default=0, help="only choose threads, so many times")
    parser.add_argument("--quick", action="store_true", help="only the quick demo")
    parser.add_argument("--runs", type=Path, help="where the run folders stay; a temporary folder if not given")
    parser.add_argument("--again", action="store_true", help="measure again what is there")
    options = parser.parse_args()
    record: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"demos": {}, "starts": {}}

    def keep() -> None:
        OUTPUT.write_text(json.dumps(record, indent=2) + "\n")

    name = f"{options.cores} core{'s' if options.cores > 1 else ''}"
    if options.starts:
        if options.again or name not in record["starts"]:
            record["starts"][name] = chosen(options.cores, options.starts)
            keep()
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = options.runs or Path(folder)
        for quick in (True,) if options.quick else (False, True):
            row = f"{name}, {'quick' if quick else 'whole'}"
            if options.again or row not in record["demos"]:
                record["demos"][row] = demonstrated(options.cores, quick, runs.resolve())
                keep()


if __name__ == "__main__":
    main()
