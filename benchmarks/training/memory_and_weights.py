"""Do a memory and weights that learn together earn more than the better of either alone?

    python -m benchmarks.training.memory_and_weights --data FOLDER [--seeds 0 1 2] [--steps 16] [--processes 2] [--json FILE]
    python -m benchmarks.training.memory_and_weights --world facts [--seeds 0 1 2] [--steps 24] [--processes 2] [--json FILE]

The world `queries` is foreign: a customer's query of BANKING77 (CC BY 4.0), and which of `INTENTS` intents it has. The agent asks
the model once, through a plain client of HTTP, and the address that it calls has a memory with labelled queries of each intent.
`WRONG` of these notes name a wrong intent. A model of 100,000 weights, made here, repeats the label of a note for half of
the intents, and mostly says that it does not know for the others: it was taught that on queries of other intents, with labels
dealt out at random. So weights can learn to answer, and the memory which of its notes to show. Measured are the publisher's
test queries, which were not trained on.

The world `facts` is for SmolLM2-135M, as it was published, behind an agent that is written with OpenAI's package: what a
service's port, person, city or month is. The memory has three notes of each fact, of which one is right. Weights can learn to
answer by the value alone, as the F1 of tokens asks, and the memory which of the notes to show. Measured are wordings of the
questions that were not trained on.

Every arm has the same number of rollouts, of the same questions, with one note in a prompt at most. The oracle is an agent whose
prompt has a right note."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
FROZEN = 1e-30
"""A learning rate at which no weight changes."""
SMOLLM2 = "smollm2-135m-instruct"
Pairs = Sequence[tuple[str, str]]


class World(ABC):
    """What one seed draws: `notes` for the memory, the same notes `dealt` out at random, `rows` to train on and to measure."""

    notes: Sequence[str]
    dealt: Sequence[str]
    rows: list[dict[str, Any]]

    @abstractmethod
    def is_right(self, text: str, row: dict[str, Any]) -> bool:
        """Return whether a note holds the answer to a row."""

    def first(self, file: Path, learns: bool) -> float:
        """How many of the measured questions find a right note first."""
        with open_memory(file, learns, read_only=True, log="off") as memory:
            measured = [row for row in self.rows if row["split"] == "test"]
            hits = [memory.search(row["prompt"], top_k=1, explore=False) for row in measured]
        right = [bool(found) and self.is_right(found[0].text, row) for found, row in zip(hits, measured, strict=True)]
        return sum(right) / len(right)


class Queries(World):
    """Customers' queries and their intents."""

    def __init__(self, data: Path | None, seed: int) -> None:
        assert data is not None
        draw = random.Random(seed)
        train_file, test_file = queries(data)
        names = labels(data)
        self.intents = [intent for half in (names[::2], names[1::2]) for intent in draw.sample(half, INTENTS // 2)]
        texts = {intent: [text for text, of in train_file if of == intent] for intent in self.intents}
        for of_intent in texts.values():
            draw.shuffle(of_intent)
        labelled = [(text, intent) for intent in self.intents for text in texts[intent][:NOTES]]
        false = set(draw.sample(range(len(labelled)), round(WRONG * len(labelled))))
        pairs = [
            (text, draw.choice([other for other in self.intents if other != intent]) if place in false else intent)
            for place, (text, intent) in enumerate(labelled)
        ]
        self.notes = [note(*pair) for pair in pairs]
        self.dealt = [note(text, draw.choice(self.intents)) for text, _ in pairs]
        trained = [(text, intent) for intent in self.intents for text in texts[intent][NOTES : NOTES + ASKED]]
        tested = [pair for pair in test_file if pair[1] in self.intents]
        draw.shuffle(trained)
        draw.shuffle(tested)
        splits = {"dev": trained[:8], "train": trained[8:], "test": tested[:MEASURED]}
        self.rows = [
            {"prompt": text, "answer": intent, "split": split, "note": note(draw.choice(pairs)[0], intent)}
            for split, of_split in splits.items()
            for text, intent in of_split
        ]

    def is_right(self, text: str, row: dict[str, Any]) -> bool:
        return text.endswith(f"{ABOUT}{row['answer']}.")


SERVICES = ("Falcon", "Heron", "Osprey", "Kestrel")
SOURCES = ("The wiki says: ", "In the handbook: ", "From the chat: ")
VALUES = {
    kind: tuple(words.split())
    for kind, words in (
        ("port", "8080 9090 7000 5432 6379 3000 4317 8443 1883 5000 2222 9200"),
        ("person", "Anna Boris Clara David Elena Frank Greta Hugo Irene Jonas Karin Louis"),
        ("city", "Berlin Oslo Madrid Vienna Dublin Prague Lisbon Warsaw Athens Rome Paris London"),
        ("month", "January February March April May June July August September October November December"),
    )
}
STATEMENTS = {
    "port": "{} listens on port {}.",
    "person": "{} is looked after by {}.",
    "city": "{} runs in the data center of {}.",
    "month": "{} gets its next release in {}.",
}
QUESTIONS = {
    "port": (
        "Which port does {} listen on?",
        "What is the port of {}?",
        "On which port can {} be reached?",
        "Which port is used by {}?",
        "What port do I open for {}?",
        "Which port number does {} have?",
        "What port is {} on?",
        "Where does {} listen, on which port?",
    ),
    "person": (
        "Who looks after {}?",
        "Who is responsible for {}?",
        "Who takes care of {}?",
        "Which person looks after {}?",
        "Who do I call about {}?",
        "Who is in charge of {}?",
        "By whom is {} looked after?",
        "Whose service is {}?",
    ),
    "city": (
        "In which city does {} run?",
        "Where is {} running?",
        "Which data center does {} run in?",
        "In what city is the data center of {}?",
        "Where is {} hosted?",
        "Which city hosts {}?",
        "The data center of {} is in which city?",
        "Where does {} run?",
    ),
    "month": (
        "When is the next release of {}?",
        "In which month is {} released?",
        "Which month brings the release of {}?",
        "When does {} get its next release?",
        "When is {} due to be released?",
        "In what month comes the next {} release?",
        "What is the release month of {}?",
        "When will {} be released?",
    ),
}
MEASURED_WORDINGS = 3
"""Of each kind of question, how many wordings are measured and not trained on."""


class Facts(World):
    """Facts about services, each with three notes of which one is right."""

    def __init__(self, data: Path | None, seed: int) -> None:
        draw = random.Random(seed)
        self.notes, self.dealt, self.rows = [], [], []
        for kind, service in itertools.product(VALUES, SERVICES):
            values = draw.sample(VALUES[kind], len(SOURCES))
            dealt = draw.sample([value for value in VALUES[kind] if value != values[0]], len(SOURCES))
            sources = draw.sample(SOURCES, len(SOURCES))
            texts, others = (
                [source + STATEMENTS[kind].format(service, value) for source, value in zip(sources, of, strict=True)]
                for of in (values, dealt)
            )
            wordings = draw.sample(QUESTIONS[kind], len(QUESTIONS[kind]))
            self.notes += texts
            self.dealt += others
            self.rows += [
                {
                    "prompt": wording.format(service),
                    "answer": values[0],
                    "split": "test" if place < MEASURED_WORDINGS else "dev" if place == MEASURED_WORDINGS else "train",
                    "note": texts[0],
                }
                for place, wording in enumerate(wordings)
            ]
        draw.shuffle(self.notes)
        draw.shuffle(self.dealt)
        draw.shuffle(self.rows)

    def is_right(self, text: str, row: dict[str, Any]) -> bool:
        return bool(text == row["note"])


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


def over_http(text: str, endpoint: Endpoint) -> str:
    """An agent of one call, without a package."""
    call = {"model": "any", "messages": [{"role": "user", "content": text}]}
    url = f"{endpoint.openai}/chat/completions"
    with httpx.Client(trust_env=False, verify=False, timeout=600) as client:
        answer = client.post(url, json=call).raise_for_status().json()
    return str(answer["choices"][0]["message"]["content"]).strip()


def with_openai(text: str, endpoint: Endpoint) -> str:
    """The same with OpenAI's package."""
    from openai import OpenAI

    with OpenAI(base_url=endpoint.openai, api_key="none", timeout=600) as client:
        answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}])
    return str(answer.choices[0].message.content).strip()


@dataclass(frozen=True)
class Setting:
    """A world, who asks its model, and how the model is trained there."""

    world: Callable[[Path | None, int], World]
    ask: Callable[[str, Endpoint], str]
    steps: int
    rate: float
    measured: int
    reward: str
    train: dict[str, Any]

    def agent(self, row: dict[str, Any], endpoint: Endpoint) -> str:
        return self.ask(row["prompt"], endpoint)

    def oracle(self, row: dict[str, Any], endpoint: Endpoint) -> str:
        return self.ask(with_note(row["prompt"], row["note"]), endpoint)


SETTINGS = {
    "queries": Setting(
        Queries, over_http, 16, 1e-3, MEASURED, "exact_match",
        {"max_tokens": 4, "train": "full", "threads": 1, "precision": "fp32"},
    ),
    "facts": Setting(
        Facts, with_openai, 24, 3e-4, 48, "token_f1", {"max_tokens": 12, "train": "lora", "threads": 1},
    ),
}  # fmt: skip


def open_memory(file: Path, learns: bool, **settings: Any) -> Memory:
    """A memory that learns from rewards, or one that only searches."""
    return Memory(file, policy="default" if learns else None, **settings)


def memory_of(notes: Sequence[str], file: Path, learns: bool) -> Memory:
    """Writes a memory of the notes."""
    memory = open_memory(file, learns)
    for text in notes:
        memory.add(text)
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


def measure(arm: str, seed: int, name: str, data: Path | None, model: str, steps: int) -> dict[str, Any]:
    """One arm with one seed."""
    notes, remembers, learns = ARMS[arm]
    setting = SETTINGS[name]
    world = setting.world(data, seed)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        file = folder / "notes.mem"
        memory = None if notes is None else memory_of(getattr(world, notes), file, remembers)
        how: dict[str, Any] = {} if memory is None else {"memory": memory, "recall": 1}
        begun = time.process_time()
        run = train(
            world.rows, agent=setting.oracle if arm == ORACLE else setting.agent, reward=setting.reward, model=model,
            runs=folder / "runs", steps=steps, progress=Progress(), learning_rate=setting.rate if learns else FROZEN, seed=seed,
            patience=0, tasks_per_step=4, group_size=8, questions=setting.measured, evaluate_every=steps, **setting.train, **how,
        )  # fmt: skip
        seconds, run_folder = time.process_time() - begun, RunFolder.open(run.path)
        calls = [call for stored in run_folder.episodes(arm="train") for call in stored.episode.segments]
        row: dict[str, Any] = {
            "arm": arm,
            "seed": seed,
            "seconds": round(seconds, 1),
            **{
                row["arm"]: row["mean"]
                for row in run_folder.evals()
                if row["split"] == "rows, test" and row["metric"] == setting.reward
            },
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
    parser = cell_arguments(__doc__, arms=list(ARMS))
    parser.add_argument("--steps", type=int, help="updates; as many as the world needs if not given")
    parser.add_argument("--world", choices=sorted(SETTINGS), default="queries")
    parser.add_argument("--data", type=Path, help="the folder with banking77, for the world `queries`")
    asked = parser.parse_args()
    if asked.world == "queries" and asked.data is None:
        parser.error("--data: the world `queries` is in the folder with banking77; say where it is.")
    torch.set_num_threads(1)
    on_this, done = machine(1), list[dict[str, Any]]()
    steps = asked.steps or SETTINGS[asked.world].steps
    with tempfile.TemporaryDirectory() as path:
        model = make_model(asked.data, Path(path) / "model") if asked.world == "queries" else SMOLLM2
        cells = [(arm, seed, asked.world, asked.data, model, steps) for seed in asked.seeds for arm in asked.arms]
        for row in spread(measure, cells, asked.processes):
            done.append(row)
            print(json.dumps(row), flush=True)
            save(asked.json, {
                "command": f"python -m benchmarks.training.memory_and_weights "
                f"{'--data FOLDER' if asked.world == 'queries' else '--world facts'} --seeds "
                f"{' '.join(map(str, asked.seeds))} --steps {steps}",
                "goal": "both at least .05 above the better of either alone",
                "measured": SETTINGS[asked.world].measured, "steps": steps,
                **compared(done), "rows": done, "machine": on_this,
            })  # fmt: skip


if __name__ == "__main__":
    main()
