"""Teach a frozen reader to read the changing world, and to say where nothing is known any more.

    python -m benchmarks.writing.changing_reader [--runs runs/writing]

It goes on from the first reader of `python -m benchmarks.writing.readers`, and learns on training streams alone: people and
wordings of test streams never occur. Half of its banks hold every fact in the order of arrival, what a writer leaves that
always adds, so that this writer gets a reader made for it; a quarter hold what is true now, a quarter what is left by a
writer that errs. Each bank is asked about every thread of its stream, each question for itself.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from keepworth.episodes.needs import needs_train

import torch

from benchmarks.writing.readers import RATE, RISE, loaded
from keepworth.agents import answerer
from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.episode import Shown
from keepworth.learning.learner import Learner, Optimisation
from keepworth.models.adapter import load_trained, save_trained
from keepworth.models.attention import tree
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.settings import GROUP_RELATIVE
from keepworth.recipes.training import with_weights
from keepworth.rollouts.memory_r1 import ModelReader
from keepworth.tasks.changing import ChangingStream, changing_streams

LENGTH = 16
STEPS, STREAMS, ANSWER = 20, 4, 8
ERRS = 0.2
"""How often the writer that errs says another line than the oracle."""


def bank_for(stream: ChangingStream, draw: random.Random) -> BoundedBank:
    """One of the banks that the reader learns from."""
    bank, kind = BoundedBank(len(stream.tellings)), draw.random()
    for number, fact in enumerate(stream.stream.facts):
        line = "ADD" if kind < 0.5 else stream.oracle_line(number, bank.numbers)
        if kind >= 0.75 and draw.random() < ERRS:
            line = draw.choice(("ADD", "NOOP", f"UPDATE {draw.randrange(1 + len(bank.entries))}"))
        bank.write(line, fact.statement)
    return bank


def answer_now(stream: ChangingStream, bank: BoundedBank, thread: int) -> str:
    """What follows from a bank: of the facts on a thread in it the latest counts; where there is none nothing is known."""
    values = [stream.tellings[number].value for number in bank.numbers if stream.tellings[number].thread == thread]
    return (values or [""])[-1] or "unknown"


def step(learner: Learner, streams: list[ChangingStream], draw: random.Random, rate: float) -> float:
    """One supervised step; the mean loss of an answer's tokens, in nats."""
    model, trees = learner.model, []
    for stream in streams:
        bank = bank_for(stream, draw)
        memories = [Shown(str(place), 0.0, text) for place, text in enumerate(bank.texts)]
        whole = answerer.render(memories, "?")
        head = whole[: whole.rindex("Question:")]
        prompt, asked, answers = model.encode(head), [], []
        for thread in sorted({telling.thread for telling in stream.tellings}):
            about = stream.task_about(thread).input
            ids = model.encode(answerer.render(memories, about))
            assert ids[: len(prompt)] == prompt
            asked.append(ids[len(prompt) :])
            answers.append(model.encode_continuation(f" {answer_now(stream, bank, thread)}\n"))
        trees.append((prompt, asked, answers))
    total = sum(len(answer) for _, _, answers in trees for answer in answers)
    value = 0.0
    for prompt, asked, answers in trees:
        branches = [question + answer for question, answer in zip(asked, answers, strict=True)]
        lp, _ = model.tree_scores(tree([prompt], [branches]))
        marks = [
            mark
            for question, answer in zip(asked, answers, strict=True)
            for mark in (0.0,) * len(question) + (1.0,) * len(answer)
        ]
        loss = -(lp * torch.tensor(marks)).sum() / total
        loss.backward()  # type: ignore[no-untyped-call]
        value += float(loss.detach())
    learner.master_weights.step(rate / learner.optimisation.learning_rate)
    return value


def train(runs: Path) -> None:
    model: InProcessModel = loaded()
    load_trained(model, runs / "reader0")
    network: Any = model.network
    named = {name: value for name, value in network.named_parameters() if "lora_" in name}
    for value in named.values():
        value.requires_grad_(True)
    learner = Learner(model, named, GROUP_RELATIVE, Optimisation(learning_rate=RATE, token_budget=4096), "answerer")
    streams, draw, begun = (
        changing_streams("train", STEPS * STREAMS, LENGTH, seed=1),
        random.Random(0),
        time.monotonic(),
    )
    for number in range(STEPS):
        scale = min(1.0, (number + 1) / RISE) * min(1.0, 2 * (1 - number / STEPS))
        loss = step(learner, streams[number * STREAMS : (number + 1) * STREAMS], draw, RATE * scale)
        print(f"step {number + 1} of {STEPS}: loss {loss:.3f}, {time.monotonic() - begun:.0f} s", flush=True)
        if (number + 1) % 5 == 0:
            save_trained(model, named, runs / "reader_changing")
    save_trained(model, named, runs / "reader_changing")


def changing_reader(runs: Path) -> ModelReader:
    return ModelReader(with_weights(loaded(), runs / "reader_changing"), max_tokens=ANSWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options.runs)


if __name__ == "__main__":
    main()
