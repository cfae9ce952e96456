"""Put a newcomer's script into docs/training.md, and training beside TRL's into docs/from_trl.md.

python -m benchmarks.training.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs"


def newcomer(found: dict[str, Any]) -> str:
    arms = {each["arm"]: each for each in found["accuracy"]}
    said = {name: f"{each['mean']:.2f} [{each['low']:.2f}, {each['high']:.2f}]" for name, each in arms.items()}
    plain, versions = found["plain"], found["versions"]
    gain = f"{found['gain']['mean']:+.2f} [{found['gain']['low']:+.2f}, {found['gain']['high']:+.2f}]"
    beside = ", ".join(f"{name} {mean:.2f}" for name, mean in found["rules"].items())
    return " ".join(
        (
            f"`python -m benchmarks.training.newcomer` runs a script of {found['lines']} lines on messages of a bank's customers",
            "(six intents of BANKING77, a worked example of each in the prompt). Its reward is the right intent.",
            f"To the report and the exported folder it takes {found['seconds'] / 60:.0f} minutes",
            f"({found['steps']} steps of 64 answers on two cores, {found['processor']}).",
            f"Test messages that are right: {said['untrained']} before, {said['trained']} after, gain {gain}; {beside},",
            f"which learns from the same rows with their labels (n = {arms['trained']['n']}, seed {found['seed']}).",
            f"Plain transformers, without keepworth, gave {plain['equal']} of {plain['n']} answers of the run with that folder.",
            f"(float32, torch {versions['torch']}, transformers {versions['transformers']}.)",
        )
    )


def ended_alike(rounds: list[dict[str, Any]], key: str) -> str:
    gaps = [each[key] for each in rounds if key in each]
    if not gaps:
        return "not measured"
    same = sum(not gap["differ"] for gap in gaps)
    if same == len(gaps):
        return f"bit for bit, {same} of {len(gaps)}"
    worst = max(gaps, key=lambda gap: gap["largest"])
    return f"{same} of {len(gaps)}; up to {worst['differ']:.0%} of the weights differ, by up to {worst['largest']:.1g}"


def beside_trl(found: dict[str, Any]) -> str:
    rows = []
    for side in ("ours", "TRL"):
        each = found[side]
        rows.append(
            [
                {"ours": "keepworth"}.get(side, side),
                each["lines"],
                ended_alike(each["rounds"], "whole_and_whole"),
                ended_alike(each["rounds"], "killed_and_whole"),
            ]
        )
    count = len(found["ours"]["rounds"])
    head = ["", "lines", "two whole runs end alike", "a killed run ends like the whole one"]
    about = (
        f"The same training through both front doors, with a reward of {found['shared_lines']} lines that both share",
        "(`python -m benchmarks.training.beside_trl`): test questions before and after, checkpoints, a log that a page shows,",
        f"going on after SIGKILL, merged weights. {found['steps']} steps, {count} round{'s' * (count > 1)}, one seed;",
        "'alike' is said of all merged weights.",
    )
    below = (
        f"TRL {found['trl'][0]}, torch {found['versions']['torch']}, {found['processor']}. Seconds of a step and memory, with",
        "and without gradient checkpointing, stand under [speed](appendix/speed.md#one-training-step-beside-trls-grpotrainer).",
    )
    return "\n\n".join((" ".join(about), markdown(head, rows, align="---"), " ".join(below)))


TABLES = (
    (HERE / "newcomer.json", "training.md", newcomer),
    (HERE / "beside_trl.json", "from_trl.md", beside_trl),
)


def main() -> None:
    takes_nothing(__doc__)
    for path, page, table in TABLES:
        if path.is_file():  # not measured: no table
            filled(DOCS / page, path.stem.replace("_", " "), table(json.loads(path.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
