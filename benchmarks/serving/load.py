"""Requests that arrive in bursts: how long callers wait for the in-process model, and what slots, refilling, a kept beginning and
weights in 8 bits change.

    python -m benchmarks.serving.load [--seconds 230]     # again, until nothing is left
    python -m benchmarks.serving.page

Arrivals have Gamma gaps of one mean: shape 0.25 is bursty, 1 is random (Poisson), 4 is nearly regular (the workload of arXiv
2510.18672). The mean gap is what a request takes alone, over LOAD. Each request is drawn at temperature 1, to the length that its
prompt and seed gave it alone. So every arm draws the same tokens, but for rounding and for what 8 bits change.

There is one thread and no network: requests are added as they are due, and the server is told to do its next step. Computing
takes the time that it takes on the wall. Time in which nothing is to be done is skipped, so a run is as long as its computing.

Writes load.json after each run, and begins no run after so many seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.asynchrony.setting import small
from benchmarks.serving.requests import MOST_TOKENS, questions
from benchmarks.serving.servers import Arm, Server, Servers
from benchmarks.speed.setting import machine
from keepworth.episodes import SamplingParams
from keepworth.episodes.model import Tokens
from keepworth.models.inprocess import ContinuousBatch, InProcessModel, PartialSample

PATH = Path(__file__).with_name("load.json")
SHAPES = (0.25, 1.0, 4.0)
LOAD, REQUESTS, SEEDS, FIRST_SEED = 0.8, 34, 2, 17


ARMS = (
    Arm("whole answers, one at a time"),
    Arm("4 slots", 4),
    Arm("16 slots", 16),
    Arm("4 slots, refilled when all are free", 4, refill=4),
    Arm("16 slots, kept beginning", 16, keeps=True),
    Arm("16 slots, 8 bits", 16, rounded=True),
)
ALL_SHAPES = 3
"""So many arms meet every shape; the others meet bursts."""


# -- arrivals -----------------------------------------------------------------------------------------------------------------


def arrivals(shape: float, mean: float, count: int, seed: int) -> list[float]:
    """When each request is due, in seconds. Gamma gaps of this shape, scaled to exactly this mean, so that all shapes have the
    same load."""
    drawn = np.random.default_rng((seed, count)).gamma(shape, 1.0, count)
    due: list[float] = np.cumsum(drawn * (mean * count / drawn.sum())).tolist()
    return due


class Clock:
    """Seconds of computing and waiting. Waiting takes no time: it is skipped."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def skip_to(self, when: float) -> None:
        self._start -= max(0.0, when - self.now())


# -- a run --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """When it began, what it took, sequences that were drawn for, their tokens with prompts, bytes set aside for them."""

    begun: float
    seconds: float
    live: int
    tokens: int
    reserved: int


@dataclass(slots=True)
class Served:
    """Seconds from when each request was due to its first and its last token, as its caller gets them."""

    first: list[float]
    last: list[float]
    steps: list[Step] = field(default_factory=list)


def serve(server: Server, drafts: Sequence[PartialSample], due: Sequence[float], clock: Clock) -> Served:
    """Requests to their ends; `due` rises."""
    first: dict[PartialSample, float] = {}
    last: dict[PartialSample, float] = {}
    steps = []
    coming = deque(zip(due, drafts, strict=True))
    while coming or server.busy:
        while coming and coming[0][0] <= clock.now():
            server.add(coming.popleft()[1])
        if not server.busy:
            clock.skip_to(coming[0][0])
            continue
        begun = clock.now()
        ended = server.step()
        now = clock.now()
        running = [*server.live, *ended]
        for draft in running:
            first.setdefault(draft, now)
        last |= dict.fromkeys(ended, now)
        tokens = sum(len(each.prompt) + len(each.ids) for each in running)
        steps.append(Step(begun, now - begun, len(running), tokens, reserved(server)))
    return Served(
        [first[draft] - when for draft, when in zip(drafts, due, strict=True)],
        [last[draft] - when for draft, when in zip(drafts, due, strict=True)],
        steps,
    )


def reserved(server: Server) -> int:
    """Bytes of the buffers of keys and values; 0 for a server whose buffers cannot be seen."""
    if not isinstance(server, ContinuousBatch):
        return 0
    layers = server._cache.layers.layers
    return sum(each.keys.nbytes + each.values.nbytes for each in layers if each.is_initialized)


def memory(steps: Sequence[Step], token_bytes: int, marks: int = 40) -> dict[str, Any]:
    """Bytes of the keys and values in use, over all time from the first request to the last answer, and how unevenly: idle time
    counts as nothing in use. one_live: the share of the time of computing with one sequence."""
    busy = sum(each.seconds for each in steps)
    whole = steps[-1].begun + steps[-1].seconds - steps[0].begun
    mean = sum(each.seconds * each.tokens for each in steps) / whole
    square = sum(each.seconds * each.tokens**2 for each in steps) / whole
    return {
        "busy_seconds": busy,
        "whole_seconds": whole,
        "one_live": sum(each.seconds for each in steps if each.live == 1) / busy,
        "live": sum(each.seconds * each.live for each in steps) / busy,
        "bytes_mean": mean * token_bytes,
        "bytes_deviation": max(0.0, square - mean**2) ** 0.5 * token_bytes,
        "bytes_highest": max(each.tokens for each in steps) * token_bytes,
        "bytes_reserved": max(each.reserved for each in steps),
        "bytes_over_time": [
            [round(each.begun - steps[0].begun, 2), each.tokens * token_bytes]
            for each in steps[:: max(1, len(steps) // marks)]
        ],
    }


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first tokens are the same."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def kept_bytes(model: InProcessModel) -> int:
    """Of a token's keys and values while they are drawn on: float32, whatever the weights are."""
    config = model.network.config
    return 2 * 4 * int(config.num_hidden_layers * config.num_key_value_heads * config.head_dim)


@dataclass(frozen=True, slots=True)
class Request:
    """answer: what the prompt and the seed give alone."""

    prompt: Tokens
    seed: int
    answer: Tokens

    def draft(self) -> PartialSample:
        return PartialSample(self.prompt, SamplingParams(len(self.answer), seed=self.seed), (0, 0))


def measure(
    servers: Servers, arm: Arm, asked: Sequence[Request], shape: float, gap: float, seed: int
) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(asked)).tolist()
    requests = [asked[i] for i in order]
    drafts = [each.draft() for each in requests]
    load, cpu = os.getloadavg()[0], time.process_time()
    with servers.open(arm) as server:
        served = serve(server, drafts, arrivals(shape, gap, len(drafts), seed), Clock())
    cpu = time.process_time() - cpu
    return {
        "arm": arm.name,
        "shape": shape,
        "seed": seed,
        "load_average": load,
        "cpu_seconds": cpu,
        "first": served.first,
        "last": served.last,
        "tokens": [len(each.ids) for each in drafts],
        "same_answers": sum(tuple(a.ids) == b.answer for a, b in zip(drafts, requests, strict=True)),
        "same_tokens": sum(common(a.ids, b.answer) for a, b in zip(drafts, requests, strict=True)),
        **memory(served.steps, kept_bytes(servers.model)),
    }


def alone(servers: Servers, prompts: Sequence[Tokens]) -> dict[str, Any]:
    """What each prompt and its seed give, to the end of a line, and the seconds that it took."""
    stops = servers.model.stop_ids_for("\n")
    answers, seconds = [], []
    for index, prompt in enumerate(prompts):
        begun = time.perf_counter()
        (sample,) = servers.model.sample([prompt], SamplingParams(MOST_TOKENS, seed=index, stop_ids=stops))[0]
        seconds.append(time.perf_counter() - begun)
        answers.append(sample.ids)
    return {"answers": answers, "seconds": seconds}


def warm(servers: Servers, prompts: Sequence[Tokens]) -> None:
    """Kernels are built and weights are copied at first use."""
    for arm in ARMS:
        with servers.open(arm) as server:
            drafts = [PartialSample(each, SamplingParams(2), (0, 0)) for each in prompts[:4]]
            serve(server, drafts, [0.0] * len(drafts), Clock())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=230.0)
    options = parser.parse_args()
    begun = time.perf_counter()
    torch.set_num_threads(1)
    setting = {"model": "smollm2-135m-instruct", "requests": REQUESTS, "load": LOAD, "most_tokens": MOST_TOKENS}
    result: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {**setting, "runs": []}
    if any(result[name] != value for name, value in setting.items()):
        raise SystemExit(f"{PATH} holds runs of other requests: delete it to measure anew")
    servers = Servers(small())
    prompts = [each.prompt for each in questions(servers.model)[:REQUESTS]]
    warm(servers, prompts)
    print(f"warm after {time.perf_counter() - begun:.0f} s", flush=True)
    if "alone" not in result:
        result["machine"] = machine(1)
        result["prompts"] = {"tokens": [len(each) for each in prompts], "shared": len(servers.beginning)}
        result["alone"] = alone(servers, prompts)
        _write(result)
    known = result["alone"]
    asked = [Request(p, i, tuple(ids)) for i, (p, ids) in enumerate(zip(prompts, known["answers"], strict=True))]
    gap = sum(known["seconds"]) / len(asked) / LOAD
    done = {(each["arm"], each["shape"], each["seed"]) for each in result["runs"]}
    left = [
        (arm, shape, FIRST_SEED + seed)
        for seed in range(SEEDS)
        for shape in SHAPES
        for arm in ARMS[: None if shape == SHAPES[0] else ALL_SHAPES]
        if (arm.name, shape, FIRST_SEED + seed) not in done
    ]
    print(f"{gap * LOAD:.2f} s alone; {len(left)} runs left", flush=True)
    for count, (arm, shape, seed) in enumerate(left):
        if time.perf_counter() - begun > options.seconds:
            print(f"{len(left) - count} runs left: start the same command again", flush=True)
            return
        row = measure(servers, arm, asked, shape, gap, seed)
        result["runs"].append(row)
        _write(result)
        middle = {name: [round(each, 2) for each in np.percentile(row[name], (50, 95))] for name in ("first", "last")}
        print(seed, shape, arm.name, middle, row["same_answers"], f"{row['busy_seconds']:.0f} s", flush=True)


def _write(result: dict[str, Any]) -> None:
    PATH.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
