"""One update by 1, 2 and 4 learner processes: what each computes, what they send each other, and how the results differ.

    python -m benchmarks.speed.learners [--json FILE]

SmolLM2-135M in float32 with a LoRA adapter of rank 16, 4 groups of 4 answers of 64 tokens behind prompts of 200, the first GRPO
update. The same answers for all, drawn once. Each process has one thread. A first update, whose kernels are built meanwhile, is
undone and not counted. Processor seconds are those of a process: where there are more processes than cores, they take turns, and
seconds on the wall say little. Writes `learners.json`.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.speed.setting import HERE, MODEL, machine, prompts
from keepworth.cluster.local import LocalCluster
from keepworth.episodes import Episode, Group, RewardTerm, SamplingParams, Segment, StopReason
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.learner_group import Company, Follower, LeadingLearner
from keepworth.learning.objective.batch import micro_batches, rows_of
from keepworth.learning.objective.presets import preset, without_kl
from keepworth.learning.placement import Part
from keepworth.learning.shares import Shares
from keepworth.models.adapter import attach_lora
from keepworth.models.files import path_of
from keepworth.models.inprocess import InProcessModel

GROUPS, SIZE, PROMPT, ANSWER, RANK, BUDGET = 4, 4, 200, 64, 16, 1024
COUNTS = (1, 2, 4)
UPDATES = 3
SUMS = 9
ROLE = "policy"
FILE = HERE / "learners.json"


def parts() -> tuple[Any, ...]:
    torch.set_num_threads(1)
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="fp32")
    named = attach_lora(model, rank=RANK, alpha=2.0 * RANK, seed=0)
    how = Optimisation(learning_rate=1e-4, token_budget=BUDGET, checkpointing="off")
    return model, named, without_kl(preset("grpo")), how, ROLE


class Measured(Follower):
    """A follower that says what its last update took."""

    processor = 0.0

    def act(self, call: str, *given: Any) -> list[int] | str:
        begun = time.process_time()
        answer = super().act(call, *given)
        self.processor = time.process_time() - begun
        return answer

    def spent(self) -> float:
        return self.processor

    def add(self, numbers: int) -> None:
        assert self._gloo is not None
        sums(self._gloo, numbers)


def follower(rank: int, count: int) -> Measured:
    return Measured(Learner(*parts(), shares=Shares(rank, count)))


def sums(gloo: Any, numbers: int) -> list[float]:
    """Seconds of sums of so many float32 numbers, one after the other."""
    taken, flat = [], torch.zeros(numbers)
    for _ in range(SUMS):
        begun = time.perf_counter()
        gloo.add(flat)
        taken.append(time.perf_counter() - begun)
    return taken


def drawn() -> list[Group]:
    model = InProcessModel.load(path_of(MODEL), name=MODEL, precision="fp32")
    ids = [model.encode(text) for text in prompts(model.tokenizer, GROUPS, PROMPT)]
    samples = model.sample(ids, SamplingParams(ANSWER, n=SIZE, seed=0))
    return [
        Group(
            str(number),
            "",
            tuple(
                Episode(
                    id=f"{number}/{j}",
                    task=str(number),
                    role=ROLE,
                    question="",
                    segments=(Segment(ROLE, "", prompt, s.ids, s.logprobs, 1.0, s.finish, s.spans, ""),),
                    answer="",
                    expected=(),
                    rewards=(RewardTerm("r", float(j)),),
                    stop=StopReason.MAX_TOKENS,
                    memory_snapshot="",
                    policy_version=0,
                )
                for j, s in enumerate(own)
            ),
        )
        for number, (prompt, own) in enumerate(zip(ids, samples, strict=True))
    ]


def measure(count: int, groups: list[Group], logs: Path) -> dict[str, Any]:
    """Updates from the same weights; gradients and weights are those of the last."""
    if count == 1:
        learner: Learner = Learner(*parts())
    else:
        part = Part("benchmarks.speed.learners:follower", {})
        learner = LeadingLearner(*parts(), company=Company(LocalCluster(logs), part, count, print))
    start, gradients = copy.deepcopy(learner.state()), []
    summed = learner.shares.summed

    def kept(own: Any, like: Any) -> Any:
        found = summed(own, like)
        gradients[:] = [None if each is None else each.clone() for each in found]
        return found

    learner.shares.summed = kept  # type: ignore[method-assign]
    rows = rows_of(groups, [ROLE], 0)
    batches = micro_batches(rows.contexts, rows.answers, range(rows.batch.shape[0]), learner.room, count)
    updates, found = [], {}
    for number in range(UPDATES + 1):
        learner.load(copy.deepcopy(start))
        if isinstance(learner, LeadingLearner):
            learner._begin()  # workers that stand are no part of an update
            before = learner._gloo.bytes if learner._gloo else 0
        wall, cpu = time.perf_counter(), time.process_time()
        measured = learner.update(groups)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if number:
            one = {"wall": wall, "cpu": [cpu], "norm": measured["gradient_norm"]}
            if isinstance(learner, LeadingLearner):
                assert learner._gloo is not None
                one["cpu"] += [each.call("spent").result() for each in learner._others]
                one |= {"bytes": learner._gloo.bytes - before, "waiting": measured["seconds/all_reduce"]}
            updates.append(one)
    if isinstance(learner, LeadingLearner):
        numbers = sum(value.numel() for value in learner.master_weights.named.values())
        asked = [each.call("add", numbers) for each in learner._others]
        found["sums"] = sums(learner._gloo, numbers)
        for each in asked:
            each.result()
    learner.close()
    found |= {"learners": count, "micro_batches": len(batches), "updates": updates}
    found["gradients"] = gradients
    found["weights"] = [value.detach().clone() for value in learner.master_weights.named.values()]
    return found


def difference(ours: list[Any], theirs: list[Any]) -> dict[str, float]:
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
    return {
        "largest": max(float((a - b).abs().max()) for a, b in both),
        "of": max(float(b.abs().max()) for _, b in both),
        "numbers_that_differ": sum(int((a != b).sum()) for a, b in both),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=FILE, help="the file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = machine(1)
    groups = drawn()
    with TemporaryDirectory() as logs:
        results = [measure(count, groups, Path(logs)) | {"load": os.getloadavg()[0]} for count in COUNTS]
    alone = results[0]["gradients"], results[0]["weights"]
    numbers = sum(each.numel() for each in alone[1])
    for each in results:
        each["gradient_difference"] = difference(each.pop("gradients"), alone[0])
        each["weight_difference"] = difference(each.pop("weights"), alone[1])
    table = Table(title=f"One update, {numbers:,} trained numbers")
    for column in (
        "learners",
        "micro-batches",
        "CPU s of each",
        "wall s",
        "MB",
        "a sum alone, ms",
        "gradients",
        "weights",
    ):
        table.add_column(column, justify="right")
    for each in results:
        ranks = zip(*(update["cpu"] for update in each["updates"]), strict=True)
        table.add_row(
            str(each["learners"]),
            str(each["micro_batches"]),
            ", ".join(f"{statistics.median(rank):.1f}" for rank in ranks),
            f"{statistics.median(update['wall'] for update in each['updates']):.1f}",
            f"{each['updates'][0].get('bytes', 0) / 1e6:.1f}",
            f"{1e3 * statistics.median(each.get('sums', [0.0])):.0f}",
            f"{each['gradient_difference']['largest']:.1g}",
            f"{each['weight_difference']['largest']:.1g}",
        )
    Console(width=140).print(table)
    record = {
        "what": "one update by several learner processes",
        "model": MODEL,
        "dtype": "float32",
        "groups": GROUPS,
        "group_size": SIZE,
        "prompt_tokens": PROMPT,
        "answer_tokens": ANSWER,
        "rank": RANK,
        "token_budget": BUDGET,
        "trained_numbers": numbers,
        "machine": about,
        "results": results,
    }
    options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
