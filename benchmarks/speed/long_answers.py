"""Memory and seconds of a step with long answers: one group sampled, and learned from, in a process of its own.

python -m benchmarks.speed.long_answers [--precision fp32] [--threads 1] [--only 8x1024] [--learning]

Answers are of exactly the stated length (nothing stops them) and rewards are random: what is computed does not depend on
either. Memory is the largest resident size while sampling and while learning, told apart by resetting the system's mark. Each
case is kept in `long_answers.json` as soon as it is measured; a case that is there is measured again. --learning: answers are
of random tokens, and nothing is sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.speed.setting import HERE, MODEL, machine

PROMPT_TOKENS = 400
FILE = HERE / "long_answers.json"
MARK = "@long-answers "


@dataclass(frozen=True, slots=True)
class Case:
    """prompts: groups of a step."""

    prompts: int
    group: int
    tokens: int
    token_budget: int
    checkpointing: str = "auto"
    sampled: bool = True

    @property
    def name(self) -> str:
        return f"{self.prompts}x{self.group}x{self.tokens}, {self.token_budget}, {self.checkpointing}"


CASES = (
    Case(1, 8, 256, 4096, "off"),
    Case(1, 8, 256, 2048),
    Case(1, 8, 1024, 8800, "off"),
    Case(1, 8, 1024, 2048),
    Case(1, 2, 4096, 2048),
    Case(1, 4, 4096, 2048),
    Case(2, 8, 1024, 4096),
)


def measure(case: Case, precision: str, threads: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    from keepworth.episodes.episode import Episode, Group, RewardTerm, Segment, StopReason
    from keepworth.episodes.model import FinishReason, Sample, SamplingParams, VersionSpan
    from keepworth.learning.learner import Learner, Optimisation
    from keepworth.learning.objective.batch import micro_batches
    from keepworth.learning.objective.presets import preset, without_kl
    from keepworth.models.adapter import attach_lora
    from keepworth.models.files import path_of
    from keepworth.models.inprocess import InProcessModel

    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision=precision)  # type: ignore[arg-type]
    named = attach_lora(model, rank=16, alpha=32.0)
    how: Any = case.checkpointing
    settings = Optimisation(learning_rate=1e-5, token_budget=case.token_budget, checkpointing=how)
    learner = Learner(model, named, without_kl(preset("grpo")), settings, "policy")
    generator = torch.Generator().manual_seed(0)
    prompts = [
        tuple(torch.randint(1000, 40000, (PROMPT_TOKENS,), generator=generator).tolist()) for _ in range(case.prompts)
    ]
    rewards = torch.rand(case.prompts, case.group, generator=generator).tolist()
    model.sample(prompts[:1], SamplingParams(2, n=2))  # kernels are built at the first pass
    room = learner.room
    loaded = _resident("VmRSS")

    def random(_: object) -> Sample:
        ids = tuple(torch.randint(1000, 40000, (case.tokens,), generator=generator).tolist())
        return Sample(ids, (-10.0,) * case.tokens, FinishReason.LENGTH, (VersionSpan(0, 0, case.tokens),))

    if case.sampled:
        drawn, sampling = _watched(lambda: model.sample(prompts, SamplingParams(case.tokens, n=case.group)))
    else:
        drawn, sampling = [list(map(random, range(case.group))) for _ in prompts], None
    assert {len(sample.ids) for samples in drawn for sample in samples} == {case.tokens}

    def episode(number: int, index: int) -> Episode:
        sample = drawn[number][index]
        return Episode(
            id=f"{number}/{index}",
            task=str(number),
            role="policy",
            question="",
            segments=(
                Segment(
                    "policy", "p", prompts[number], sample.ids, sample.logprobs, 1.0, sample.finish, sample.spans, ""
                ),
            ),
            answer="",
            expected=(),
            rewards=(RewardTerm("random", rewards[number][index]),),
            stop=StopReason.MAX_TOKENS,
            memory_snapshot="",
            policy_version=0,
        )

    groups = [
        Group(str(number), "", tuple(episode(number, index) for index in range(case.group)))
        for number in range(case.prompts)
    ]
    flat = [(prompts[number], sample.ids) for number in range(case.prompts) for sample in drawn[number]]
    parts = micro_batches([prompt for prompt, _ in flat], [ids for _, ids in flat], range(len(flat)), room)
    metrics, learning = _watched(lambda: learner.update(groups))
    return {
        "loaded_bytes": loaded,
        "sampling": sampling,
        "learning": learning,
        "micro_batches": len(parts),
        "recomputed": sum(part.recompute for part in parts),
        "bytes_of_a_token": {"plain": room.token_bytes.plain, "recomputed": room.token_bytes.recomputed}
        if how != "off"
        else None,
        "gradient_norm": metrics["gradient_norm"],
        "mismatch_mean": metrics["mismatch_mean"],
    }


def _watched(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    Path("/proc/self/clear_refs").write_text("5")  # the mark of the largest resident size starts afresh
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return result, {**spent, "peak_bytes": _resident("VmHWM")}


def _resident(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--learning", action="store_true", help="learn from random tokens, sample nothing")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # a process of this benchmark's own
    options = parser.parse_args()
    if options.case:
        print(MARK + json.dumps(measure(Case(**json.loads(options.case)), options.precision, options.threads)))
        return
    for each in CASES:
        case = replace(each, sampled=not options.learning)
        if options.only in case.name:
            about = machine(options.threads)
            command = [sys.executable, "-m", "benchmarks.speed.long_answers", "--case", json.dumps(asdict(case))]
            command += ["--precision", options.precision, "--threads", str(options.threads)]
            threads = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=threads)
            (line,) = (line for line in done.stdout.splitlines() if line.startswith(MARK))
            record = json.loads(FILE.read_text()) if FILE.exists() else {"model": MODEL, "prompt_tokens": PROMPT_TOKENS}
            measured = {**asdict(case), "dtype": options.precision, **json.loads(line[len(MARK) :]), "machine": about}
            known = {**record.get("cases", {}), case.name: measured}
            record["cases"] = {one.name: known[one.name] for one in CASES if one.name in known}
            FILE.write_text(json.dumps(record, indent=2) + "\n")
            print(case.name, line, flush=True)


if __name__ == "__main__":
    main()
