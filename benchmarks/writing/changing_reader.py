"""Teach frozen readers to read the changing world, and to say where nothing is known any more.

    python -m benchmarks.writing.changing_reader [--runs runs/writing]

Two readers, because what a writer can add hangs on its reader. `plain` learns on entries that do not contradict each
other, as most readers of memories do. `later` also learns on what a writer leaves that always adds, so that this writer gets a
reader made for it: of two values the later counts. Both begin with the published weights, and learn on training
streams alone: people and wordings of test streams never occur. As in the test, four entries are shown, on one person or
thing as far as there are so many; each is asked about every thread of them, and about one that is not there.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from keepworth.episodes.needs import needs_train

import torch

from benchmarks.writing.changing import LENGTH, READERS, SHOWN
from benchmarks.writing.readers import RATE, RISE, loaded
from keepworth.agents import answerer
from keepworth.environments.bounded_bank import BoundedBank
from keepworth.episodes.episode import Shown
from keepworth.learning.learner import Learner, Optimisation
from keepworth.models.adapter import attach_lora, save_trained
from keepworth.models.attention import tree
from keepworth.recipes.settings import GROUP_RELATIVE
from keepworth.recipes.training import with_weights
from keepworth.rollouts.memory_r1 import ModelReader
from keepworth.tasks.changing import ChangingStream, changing_streams

STEPS, STREAMS, ANSWER = 60, 8, 8
ERRS = 0.2
"""How often the writer that errs says another line than the oracle."""


def bank_for(stream: ChangingStream, kind: str, draw: random.Random) -> BoundedBank:
    """One of the banks that a reader learns from, after any number of facts."""
    length = len(stream.tellings)
    bank, writer = BoundedBank(length), draw.random() if kind == "later" else 0.6
    for number in range(draw.randint(SHOWN, length)):
        line = "ADD" if writer < 0.5 else stream.oracle_line(number, bank.numbers)
        if writer >= 0.75 and draw.random() < ERRS:
            line = draw.choice(("ADD", "NOOP", f"UPDATE {draw.randrange(1 + len(bank.entries))}"))
        bank.write(line, stream.stream.facts[number].statement)
    return bank


def shown_of(stream: ChangingStream, bank: BoundedBank, draw: random.Random) -> tuple[int, ...]:
    """Numbers of the facts that are shown: on a thread, its person or its thing, as far as there are so many."""
    if not bank.numbers:
        return ()
    about = stream.tellings[draw.choice(bank.numbers)]

    def far(number: int) -> tuple[int, float]:
        other = stream.tellings[number]
        return (other.thread != about.thread) + (
            other.person != about.person and other.topic != about.topic
        ), draw.random()

    return tuple(sorted(sorted(bank.numbers, key=far)[:SHOWN]))


def answer_now(stream: ChangingStream, numbers: tuple[int, ...], thread: int) -> str:
    """What follows from some facts: of those on a thread the latest counts; where there is none nothing is known."""
    values = [stream.tellings[number].value for number in numbers if stream.tellings[number].thread == thread]
    return (values or [""])[-1] or "unknown"


def step(learner: Learner, streams: list[ChangingStream], kind: str, draw: random.Random, rate: float) -> float:
    """One supervised step; the mean loss of an answer's tokens, in nats."""
    model, trees = learner.model, []
    for stream in streams:
        numbers = shown_of(stream, bank_for(stream, kind, draw), draw)
        memories = [Shown(str(place), 0.0, stream.tellings[number].text) for place, number in enumerate(numbers)]
        whole = answerer.render(memories, "?")
        head = whole[: whole.rindex("Question:")]
        prompt, asked, answers = model.encode(head), [], []
        there = {stream.tellings[number].thread for number in numbers}
        others = sorted({telling.thread for telling in stream.tellings} - there)
        for thread in (*sorted(there), *draw.sample(others, min(1, len(others)))):
            about = stream.task_about(thread).input
            ids = model.encode(answerer.render(memories, about))
            assert ids[: len(prompt)] == prompt
            asked.append(ids[len(prompt) :])
            answers.append(model.encode_continuation(f" {answer_now(stream, numbers, thread)}\n"))
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


def train(runs: Path, kind: str) -> None:
    model = loaded()
    named = attach_lora(model, 16, 32, 0)
    learner = Learner(model, named, GROUP_RELATIVE, Optimisation(learning_rate=RATE, token_budget=4096), "answerer")
    streams, draw = changing_streams("train", STEPS * STREAMS, LENGTH, seed=1), random.Random(0)
    begun, losses = time.monotonic(), list[float]()
    for number in range(STEPS):
        scale = min(1.0, (number + 1) / RISE) * min(1.0, 2 * (1 - number / STEPS))
        losses.append(step(learner, streams[number * STREAMS : (number + 1) * STREAMS], kind, draw, RATE * scale))
        if (number + 1) % 5 == 0:
            left = (time.monotonic() - begun) / (number + 1) * (STEPS - number - 1) / 60
            print(
                f"{kind}: step {number + 1} of {STEPS}, loss {sum(losses[-5:]) / 5:.3f}, about {left:.0f} min left",
                flush=True,
            )
    save_trained(model, named, reader_folder(runs, kind))


def reader_folder(runs: Path, kind: str) -> Path:
    return runs / f"reader_changing_{kind}"


def changing_reader(runs: Path, kind: str) -> ModelReader:
    return ModelReader(with_weights(loaded(), reader_folder(runs, kind)), max_tokens=ANSWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in options.kinds:
        train(options.runs, kind)


if __name__ == "__main__":
    main()
