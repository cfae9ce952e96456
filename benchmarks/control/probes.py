"""How fast memories learn two tasks by supervision, and whether they stay bounded over 100,000 steps.

    python -m benchmarks.control.probes --json benchmarks/control/probes.json
    python -m benchmarks.control.probes --memories rotating_gates rotating_gates:turning=0 rotating_gates:turning=1

`order`: output the symbol of four steps ago (4 symbols, 52 steps, 64 sequences). `storage`: output the first symbol, which a flag
marks, of 128 steps (32 sequences, loss on the second half). Width 64, Adam with 3e-3, one thread, by default 20 seconds of
processor time each; fresh sequences every update, accuracy on the sequences of the next update before they are learned. Seed 0 is
not among the seeds: the readout of `rotating_gates` was chosen on it, in four tries.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.control.cells import Row, cell_arguments, collect
from keepworth.control import memory
from keepworth.control.memory_base import SequenceMemory
from keepworth.registry import methods

SYMBOLS, WIDTH, ENOUGH = 4, 64, 0.99


def order(draw: torch.Generator) -> tuple[Tensor, Tensor, slice]:
    """Inputs, wanted symbols, and the steps that count."""
    symbols = torch.randint(SYMBOLS, (64, 52), generator=draw)
    return flagged(symbols), symbols.roll(4, 1), slice(4, None)


def storage(draw: torch.Generator) -> tuple[Tensor, Tensor, slice]:
    """The same for the first symbol."""
    symbols = torch.randint(SYMBOLS, (32, 128), generator=draw)
    return flagged(symbols), symbols[:, :1].expand(-1, 128), slice(64, None)


def flagged(symbols: Tensor) -> Tensor:
    """One-hot symbols and 1 at the first step."""
    first = torch.zeros(*symbols.shape, 1)
    first[:, 0] = 1.0
    return torch.cat([nn.functional.one_hot(symbols, SYMBOLS).float(), first], 2)


TASKS = {"order": order, "storage": storage}


def named(word: str) -> tuple[str, dict[str, Any]]:
    """A memory's name, and the numbers that it is told after a colon: "rotating_gates:turning=0"."""
    name, _, words = word.partition(":")
    pairs = (setting.partition("=") for setting in words.split(",") if setting)
    return name, {key: int(value) if value.isdigit() else float(value) for key, _, value in pairs}


def build(word: str, size: int, width: int) -> SequenceMemory:
    """A memory as `named` reads it."""
    name, settings = named(word)
    return memory(name, size, width, **settings)


def learn(name: str, task: str, seconds: float, seed: int) -> dict[str, Any]:
    """Updates and seconds until accuracy reaches `ENOUGH`, or the last accuracy."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    network = nn.ModuleList([nn.Linear(SYMBOLS + 1, WIDTH), build(name, WIDTH, WIDTH), nn.Linear(WIDTH, SYMBOLS)])
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    began, updates, accuracy = time.process_time(), 0, 0.0
    while (spent := time.process_time() - began) < seconds:
        x, wanted, counted = TASKS[task](draw)
        logits = network[2](network[1](network[0](x))[0])[:, counted]
        accuracy = float((logits.argmax(-1) == wanted[:, counted]).float().mean())
        if accuracy >= ENOUGH:
            break
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted[:, counted].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        updates += 1
    return {"updates": updates, "seconds": round(spent, 1), "accuracy": round(accuracy, 3)}


def bounded(name: str, steps: int) -> dict[str, Any]:
    """The greatest number of outputs and states over the first and over the last tenth of so many steps of noise."""
    torch.manual_seed(0)
    module = build(name, 8, 32)
    state, sizes = module.initial_state(1), []
    with torch.no_grad():
        for _ in range(steps // 500):
            y, state = module(torch.randn(1, 500, 8), state)
            sizes.append(max([float(y.abs().max()), *(float(part.abs().max()) for part in state if part.numel())]))
    tenth = max(1, len(sizes) // 10)
    return {"steps": steps, "first tenth": round(max(sizes[:tenth]), 2), "last tenth": round(max(sizes[-tenth:]), 2)}


def main() -> None:
    parser = cell_arguments(__doc__, memories=sorted(methods("memory_module")))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.set_defaults(seeds=[1, 2, 3])
    options = parser.parse_args()

    def probe(name: str) -> Row:
        learned = {task: [learn(name, task, options.seconds, seed) for seed in options.seeds] for task in TASKS}
        return {"memory": name, "bounded": bounded(name, options.steps), **learned}

    def report(rows: list[Row]) -> Row:
        unit = f"updates and processor seconds to an accuracy of {ENOUGH}, within {options.seconds} s"
        return {"n": len(options.seeds), "seeds": options.seeds, "unit": unit, "rows": rows}

    collect("probes", None, options.json, map(probe, options.memories), report, ("torch", "numpy"))


if __name__ == "__main__":
    main()
