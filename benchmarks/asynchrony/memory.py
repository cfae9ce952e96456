"""A large group in few slots (Infinite Sampling, arXiv 2506.22950): what it saves in memory, and what it costs in time.

One prompt of 400 tokens, 32 answers of long-tailed length (log-normal with sigma 1, median 48, at most 256), SmolLM2-135M in
bfloat16. They are drawn

* as whole calls (`GroupBatch`: every answer at once, the prompt's keys and values kept once for all);
* in slots (`ContinuousBatch`), filled again one by one: as they came, and longest or shortest first, the lengths known. The
  answers have one prompt, so that nothing that reads only the prompt could order them;
* in micro-groups: as many answers as there are slots, to the end of the last, then the next ones.

Every row is a process of its own. Resident memory is the highest while sampling, beyond that of the loaded model. Keys and values
are what tensors hold that were not there before, looked at before every eighth pass of the network. Decoding steps are exact;
tokens are per processor second. Writes memory.json.

    python -m benchmarks.asynchrony.memory
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.asynchrony.setting import HERE, lognormal, small, write
from benchmarks.speed.setting import machine, prompts
from keepworth.episodes import SamplingParams
from keepworth.models.inprocess import ContinuousBatch, GroupBatch, InProcessModel, PartialSample

MEMBERS, PROMPT, MEDIAN, LONGEST = 32, 400, 48, 256
WHOLE, MICRO, SLOTS = "whole calls", "micro-groups", "slots"
ROWS = [
    (WHOLE, MEMBERS),
    *[(f"{SLOTS}, as they came", slots) for slots in (4, 8, 16, 32)],
    (f"{SLOTS}, longest first", 8),
    (f"{SLOTS}, shortest first", 8),
    (MICRO, 8),
]
ORDERS: dict[str, Callable[[PartialSample], int]] = {
    "as they came": lambda draft: 0,
    "longest first": lambda draft: -lengths()[draft.stream[1]],
    "shortest first": lambda draft: lengths()[draft.stream[1]],
}


def lengths() -> list[int]:
    drawn = lognormal(MEDIAN, 1.0, 0, 1, LONGEST)
    return [round(drawn(0, member)) for member in range(MEMBERS)]


def decoder(model: InProcessModel, way: str, slots: int) -> ContinuousBatch | GroupBatch:
    if way == WHOLE:
        return GroupBatch(model, order=ORDERS["as they came"])
    if way == MICRO:
        return ContinuousBatch(model, slots, refill=slots)
    return ContinuousBatch(model, slots, order=ORDERS[way.removeprefix(f"{SLOTS}, ")])


def drafts(prompt: tuple[int, ...]) -> list[PartialSample]:
    """Answers of the trace's lengths, alike in all else: where one is to end, its draw is 0, which gives the first token of the
    vocabulary, and that is its end mark."""
    found = []
    for member, length in enumerate(lengths()):
        each = PartialSample(prompt, SamplingParams(LONGEST, stop_ids=frozenset({0}), seed=1), (0, member))
        each.draws()[length - 1] = 0.0
        found.append(each)
    return found


def status(name: str) -> int:
    """Bytes of a field of this process's status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def measure(way: str, slots: int) -> dict[str, float]:
    """One row, in this process."""
    torch.set_num_threads(1)
    model = small()
    text = prompts(model.tokenizer, 1, PROMPT)[0]
    prompt = tuple(model.tokenizer(text, add_special_tokens=False)["input_ids"])
    for warm in (GroupBatch(model, order=ORDERS["as they came"]), ContinuousBatch(model, 2)):
        warm.add(PartialSample(prompt, SamplingParams(3), (0,)))
        while warm.busy:
            warm.step()
    del warm
    gc.collect()
    eyes = Eyes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begun = status("VmRSS"), time.process_time()
    batch = decoder(model, way, slots)
    answers = drafts(prompt)
    for draft in answers:
        batch.add(draft)
    eyes.open_at(model)
    while batch.busy:
        batch.step()
    taken, peak = time.process_time() - begun - eyes.seconds, status("VmHWM")
    if [len(draft.ids) for draft in answers] != lengths():
        raise AssertionError("the answers are not as long as the trace says")
    return {
        "cpu_seconds": taken,
        "steps": max(lengths()) if way == WHOLE else batch.steps,
        "tokens_per_cpu_second": sum(lengths()) / taken,
        "resident_before_bytes": before,
        "resident_peak_bytes": peak - before,
        "keys_and_values_bytes": eyes.most,
    }


class Eyes:
    """The most that tensors hold beside those there were at first, looked at before every eighth pass of the network."""

    def __init__(self) -> None:
        self.most = self.passes = 0
        self.seconds = 0.0
        self._known = set(_storages())

    def open_at(self, model: InProcessModel) -> None:
        go_through = model.hidden_states

        def watched(*arguments: Any, **others: Any) -> Any:
            if self.passes % 8 == 0:
                begun = time.process_time()
                held = sum(size for place, size in _storages().items() if place not in self._known)
                self.most = max(self.most, held)
                self.seconds += time.process_time() - begun
            self.passes += 1
            return go_through(*arguments, **others)

        model.hidden_states = watched  # type: ignore[method-assign]


def _storages() -> dict[int, int]:
    """Bytes of the memory that tensors stand in, by its address."""
    tensors = [each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]
    found = [each.untyped_storage() for each in tensors if not each.is_mkldnn]  # packed weights show no memory
    return {each.data_ptr(): each.nbytes() for each in found}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument(
        "--rows", type=int, nargs="+", default=list(range(len(ROWS))), help="others are kept as they are"
    )
    asked.add_argument("--one", type=int, help="measure this row and print it")
    options = asked.parse_args()
    if options.one is not None:
        print(json.dumps(measure(*ROWS[options.one])))
        return
    path = HERE / "memory.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    found |= {"machine": machine(1), "model": "smollm2-135m-instruct", "members": MEMBERS, "prompt": PROMPT}
    found["lengths"] = {"median": MEDIAN, "sigma": 1.0, "longest": LONGEST, "tokens": sum(lengths())}
    for number in options.rows:
        way, slots = ROWS[number]
        command = [sys.executable, "-m", "benchmarks.asynchrony.memory", "--one", str(number)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found["rows"][str(number)] = {"way": way, "slots": slots, **json.loads(done.stdout.splitlines()[-1])}
        print(json.dumps(found["rows"][str(number)]), flush=True)
        write(path.name, found)


if __name__ == "__main__":
    main()
