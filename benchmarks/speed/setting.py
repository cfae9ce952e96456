"""What every speed measurement shares: real prompts of a fixed length, ratios with intervals, and a record of the machine."""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from keepworth.base.statistics import interval

MODEL = "smollm2-135m-instruct"
HERE = Path(__file__).parent
PACKAGES = ("torch", "transformers", "tokenizers", "peft")


def prompts(tokenizer: Any, count: int, length: int) -> list[str]:
    """`count` excerpts of LongMemEval conversations, each of exactly `length` tokens and unlike the others.

    Each encodes to the same ids after decoding, so that tools that take text and tools that take ids read the same.
    """
    texts: list[str] = []
    for text in _conversations():
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:length]
        excerpt = tokenizer.decode(ids)
        if len(ids) == length and tokenizer(excerpt, add_special_tokens=False)["input_ids"] == ids:
            texts.append(excerpt)
        if len(texts) == count:
            return texts
    raise ValueError(f"LongMemEval's train conversations hold only {len(texts)} excerpts of {length} tokens")


def _conversations() -> Iterator[str]:
    from keepworth.worlds.data_sets.longmemeval import longmemeval

    seen: set[str] = set()
    for task in longmemeval("train"):
        for session in task.sessions:
            if session.id not in seen:
                seen.add(session.id)
                yield "\n".join(f"{turn.speaker}: {turn.text}" for turn in session.turns)


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times faster ours is: geometric mean of the paired ratios, with the 95 % interval of their logarithms' mean; as
    wide as can be from one round."""
    logs = [math.log(a / b) for a, b in zip(theirs, ours, strict=True)]
    mean = math.exp(statistics.fmean(logs))
    if len(logs) < 2:
        return {"mean": mean, "low": 0.0, "high": math.inf}
    ends = interval(logs)
    return {"mean": mean, "low": math.exp(ends.low), "high": math.exp(ends.high)}


def timed(call: Callable[[], object]) -> dict[str, float]:
    """Seconds of one call: on the wall, and on this process's processors, which hardly feel a busy machine."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def machine(threads: int, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """What a reader needs to judge a number: processor, threads, load at the start, versions, revision, time."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_average_at_start": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in (*packages, "keepworth")},
        "revision": _revision(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        parts = {key.strip(): value.strip() for key, value in fields.items()}
        family = f"family {parts['cpu family']} model {parts['model']}" if "cpu family" in parts else ""
        bf16 = "avx512_bf16" if "avx512_bf16" in parts.get("flags", "") else "no native bf16"
        amx = ", amx_bf16" if "amx_bf16" in parts.get("flags", "") else ""
        return f"{parts.get('model name', platform.machine())} ({family}, {bf16}{amx})"
    return platform.processor() or platform.machine()


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
