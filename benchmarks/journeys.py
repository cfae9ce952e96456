"""How many functions and files a reader meets on the way of one call: of a memory that learned, the gateway, a training step.

    python -m benchmarks.journeys --out benchmarks/journeys.json

Counted are functions of this package that were entered (comprehensions and lambdas belong to the function around them), on every
thread, and the calls that lead from one file to another. No call is the first of its kind: what is opened once is open.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import keepworth
from benchmarks.record import arguments, save
from keepworth import Memory

NOTES, REWARDS = 30, 100
ROOT = str(Path(keepworth.__file__).parent)


class Journey:
    """Notes what is entered while it is open, in threads that begin after `watch_threads`."""

    def __init__(self) -> None:
        self.entered: dict[tuple[str, str], int] = {}
        self.moves = 0
        self.open = False

    def watch_threads(self) -> None:
        """Threads that begin from here on are watched."""
        threading.setprofile(self._note)

    def __enter__(self) -> Journey:
        self.open = True
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.open or event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
            return
        key = (str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname)
        self.entered[key] = self.entered.get(key, 0) + 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        self.moves += caller is not None and caller.f_code.co_filename != code.co_filename

    def counts(self) -> dict[str, Any]:
        files = dict.fromkeys(file for file, _ in self.entered)
        return {
            "functions": len(self.entered),
            "files": len(files),
            "calls": sum(self.entered.values()),
            "moves": self.moves,
            "way": {file: [name for at, name in self.entered if at == file] for file in files},
        }


def learn(memory: Any) -> None:
    """Give a memory notes and rewards for searches."""
    memory.add_many([f"Note {n} says that train {n * 7 % 11} leaves at {n % 12}." for n in range(NOTES)])
    for number in range(REWARDS):
        hits = memory.search(f"when does train {number % 11} leave", top_k=5)
        memory.reward(hits.decision, float(number % 3 > 0))


def count_memory(folder: Path) -> dict[str, dict[str, Any]]:
    """A write, a search and a reward, after rewards."""
    counted = {}
    with Memory(folder / "journey.mem", encoder="hashing", seed=0) as memory:
        learn(memory)
        memory.add("Train 13 leaves at one.")
        hits = memory.search("when does train 13 leave", top_k=5)
        memory.reward(hits.decision, 1.0)
        calls: dict[str, Callable[[], Any]] = {
            "Memory.add": lambda: memory.add("Train 12 leaves at noon."),
            "Memory.search": lambda: memory.search("when does train 12 leave", top_k=5),
            "Memory.reward": lambda: memory.reward(hits.decision, 0.0),
        }
        for name, call in calls.items():
            with Journey() as journey:
                result = call()
            hits = result if name == "Memory.search" else hits
            counted[name] = journey.counts()
    return counted


def count_gateway(folder: Path) -> dict[str, dict[str, Any]]:
    """One chat call with a new question, of a memory that learned: from the socket to the upstream, until it is noted."""
    from tests.serving.gate import Gate
    from tests.serving.scripted_upstream import Script, upstream

    with Memory(folder / "gateway.mem", encoder="hashing", seed=0) as memory:
        learn(memory)
    script, journey = Script(), Journey()
    journey.watch_threads()
    with upstream(script) as server, contextlib.closing(Gate(folder / "gateway.mem", script, server.url)) as gate:
        for number in range(3):
            gate.ask({"role": "user", "content": f"I like train {number}."}, user="ana")
        gate.noted(NOTES + 3)
        journey.open = True
        gate.ask({"role": "user", "content": "When does train 5 leave?"}, user="ana")
        while gate.server.gateway._finishing:  # what is noted after the answer belongs to the call
            time.sleep(0.005)
        journey.open = False
    threading.setprofile(None)
    return {"gateway call": journey.counts()}


def count_step(folder: Path) -> dict[str, dict[str, Any]]:
    """From tasks to the weights that one step changed: the second step of the recipe `strings`, with a tiny model."""
    from keepworth.methods.recipes import strings
    from keepworth.training.watch.progress import Progress
    from tests.end_to_end.tiny_folder import write_tiny_checkpoint
    from tests.recipes.tiny_runs import STRINGS, run_of

    journey = Journey()
    journey.watch_threads()
    answering = 0

    class Watching(Progress):
        def phase(self, name: str) -> None:
            nonlocal answering
            answering += name == "answering"
            if name == "answering" and answering == 2:
                journey.__enter__()
            if name == "measuring":
                journey.__exit__()

    model = write_tiny_checkpoint(folder / "model")
    # A random model is never right: without the bonus for entropy there would be no gradient.
    run_of(strings, model, folder / "run", Watching(), **STRINGS, checkpoint_every=2, entropy=0.1)
    return {"training step": journey.counts()}


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parts = [count(Path(folder)) for count in (count_memory, count_gateway, count_step)]
    counted = {name: counts for part in parts for name, counts in part.items()}
    for name, counts in counted.items():
        print("{}: {functions} functions in {files} files, {calls} calls, {moves} between files".format(name, **counts))
    save(options.out, counted)


if __name__ == "__main__":
    main()
