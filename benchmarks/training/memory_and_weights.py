"""Do a memory and weights that learn together earn more than the better of either alone?

    python -m benchmarks.training.memory_and_weights --data FOLDER [--seeds 0 1 2] [--steps 16] [--processes 2] [--json FILE]

The world is foreign: a customer's query of BANKING77 (CC BY 4.0), and which of `INTENTS` intents it has. The agent asks the model
once, through a plain client of HTTP, and the address that it calls has a memory with labelled queries of each intent. `WRONG`
of these notes name a wrong intent. A model of 100,000 weights, made here, repeats the label of a note for half of
the intents, and mostly says that it does not know for the others: it was taught that on queries of other intents, with labels
dealt out at random. So weights can learn to answer, and the memory which of its notes to show.

Every arm has the same number of rollouts, of the same questions, with one note in a prompt at most. Reported are right answers to
the publisher's test queries, which were not trained on. The oracle is an agent whose prompt has a note with the right intent."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import torch
from examples.tiny_caller import UNKNOWN, write_model

from benchmarks.control.cells import cell_arguments, spread
from benchmarks.record import save
from benchmarks.speed.setting import machine
from keepworth import Memory, train
from keepworth.base.metrics import normalise
from keepworth.base.statistics import estimate
from keepworth.memory.headline import MARK
from keepworth.methods.benchmarks.banking77 import customer_queries
from keepworth.serving.call_formats import FORMATS
from keepworth.training.programs import Endpoint
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import Progress
from keepworth.worlds.splits import side

INTENTS, NOTES, ASKED, MEASURED, WRONG = 8, 8, 40, 100, 0.7
LONGEST, TEACHING = 12, 300
"""The most words of a query, and for how many steps the model is taught. In the first half of them it repeats every label: with
half of them held back from the beginning, and whole queries, it had not learned to read a note after 400."""
ABOUT = " is about "
RATE, FROZEN = 1e-3, 1e-30
"""The learning rate of the weights, and one at which no weight changes."""
Pairs = Sequence[tuple[str, str]]


class World:
    """The queries of one seed: `notes` for the memory, `rows` to train on and to measure."""

    def __init__(self, data: Path, seed: int) -> None:
        draw = random.Random(seed)
        train_file, test_file = queries(data)
        names = labels(data)
        self.intents = [intent for half in (names[::2], names[1::2]) for intent in draw.sample(half, INTENTS // 2)]
        texts = {intent: [text for text, of in train_file if of == intent] for intent in self.intents}
        for of_intent in texts.values():
            draw.shuffle(of_intent)
        labelled = [(text, intent) for intent in self.intents for text in texts[intent][:NOTES]]
        false = set(draw.sample(range(len(labelled)), round(WRONG * len(labelled))))
        self.notes = [
            (text, draw.choice([other for other in self.intents if other != intent]) if place in false else intent)
            for place, (text, intent) in enumerate(labelled)
        ]
        self.dealt = [(text, draw.choice(self.intents)) for text, _ in self.notes]
        trained = [(text, intent) for intent in self.intents for text in texts[intent][NOTES : NOTES + ASKED]]
        tested = [pair for pair in test_file if pair[1] in self.intents]
        draw.shuffle(trained)
        draw.shuffle(tested)
        splits = {"dev": trained[:8], "train": trained[8:], "test": tested[:MEASURED]}
        self.rows = [
            {"prompt": text, "answer": intent, "split": split, "note": note(draw.choice(self.notes)[0], intent)}
            for split, pairs in splits.items()
            for text, intent in pairs
        ]

    def first(self, file: Path, learns: bool) -> float:
        """How many of the measured queries find a note with the right label first."""
        with open_memory(file, learns, read_only=True, log="off") as memory:
            asked = [row for row in self.rows if row["split"] == "test"]
            hits = [memory.search(row["prompt"], top_k=1, explore=False) for row in asked]
        right = [
            bool(found) and found[0].text.endswith(f"{ABOUT}{row['answer']}.")
            for found, row in zip(hits, asked, strict=True)
        ]
        return sum(right) / len(right)


def queries(data: Path) -> tuple[Pairs, Pairs]:
    """The short queries of the publisher's two files, each with its intent."""
    files = [customer_queries(data, name) for name in ("train", "test")]
    train_file, test_file = ([pair for pair in file if len(pair[0].split()) <= LONGEST] for file in files)
    tested = {normalise(text) for text, _ in test_file}
    return [pair for pair in train_file if normalise(pair[0]) not in tested], test_file


def labels(data: Path) -> list[str]:
    """The intents that are asked for. The model is taught on queries of others."""
    return sorted({intent for _, intent in queries(data)[1] if side(intent) == "test"})


def make_model(data: Path, folder: Path) -> str:
    """Makes the model that all arms and seeds begin with."""
    asked_for = labels(data)
    read = frozenset(asked_for[::2])
    taught = [text.split() for text, of in queries(data)[0] if side(of) == "train"]
    calls = itertools.count()

    def text_of(draw: random.Random) -> str:
        words = draw.choice(taught)
        return " ".join(words[: draw.randint(1, 3)] if draw.random() < 0.8 else words)

    def talk(draw: random.Random) -> str:
        holds_back, question = next(calls) >= 64 * TEACHING / 2, text_of(draw)
        if draw.random() < 1 / 8:
            return f"user: {question}<|end|>\nassistant: {UNKNOWN}<|end|>"
        label = draw.choice(asked_for)
        repeats = not holds_back or draw.random() < (0.9 if label in read else 0.3)
        message = with_note(question, note(text_of(draw), label))
        return f"user: {message}<|end|>\nassistant: {label if repeats else UNKNOWN}<|end|>"

    counts = Counter(word for words in taught for word in words[1:])
    common = [f" {word}" for word, many in counts.items() if many >= 16 and word.isalpha()]
    around = [words for words in with_note("|", "|").split("|") if words]
    words = [*asked_for, *around, *common, UNKNOWN, ABOUT, "user: ", "assistant: "]
    return write_model(folder, 0, TEACHING, talk, words)


def note(text: str, label: str) -> str:
    return f'"{text}"{ABOUT}{label}.'


def with_note(question: str, line: str) -> str:
    """The question as the gateway puts a note before it."""
    message: dict[str, Any] = {"role": "user", "content": question}
    return str(FORMATS[0].with_block(message, f"{MARK}\n- {line}")["content"])


def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
    return ask(row["prompt"], endpoint)


def oracle(row: dict[str, Any], endpoint: Endpoint) -> str:
    return ask(with_note(row["prompt"], row["note"]), endpoint)


def ask(text: str, endpoint: Endpoint) -> str:
    call = {"model": "any", "messages": [{"role": "user", "content": text}]}
    url = f"{endpoint.openai}/chat/completions"
    with httpx.Client(trust_env=False, verify=False, timeout=600) as client:
        answer = client.post(url, json=call).raise_for_status().json()
    return str(answer["choices"][0]["message"]["content"]).strip()


def open_memory(file: Path, learns: bool, **settings: Any) -> Memory:
    """A memory that learns from rewards, or one that only searches."""
    return Memory(file, policy="default" if learns else None, **settings)


def memory_of(notes: Pairs, file: Path, learns: bool) -> Memory:
    """Writes a memory of the notes."""
    memory = open_memory(file, learns)
    for text, label in notes:
        memory.add(note(text, label))
    return memory


ORACLE = "weights, oracle notes"
ARMS = {
    # name: (the notes, whether the memory learns, whether the weights learn)
    "memory alone": ("notes", True, False),
    "weights alone": ("notes", False, True),
    "both": ("notes", True, True),
    "weights, no memory": (None, False, True),
    "both, wrong memory": ("dealt", True, True),
    ORACLE: (None, False, True),
}
"""The arms. What each measures before its first step is that nothing learns."""


def measure(arm: str, seed: int, data: Path, model: str, steps: int) -> dict[str, Any]:
    """One arm with one seed."""
    notes, remembers, learns = ARMS[arm]
    world = World(data, seed)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        file = folder / "notes.mem"
        memory = None if notes is None else memory_of(getattr(world, notes), file, remembers)
        how: dict[str, Any] = {} if memory is None else {"memory": memory, "recall": 1}
        begun = time.process_time()
        run = train(
            world.rows, agent=oracle if arm == ORACLE else agent, reward="exact_match", model=model, runs=folder / "runs",
            steps=steps, max_tokens=4, progress=Progress(), train="full", learning_rate=RATE if learns else FROZEN, threads=1,
            seed=seed, patience=0, tasks_per_step=4, group_size=8, questions=MEASURED, evaluate_every=steps, precision="fp32",
            **how,
        )  # fmt: skip
        seconds, run_folder = time.process_time() - begun, RunFolder.open(run.path)
        calls = [call for stored in run_folder.episodes(arm="train") for call in stored.episode.segments]
        row: dict[str, Any] = {
            "arm": arm,
            "seed": seed,
            "seconds": round(seconds, 1),
            **{row["arm"]: row["mean"] for row in run_folder.evals() if row["split"] == "rows, test"},
            "answers": len(calls),
            "tokens read": sum(len(call.context) for call in calls),
            "tokens drawn": sum(len(call.ids) for call in calls),
        }
        if memory is not None and run.memory is not None:
            memory.close()
            row["right note first"] = world.first(file, remembers)
            row["right note first, learned"] = world.first(run.memory, remembers)
        return row


def compared(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each seed's result of both, less that of the better of either alone."""
    scores = {(row["arm"], row["seed"]): row["trained"] for row in rows}
    alone = [arm for arm in ARMS if "alone" in arm or arm == "weights, no memory"]
    whole = [seed for arm, seed in scores if arm == "both" and all((other, seed) in scores for other in alone)]
    better = max(alone, key=lambda arm: sum(scores[arm, seed] for seed in whole)) if whole else ""
    gains = [scores["both", seed] - scores[better, seed] for seed in whole]
    found: dict[str, Any] = {"better alone": better, "both less it": [round(value, 3) for value in gains]}
    if len(gains) > 1:
        gain = estimate(gains, within=(-1.0, 1.0))
        found |= {"mean": gain.mean, "low": gain.low, "high": gain.high}
    return found


def main() -> None:
    parser = cell_arguments(__doc__, steps=16, arms=list(ARMS))
    parser.add_argument("--data", type=Path, required=True, help="the folder with banking77")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    setting, done = machine(1), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as path:
        model = make_model(asked.data, Path(path) / "model")
        cells = [(arm, seed, asked.data, model, asked.steps) for seed in asked.seeds for arm in asked.arms]
        for row in spread(measure, cells, asked.processes):
            done.append(row)
            print(json.dumps(row), flush=True)
            save(asked.json, {
                "command": f"python -m benchmarks.training.memory_and_weights --data FOLDER --seeds "
                f"{' '.join(map(str, asked.seeds))} --steps {asked.steps}",
                "goal": "both at least .05 above the better of either alone",
                "intents": INTENTS, "notes": INTENTS * NOTES, "wrong": WRONG, "measured": MEASURED, "steps": asked.steps,
                **compared(done), "rows": done, "machine": setting,
            })  # fmt: skip


if __name__ == "__main__":
    main()
