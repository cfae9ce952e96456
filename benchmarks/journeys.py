"""How many functions and files a reader meets on the way of one call: `Memory.search`, `Memory.add`, a training step.

    python -m benchmarks.journeys --out benchmarks/journeys.json

Counted are functions of this package that were entered (comprehensions and lambdas belong to the function around them), on
every thread, in a call that is not the first: what is opened once is open.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

NAME = "keepworth"
STEP = {
    "precision": "fp32",
    "threads": 1,
    "steps": 2,
    "tasks_per_step": 2,
    "group_size": 2,
    "evaluate_every": 2,
    "checkpoint_every": 2,
    "questions": 2,
    "warm_start": 2,
    "warm_start_batch": 2,
    "tasks": 8,
    "held_out": 4,
    "max_tokens": 4,
    "entropy": 0.1,  # a random model is never right: without the bonus there would be no gradient
}
ROOT = Path(importlib.import_module(NAME).__file__ or "").parent


class Journey:
    """Notes (file, function) of everything of ours that is entered while it is open."""

    def __init__(self) -> None:
        self.entered: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Journey:
        threading.setprofile_all_threads(self._note) if sys.version_info >= (3, 12) else threading.setprofile(
            self._note
        )
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(ROOT)) or code.co_name.startswith("<"):
            return
        name = getattr(code, "co_qualname", code.co_name)
        key = (str(Path(code.co_filename).relative_to(ROOT)), name)
        self.entered[key] = self.entered.get(key, 0) + 1

    def counts(self) -> dict[str, Any]:
        files = dict.fromkeys(file for file, _ in self.entered)
        return {
            "functions": len(self.entered),
            "files": len(files),
            "calls": sum(self.entered.values()),
            "way": {file: [name for at, name in self.entered if at == file] for file in files},
        }


def searched_and_added(folder: Path) -> dict[str, dict[str, Any]]:
    memory_type = importlib.import_module(NAME).Memory
    counted = {}
    with memory_type(folder / "journey.mem", encoder="hashing") as memory:
        for number in range(30):
            memory.add(f"Note {number} says that train {number * 7 % 11} leaves at {number % 12}.")
        memory.search("when does train 3 leave", top_k=5)
        calls: dict[str, Callable[[], Any]] = {
            "Memory.add": lambda: memory.add("Train 12 leaves at noon."),
            "Memory.search": lambda: memory.search("when does train 12 leave", top_k=5),
        }
        for name, call in calls.items():
            with Journey() as journey:
                call()
            counted[name] = journey.counts()
    return counted


def stepped(folder: Path) -> dict[str, dict[str, Any]]:
    """From tasks to the weights that one step changed: the second step of the recipe `strings`, with a tiny model."""
    from tests.end_to_end.tiny_folder import write_tiny_checkpoint

    strings = importlib.import_module(f"{NAME}.recipes.strings")
    run_folder = importlib.import_module(f"{NAME}.learning.run_folder")
    silent = importlib.import_module(f"{NAME}.learning.watch.progress").SilentProgress
    journey = Journey()
    answering = 0

    class Watching(silent):  # type: ignore[misc, valid-type]
        def phase(self, name: str) -> None:
            nonlocal answering
            answering += name == "answering"
            if name == "answering" and answering == 2:
                journey.__enter__()
            if name == "measuring":
                journey.__exit__()

    config = strings.Config(model=str(write_tiny_checkpoint(folder / "model")), **STEP)
    with run_folder.RunFolder.create(folder / "run", {"recipe": "strings", **config.model_dump(mode="json")}) as run:
        strings.METHOD.make.train(config, run, Watching())
    return {"recipe step": journey.counts()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = searched_and_added(Path(folder)) | stepped(Path(folder))
    for name, each in counted.items():
        print(f"{name}: {each['functions']} functions in {each['files']} files, {each['calls']} calls")
    if options.out:
        options.out.write_text(json.dumps(counted, indent=1) + "\n")


if __name__ == "__main__":
    main()
