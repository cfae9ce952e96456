"""Plant mistakes in a copy of the source, one at a time, and count those that simulated nights find.

    python -m benchmarks.nights.planted --nights 60 --json benchmarks/nights/planted.json

The mistakes are in `planted.toml`. Each is planted in a copy in a temporary folder, in which nights run, seed after seed, until a
claim fails. Without a mistake the same nights have to pass: that is run first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keepworth
from benchmarks.memory.engine import machine
from benchmarks.nights.run import LAYERS
from benchmarks.record import arguments, save

LISTED = Path(__file__).with_name("planted.toml")
ROOT = Path(__file__).parents[2]


class DoesNotApply(ValueError):
    """A text to replace does not stand in the file exactly once."""


def mistakes() -> list[dict[str, Any]]:
    """Return the mistakes of the list."""
    listed: list[dict[str, Any]] = tomllib.loads(LISTED.read_text("utf-8"))["mistake"]
    return listed


def plant(mistake: dict[str, Any], source: Path) -> None:
    """Plant a mistake in a copy of the package. Raises DoesNotApply.

    Args:
        mistake: One of the list.
        source: The folder `keepworth` of the copy.
    """
    path = source / mistake["file"]
    text = path.read_text("utf-8")
    for before, after in mistake["replace"]:
        if text.count(before) != 1:
            raise DoesNotApply(
                f"{mistake['name']}: {before!r:.80} stands {text.count(before)} times in {mistake['file']}"
            )
        text = text.replace(before, after)
    path.write_text(text, "utf-8")


def nights(source: Path, count: int, layer: str) -> dict[str, Any]:
    """Run nights on a copy of the source until one fails.

    Args:
        source: The folder in which the copy of `keepworth` lies.
        count: The most nights.
        layer: Whose nights they are.

    Returns:
        The record of the run: see `benchmarks.nights.run`.
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, "-m", "benchmarks.nights.run", "--seeds", f"0:{count}", "--layer", layer]
        command += ["--stop", "--whole", "--json", str(record)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        if not record.exists():
            # The last line is the error; those above it name folders of this machine.
            return {"failures": [{"claim": "it runs", "detail": done.stderr.strip().splitlines()[-1]}], "nights": 1}
        out: dict[str, Any] = json.loads(record.read_text("utf-8"))
        return out


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--nights", type=int, default=60, help="the most nights for each mistake")
    parser.add_argument("--layer", choices=[*LAYERS], default="", help="only mistakes of this layer")
    parser.add_argument("--only", default="", help="only mistakes whose name has this text in it")
    options = parser.parse_args()
    chosen = [each for each in mistakes() if options.only in each["name"] and options.layer in ("", each["layer"])]
    none = [{"layer": layer, "name": ""} for layer in LAYERS if any(each["layer"] == layer for each in chosen)]
    listed: list[dict[str, Any]] = []
    here = machine()
    # A run of some of them leaves what the others left.
    before = json.loads(options.json.read_text("utf-8"))["mistakes"] if options.json and options.json.exists() else []
    for mistake in [*none, *chosen]:
        name, layer = mistake["name"], mistake["layer"]
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(
                Path(keepworth.__file__).parent,
                Path(folder) / "keepworth",
                ignore=shutil.ignore_patterns("__pycache__"),
            )
            if name:
                plant(mistake, Path(folder) / "keepworth")
            result = nights(Path(folder), options.nights, layer)
        failure = result["failures"][0] if result["failures"] else None
        listed.append(
            {
                "layer": layer,
                "mistake": name or "none",
                "claim": failure["claim"] if failure else "",
                "detail": failure["detail"] if failure else "",
                "nights": result["nights"],
                "most": options.nights,
                "revision": here["revision"],
            }
        )
        print(
            f"{layer}: {name or 'no mistake'}: {'found by: ' + failure['claim'] if failure else 'not found'}",
            flush=True,
        )
        if not name and failure:
            sys.exit(f"a night fails without a mistake, so nothing can be counted: {failure['again']}")
        save(options.json, {"machine": here, "mistakes": in_order([*listed, *before])})
    print(f"{sum(bool(each['claim']) for each in listed)} of {len(chosen)}")


def in_order(listed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was found of each mistake, the first of several, in the order of the list; without those that left it."""
    places = [(layer, "none") for layer in LAYERS] + [(each["layer"], each["name"]) for each in mistakes()]
    first = {(each["layer"], each["mistake"]): each for each in reversed(listed)}
    return [first[place] for place in places if place in first]


if __name__ == "__main__":
    main()
