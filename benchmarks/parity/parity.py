"""Our learner beside TRL's `GRPOTrainer` on the same completions, in float32: gradients and weights.

    pip install trl datasets          # or give --trl-python, a Python that has them (and the same torch)
    python -m benchmarks.parity.parity [--trl-python PATH] [--steps 20] [--only grpo]

For every case, TRL takes `steps` steps of SGD and writes its weights and gradients. Then, from TRL's weights before each
batch, our learner makes the same steps: the gradients' relative difference (norm of the difference by norm) is the
largest over all of them. Last, ours goes through all the steps on its own: the final weights' difference is relative to
how far they moved. Equal losses would say little: on-policy, they are about 0 by construction.
Prints a table and writes `parity.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.parity.work import CASES, END, GROUP, LONGEST, PROMPTS, WORDS, Case, Work, reward, save_checkpoint
from benchmarks.speed.setting import machine
from keepworth.episodes import Episode, FinishReason, Group, RewardTerm, Segment, StopReason, VersionSpan
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.objective.presets import preset
from keepworth.models.adapter import unfreeze
from keepworth.models.inprocess import InProcessModel

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
Named = dict[str, torch.Tensor]


def batches(steps: int, seed: int = 0) -> tuple[list[list[int]], list[list[list[list[int]]]]]:
    """Prompts of unequal lengths, and ragged completions, some ended and some cut off."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(3, WORDS, (count,), generator=generator).tolist()

    prompts = [ids(6), ids(9)][:PROMPTS]
    made = []
    for _ in range(steps):
        lengths = torch.randint(2, LONGEST + 1, (PROMPTS, GROUP), generator=generator).tolist()
        made.append([[[*ids(n - 1), END] if n < LONGEST else ids(n) for n in group] for group in lengths])
    return prompts, made


def groups(model: InProcessModel, work: Work, number: int) -> list[Group]:
    """The completions of one batch as episodes. Behaviour log-probabilities are read by no case here."""
    found = []
    for index, (prompt, completions) in enumerate(zip(work.prompts, work.batches[number], strict=True)):
        episodes = []
        for member, ids in enumerate(completions):
            finish = FinishReason.STOP if ids[-1] == END else FinishReason.LENGTH
            spans = (VersionSpan(model.version, 0, len(ids)),)
            segment = Segment("p", "", tuple(prompt), tuple(ids), (-1.0,) * len(ids), 1.0, finish, spans, "")
            episodes.append(
                Episode(
                    id=f"{number}/{index}/{member}",
                    task=str(index),
                    role="p",
                    question="",
                    segments=(segment,),
                    answer="",
                    expected=(),
                    rewards=(RewardTerm("r", reward(ids)),),
                    stop=StopReason.COMPLETED,
                    memory_snapshot="",
                    policy_version=model.version,
                )
            )
        found.append(Group(str(index), "", tuple(episodes)))
    return found


class Ours:
    """A learner with plain SGD whose gradients can be read."""

    def __init__(self, work: Work) -> None:
        case = work.case
        self.work = work
        self.model = InProcessModel.load(work.folder, precision="fp32")
        optimisation = Optimisation(
            learning_rate=work.case["rate"], max_norm=1e9, token_budget=64, passes=case["passes"]
        )
        objective = preset(case["preset"], **case["changes"])
        self.learner = Learner(self.model, unfreeze(self.model), objective, optimisation, "p")
        masters = self.learner.master_weights
        masters.optimiser = torch.optim.SGD(masters.optimiser.param_groups[0]["params"], lr=work.case["rate"])  # type: ignore[assignment]
        self.gradients: list[Named] = []
        step = masters.step

        def recorded(scale: float = 1.0) -> float:
            self.gradients.append({name: value.grad.clone() for name, value in masters.named.items()})  # type: ignore[union-attr]
            return step(scale)

        masters.step = recorded  # type: ignore[method-assign]

    def put(self, weights: Named) -> None:
        masters = self.learner.master_weights.state()["master_weights"]
        with torch.no_grad():
            for name, value in self.learner.master_weights.named.items():
                value.copy_(weights[name])
                masters[name].copy_(weights[name])

    def update(self, number: int) -> list[Named]:
        self.gradients = []
        self.learner.update(groups(self.model, self.work, number))
        return self.gradients

    def weights(self) -> Named:
        return {name: value.detach().clone() for name, value in self.learner.master_weights.named.items()}


def norm(values: Named) -> float:
    return float(torch.cat([value.double().flatten() for value in values.values()]).norm())


def relative(ours: Named, theirs: Named, scale: Named | None = None) -> float:
    """Norm of the difference by the norm of `theirs` (or of `scale`)."""
    assert set(ours) == set(theirs), sorted(set(ours) ^ set(theirs))[:3]
    gap = {name: ours[name] - theirs[name] for name in theirs}
    return norm(gap) / max(norm(theirs if scale is None else scale), 1e-12)


def compare(case: Case, steps: int, python: str, seed: int = 0) -> dict[str, Any]:
    """Both sides through `steps` batches of one case. Raises RuntimeError with TRL's own words where it fails."""
    prompts, made = batches(steps, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(folder / "model", seed)
        work = Work(str(folder / "model"), prompts, made, asdict(case), str(folder / "theirs.pt"))
        work.save(folder / "work.json")
        done = subprocess.run(
            [python, "-m", "benchmarks.parity.theirs", str(folder / "work.json")],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": "src", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"TRL's side of {case.name!r} failed:\n{done.stderr[-3000:]}")
        theirs = torch.load(folder / "theirs.pt", weights_only=True)
        gaps = []
        for number in range(steps):
            ours = Ours(work)  # its reference, if any, is the checkpoint
            ours.put(theirs["weights"][number * case.passes])
            gradients = ours.update(number)
            assert len(gradients) == case.passes
            gaps += [
                relative(gradient, theirs["gradients"][number * case.passes + turn])
                for turn, gradient in enumerate(gradients)
            ]
        alone = Ours(work)
        start = alone.weights()
        for number in range(steps):
            alone.update(number)
        moved = {key: theirs["final"][key] - start[key] for key in start}
        return {
            "case": asdict(case),
            "gradients_compared": len(gaps),
            "largest_relative_difference_of_gradients": max(gaps),
            "relative_difference_of_final_weights": relative(alone.weights(), theirs["final"]),
            "relative_difference_of_the_way_moved": relative(alone.weights(), theirs["final"], moved),
            "way_moved": norm(moved),
            "trl": theirs["trl"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", default=sys.executable)
    parser.add_argument("--steps", type=int, default=10, help="batches; every batch is two SGD steps")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [case for case in CASES if options.only in case.name]
    results = [compare(case, options.steps, options.trl_python) for case in chosen]
    table = Table(title=f"Beside TRL {results[0]['trl']}, float32, {options.steps} batches, two SGD steps each")
    for column in ("case", "gradients: largest relative difference", "weights after all steps", "of the way moved"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result["case"]["name"],
            f"{result['largest_relative_difference_of_gradients']:.1e}",
            f"{result['relative_difference_of_final_weights']:.1e}",
            f"{result['relative_difference_of_the_way_moved']:.1e}",
        )
    Console(width=120).print(table)
    about = machine(1)
    (HERE / "parity.json").write_text(
        json.dumps({"what": __doc__, "steps": options.steps * 2, "machine": about, "results": results}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
