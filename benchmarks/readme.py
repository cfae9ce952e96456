"""Put the demo's picture and table, and every benchmark's table, where the documentation shows them.

    python -m benchmarks.readme [--run runs/demo]

No number in the README or in docs/appendix/results.md is typed: each is read from a run's result or from the JSON beside the
command that measured it, and stands between two markers that this script fills.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.pictures import write_picture
from benchmarks.tables import filled, markdown
from keepworth.evaluation.curves import panels
from keepworth.evaluation.tables import ResultTable, tables_of
from keepworth.learning.run_folder import RunFolder

PICTURE = ("held_out.answerer.test.f1", "answerer.reward")
IMAGES = "docs/images/demo.png", "docs/images/demo_narrow.png"
"""The picture in two columns, and in one for screens of less than 600 pixels."""
ROOT = Path(__file__).parents[1]
Record = dict[str, Any]


def result_table(table: ResultTable) -> str:
    header = [table.title, *(f"{name} [95 %]" for name in table.metrics), "n"]
    rows = []
    for row in table.rows:
        cells = ["" if c is None else f"{c.mean:.2f} {c.interval}".strip() for c in row.cells]
        strong = "**" if row.emphasis else ""
        rows.append([f"{strong}{row.label}{strong}", *(f"{strong}{cell}{strong}" for cell in cells), row.n])
    return markdown(header, rows) + (f"\n\n{table.note}" if table.note else "")


def estimate(row: Record, digits: int = 2) -> str:
    if row["low"] is None:  # a share that was counted
        return f"{row['mean']:.{digits}f}"
    return f"{row['mean']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def arm(name: str) -> str:
    """The model, then what it is shown: "reinforced, no_memory" and "no_memory_untrained" alike."""
    shown = {
        "": "with memory",
        "no_memory": "no memory",
        "wrong_memory": "another question's memory",
        "oracle": "oracle evidence",
    }
    if name.endswith("untrained"):
        return f"untrained, {shown[name.removesuffix('untrained').rstrip('_')]}"
    method, _, memory = name.partition(", ")
    return f"{method}, {shown[memory]}"


def arms(record: Record) -> str:
    levels = [[arm(r["arm"]), estimate(r), str(r["n"]), str(r["seeds"])] for r in record["levels"]]
    gains = [
        [r["arm"], estimate(r), str(r["n"]), str(r["seeds"])]
        for r in record["gains"]
        if "out" not in r["arm"] and "another" not in r["arm"]
    ]
    parts = [
        markdown(["token F1, test questions", "mean [95 %]", "questions", "seeds"], levels),
        markdown(["gain over the untrained model", "mean [95 %]", "questions", "seeds"], gains),
    ]
    if "claim" in record:
        record_claim = record["claim"]
        gain_list = ", ".join(f"{value:+.3f}" for value in record_claim["gain_of_each_seed"])
        parts.append(f"Gain of each seed: {gain_list}.")
    return "\n\n".join(parts)


def picture() -> str:
    wide, narrow = IMAGES
    return (
        f'<picture>\n<source media="(max-width: 600px)" srcset="{narrow}">\n'
        f'<img src="{wide}" alt="Token F1 on test questions and the reward, over the steps of the demo">\n</picture>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    readme = ROOT / "README.md"
    if (options.run / "result.json").exists():
        run = RunFolder.open(options.run)
        wanted = [p for p in panels(run.metrics(), run.evals()) if p.key in PICTURE]
        for columns, image in zip((2, 1), IMAGES, strict=True):
            write_picture(wanted, ROOT / image, "", columns)
        filled(readme, "demo-picture", picture())
        filled(readme, "demo-table", "\n\n".join(result_table(table) for table in tables_of(run)))
    record = json.loads((ROOT / "benchmarks" / "answerer" / "arms.json").read_text())
    filled(ROOT / "docs" / "appendix" / "results.md", "answerer-arms", arms(record))


if __name__ == "__main__":
    main()
