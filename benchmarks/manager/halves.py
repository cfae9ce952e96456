"""The manager's two measures, from one run of `recollect train memory_r1 --role manager`.

    python -m benchmarks.manager.halves --reader NAME [--runs runs] [--seed 0] [--threads N]

--reader names the finished answerer run whose weights read the banks. A finished manager run is read, an unfinished one
continues. The tables go to `manager.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from recollect.cli.show import print_tables
from recollect.learning.progress import progress_for
from recollect.learning.run_folder import RunFolder, versions
from recollect.recipes import memory_r1

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "manager.json")
    options = parser.parse_args()
    config = memory_r1.Config(role="manager", seed=options.seed, threads=options.threads, reader=options.reader)
    record = {"recipe": "memory_r1", **config.model_dump(mode="json")}
    with RunFolder.create(options.runs / f"manager-{options.seed}", record) as run:
        if run.result() is None:
            memory_r1.train(config, run, progress_for())
    result = run.result() or {}
    wanted = ("operation_accuracy", "operation_kind", "invalid", "f1", "evidence_kept", "bank_size")
    tables = [{**t, "rows": [r for r in t["rows"] if r["metric"] in wanted]} for t in result["tables"]]
    found = {
        "tables": tables,
        "by_operation": [r for t in result["tables"] for r in t["rows"] if r["metric"] not in wanted],
        "configuration": run.config,
        "versions": versions(),
    }
    options.output.write_text(json.dumps(found, indent=2) + "\n")
    print_tables(run, Console())


if __name__ == "__main__":
    main()
