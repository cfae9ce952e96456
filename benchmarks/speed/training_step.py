"""Seconds and memory of one GRPO step beside TRL's `GRPOTrainer` doing the same work.

The same checkpoint folder, bf16, threads, prompts of 400 tokens, groups of 8, completions of exactly the stated length, a LoRA
adapter of rank 16 on every linear layer, no KL, one optimiser update per step. A step is everything: encoding, sampling,
decoding, reward, advantages, forward, backward, AdamW. Each side is a process of its own, which is begun anew for every
measurement, so that only one is in memory and its peak resident size is its own. The first step of a process, of 16 tokens,
is a warm-up and not counted.

First TRL's settings are compared (`setting_rows`); the fastest stands beside ours, and once more with gradient checkpointing,
which is TRL's default. What ours takes with its layers recomputed, too, is measured in rows of its own. A process that needs
more memory than the machine has fails; TRL then takes half as many completions per backward pass, and the row says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.rows import Call, DoesNotFit, Row, of_side
from benchmarks.speed.setting import HERE, MODEL, prompts
from benchmarks.speed.training_protocol import MARK, Work

PROMPT_TOKENS, GROUP = 400, 8
OURS, TRL, CHECKPOINTING = "ours", "TRL", "TRL, gradient checkpointing"
RECOMPUTED = "ours, layers recomputed"
CASES = {(2, 16): (3, 4.0), (2, 64): (3, 4.5), (2, 256): (3, 8.0), (1, 1024): (3, 11.0)}
"""(prompts, tokens of a completion): (rounds, minutes of one on two cores)."""
RECOMPUTED_MINUTES = {(2, 16): 0.6, (2, 64): 0.9, (2, 256): 2.0, (1, 1024): 4.0}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "autocast, 8 per pass": {},
    "autocast, 16 per pass": {"trl_micro_batch": 16},
    "autocast, 4 per pass": {"trl_micro_batch": 4},
    "bfloat16 without autocast, 8 per pass": {"trl_autocast": False},
    "bfloat16 without autocast, 16 per pass": {"trl_autocast": False, "trl_micro_batch": 16},
    "float32, 8 per pass": {"trl_autocast": False, "trl_dtype": "float32"},
}
COMPARED_AT = (2, 64)
"""Prompts, and tokens of a completion, with which TRL's settings are compared."""
SHARE_OF_MEMORY = 0.95
"""Of what is available, a process may allocate."""


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

    def step(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        """The next answer. Raises DoesNotFit where the process ended for want of memory."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                values: dict[str, Any] = json.loads(line[len(MARK) :])
                return values
        code = self._process.wait()
        self._log.seek(0)
        log = self._log.read()
        wanting = ("can't allocate memory", "could not create a memory", "MemoryError", "bad_alloc")
        if code in (-9, 137) or any(words in log for words in wanting):
            raise DoesNotFit("needs more memory than there is")
        raise RuntimeError(f"{self._process.args[2]} ended before it answered:\n{log[-3000:]}")  # type: ignore[index]

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # in the middle of a step that nobody waits for any more
            self._process.kill()
            self._process.wait()


def one_step(python: str, module: str, work: Work) -> dict[str, Any]:
    """Seconds and peak memory of a step after the warm-up, in a process that is begun for it."""
    if work.device == "cpu":  # a GPU's driver reserves more addresses than there is memory
        work = replace(work, memory=int(SHARE_OF_MEMORY * _available_memory()))
    with tempfile.TemporaryFile("w+") as log:
        side = Side(python, f"benchmarks.speed.{module}", work, log)
        with contextlib.closing(side):
            side.step()
            return {**side.step(), **side.about}


def fitting_step(python: str, module: str, work: Work) -> dict[str, Any]:
    """The same, with half as many completions per backward pass of TRL until it fits."""
    try:
        return {**one_step(python, module, work), "micro_batch": work.trl_micro_batch}
    except DoesNotFit:
        if work.trl_micro_batch == 1:
            raise
        return fitting_step(python, module, replace(work, trl_micro_batch=work.trl_micro_batch // 2))


def setting_rows(trl_python: str) -> list[Row]:
    return [_row("trl settings", COMPARED_AT, (3, 11.0), partial(_settings, trl_python))]


def best_setting(trl_python: str) -> str:
    """The fastest of TRL's settings, by the median of its rounds. Raises SystemExit where they were not compared."""
    (row,) = setting_rows(trl_python)
    rounds = row.record()["rounds"]
    if len(rounds) < row.rounds:
        raise SystemExit(
            f"TRL's settings come first: python -m benchmarks.speed.run --only '{row.table}' --trl-python ..."
        )
    there = [name for name in SETTINGS if all(name in round_number["sides"] for round_number in rounds)]
    return min(there, key=lambda name: statistics.median(side["wall"] for side in of_side(row.record(), name)))


def rows(trl_python: str) -> list[Row]:
    return [
        _row("training step", case, effort, partial(_beside_trl, trl_python, case)) for case, effort in CASES.items()
    ]


def recomputed_rows() -> list[Row]:
    """Our step with each layer computed again in the backward pass, beside the plain one."""
    return [
        _row("step recomputed", case, (3, minutes), partial(_recomputed, case))
        for case, minutes in RECOMPUTED_MINUTES.items()
    ]


def _row(table: str, case: tuple[int, int], effort: tuple[int, float], opened: Any) -> Row:
    count, tokens = case
    about = {"prompts": count, "group": GROUP, "tokens": tokens, "prompt_tokens": PROMPT_TOKENS}
    return Row(table, f"{count} x {GROUP} x {tokens}", *effort, opened, about)


@contextmanager
def _settings(trl_python: str, threads: int) -> Iterator[Mapping[str, Call]]:
    work = work_of(*COMPARED_AT, threads)
    yield {
        name: partial(one_step, trl_python, "training_trl", replace(work, **changes))
        for name, changes in SETTINGS.items()
    }


@contextmanager
def _beside_trl(trl_python: str, case: tuple[int, int], threads: int) -> Iterator[Mapping[str, Call]]:
    work = work_of(*case, threads)
    setting = best_setting(trl_python)
    theirs = replace(work, **SETTINGS[setting])
    (row,) = (row for row in rows(trl_python) if (row.about["prompts"], row.about["tokens"]) == case)

    def trl(name: str) -> dict[str, Any]:
        # What fitted in an earlier round is not searched for again.
        rounds = of_side(row.record(), name)
        passes = rounds[-1]["micro_batch"] if rounds else theirs.trl_micro_batch
        asked = replace(theirs, trl_checkpointing=name == CHECKPOINTING, trl_micro_batch=passes)
        return {**fitting_step(trl_python, "training_trl", asked), "setting": setting}

    yield {
        OURS: partial(one_step, sys.executable, "training_ours", work),
        TRL: partial(trl, TRL),
        CHECKPOINTING: partial(trl, CHECKPOINTING),
    }


@contextmanager
def _recomputed(case: tuple[int, int], threads: int) -> Iterator[Mapping[str, Call]]:
    work = work_of(*case, threads)
    yield {
        OURS: partial(one_step, sys.executable, "training_ours", work),
        RECOMPUTED: partial(one_step, sys.executable, "training_ours", replace(work, recomputed=True)),
    }


def work_of(count: int, tokens: int, threads: int) -> Work:
    from transformers import AutoTokenizer

    from keepworth.base.model_files import path_of

    folder = path_of(MODEL)
    texts = tuple(prompts(AutoTokenizer.from_pretrained(folder), 2 * count, PROMPT_TOKENS))
    return Work(model=str(folder), texts=texts, threads=threads, prompts=count, group=GROUP, tokens=tokens)


def _available_memory() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024
