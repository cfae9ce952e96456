"""Seconds and memory of one GRPO step beside TRL's `GRPOTrainer` doing the same work.

    pip install trl datasets          # or give --trl-python, a Python that has them (and the same torch)
    python -m benchmarks.speed.training_step [--seconds 210] [--prompts 2] [--threads N] [--trl-python PATH]

The same checkpoint folder, bf16, threads, prompts of 400 tokens, groups of 8, completions of exactly 16 (then 64) tokens,
a LoRA adapter of rank 16 on every linear layer, no KL, no gradient checkpointing, one optimiser update per step. A step
is everything: encoding, sampling, decoding, reward, advantages, forward, backward, AdamW. Both sides live in processes of
their own and step in turn, so that only one computes at a time; peak resident memory is each process's own. The first
step of each is a warm-up and not counted. TRL takes a backward pass per 8 completions, its own default; `--prompts 8` is
a usual step, of which TRL needs minutes on two cores. Prints a table and writes `training_step.json` beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.speed.setting import HERE, MODEL, Spent, machine, paired, prompts, write
from benchmarks.speed.training_protocol import MARK, Work

PROMPT_TOKENS = 400


@dataclass(frozen=True, slots=True)
class Case:
    """Completions of `tokens` tokens; `until`: the share of all the time at which this case must be done."""

    tokens: int
    rounds: int
    until: float


CASES = (Case(16, 5, 0.45), Case(64, 3, 1.0))


class Side:
    """A process that takes a step when told to."""

    def __init__(self, python: str, module: str, work: Work, log: Any) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [python, "-m", module, work.argument()],
            cwd=HERE.parent.parent,
            env=os.environ | {"OMP_NUM_THREADS": str(work.threads), "PYTHONPATH": "src", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.about = self._read()
        self.steps: list[dict[str, Any]] = []

    def step(self) -> Spent:
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        self.steps.append(self._read())
        return Spent(self.steps[-1]["seconds"], self.steps[-1]["cpu_seconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                values: dict[str, Any] = json.loads(line[len(MARK) :])
                return values
        self._log.seek(0)
        raise RuntimeError(f"{self._process.args[2]} ended before it answered:\n{self._log.read()[-3000:]}")  # type: ignore[index]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=60)


@contextlib.contextmanager
def sides(work: Work, trl_python: str) -> Iterator[tuple[Side, Side]]:
    with contextlib.ExitStack() as stack:
        opened = []
        for python, module in ((sys.executable, "training_ours"), (trl_python, "training_trl")):
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            side = Side(python, f"benchmarks.speed.{module}", work, log)
            stack.callback(side.close)
            opened.append(side)
        yield opened[0], opened[1]


def measure(work: Work, trl_python: str, rounds: int, limit: float) -> dict[str, Any]:
    with sides(work, trl_python) as (ours, trl):
        if ours.about["trained_parameters"] != trl.about["trained_parameters"]:
            raise RuntimeError(f"the adapters differ: {ours.about} and {trl.about}")
        ours.step(), trl.step()  # warm-up: kernels, optimiser state
        result = paired(rounds, limit, ours.step, trl.step)
        peak = {"ours": ours.steps[-1]["peak_rss"], "theirs": trl.steps[-1]["peak_rss"]}
        return {
            "case": asdict(replace(work, model=MODEL, texts=())),
            **result,
            "learning_seconds_of_ours": [step["learning_seconds"] for step in ours.steps[1:]],
            "trained_rows_of_ours": [step["trained_rows"] for step in ours.steps[1:]],
            "trained_parameters": ours.about["trained_parameters"],
            "peak_rss_bytes": peak,
            "loaded_rss_bytes": {"ours": ours.about["loaded_rss"], "theirs": trl.about["loaded_rss"]},
            "memory_ratio": peak["ours"] / peak["theirs"],
            "versions_of_trl_side": {name: trl.about[name] for name in ("trl", "accelerate")},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=210.0, help="stop adding rounds after this long")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch chooses")
    parser.add_argument("--trl-python", default=os.environ.get("TRL_PYTHON", sys.executable))
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="completions per backward pass of TRL")
    parser.add_argument("--trl-no-autocast", action="store_true")
    parser.add_argument("--prompts", type=int, default=2, help="prompts per step")
    parser.add_argument("--tokens", type=int, default=0, help="only the case with completions of this length")
    parser.add_argument("--output", default="training_step.json")
    options = parser.parse_args()
    import torch
    from transformers import AutoTokenizer

    from recollect.models.files import path_of

    threads = options.threads or torch.get_num_threads()
    about = machine(threads)
    folder = path_of(MODEL)
    work = Work(
        model=str(folder),
        texts=tuple(prompts(AutoTokenizer.from_pretrained(folder), 64, PROMPT_TOKENS)),
        threads=threads,
        prompts=options.prompts,
        group=8,
        tokens=0,
        trl_micro_batch=options.trl_micro_batch,
        trl_autocast=not options.trl_no_autocast,
    )
    chosen = [case for case in CASES if options.tokens in (0, case.tokens)]
    begun = time.perf_counter()
    results = []
    for number, case in enumerate(chosen):
        limit = begun + options.seconds * (1.0 if number + 1 == len(chosen) else case.until)
        results.append(measure(replace(work, tokens=case.tokens), options.trl_python, case.rounds, limit))

    table = Table(
        title=f"One GRPO step, {MODEL}, bf16, LoRA, {threads} threads, {options.prompts} prompts x 8 completions"
    )
    for column in (
        "completion",
        "rounds",
        "TRL, s",
        "ours, s",
        "times as fast",
        "in CPU time",
        "TRL, GB",
        "ours, GB",
        "memory",
    ):
        table.add_column(column, justify="right")
    for result in results:
        times, seconds, peak = result["speedup"], result["seconds"], result["peak_rss_bytes"]
        table.add_row(
            f"{result['case']['tokens']} tokens",
            str(result["rounds"]),
            f"{statistics.median(seconds['theirs']):.1f}",
            f"{statistics.median(seconds['ours']):.1f}",
            f"{times['median']:.2f} ({times['lowest']:.2f} to {times['highest']:.2f})",
            f"{result['speedup_in_cpu_seconds']['median']:.2f}",
            f"{peak['theirs'] / 1e9:.2f}",
            f"{peak['ours'] / 1e9:.2f}",
            f"{result['memory_ratio']:.2f}x",
        )
    Console(width=130).print(table)
    path = write(
        options.output,
        {
            "what": "one GRPO step beside TRL's GRPOTrainer (theirs): sampling, reward and update",
            "model": MODEL,
            "dtype": "bf16",
            "prompt_tokens": PROMPT_TOKENS,
            "machine": about,
            "results": results,
        },
    )
    Console().print(f"written to {path}")


if __name__ == "__main__":
    main()
