"""How well a chat model reads the user's next message: precision and recall on the labelled turns that the rules do not tell.

    python -m benchmarks.memory.model_signals [--json benchmarks/memory/model_signals.json]
    python -m benchmarks.memory.model_signals --environment [--turns 40]

Both halves of the turns in `tests/memory/signals` are read, as nothing is fitted. The model is SmolLM2-135M-Instruct in this
process, with the prompt that a memory sends it; with --environment it is OPENAI_MODEL behind OPENAI_BASE_URL, to count one of
your own. --turns reads so many turns alone, half of them with a label. A message is read where the rules say nothing of the
answer, as with `keepworth serve --model-signals`.

By chance: the same answers of the model, given to the messages in another order, a thousand times.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.memory.signals import Turn, compare, label_of_message, load_turns, read_message, show_counts
from benchmarks.record import arguments, save
from keepworth.base.chat import from_environment, model_in_environment
from keepworth.memory.model_signals import EXAMPLE, INSTRUCTIONS, LABELS, ModelSignals, ReplyReader
from keepworth.memory.signals import find_signal
from keepworth.memory.store.store import Store

MODEL = "smollm2-135m-instruct"
DRAWS = 1_000


class LocalChat:
    """A model of this process, which answers greedily."""

    def __init__(self, name: str) -> None:
        from keepworth.base.model_files import ModelKind, path_of
        from keepworth.models.inprocess import InProcessModel

        self.model = InProcessModel.load(path_of(name, kind=ModelKind.LANGUAGE), name=name, precision="fp32")

    def complete(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the model's next message, up to sixteen tokens of it."""
        from keepworth.records.model import SamplingParams

        text, tokenizer = self.model.chat.render_text(list(messages)), self.model.tokenizer
        prompt = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        params = SamplingParams(max_tokens=16, temperature=0.0, stop_ids=(tokenizer.eos_token_id,))
        ((sample,),) = self.model.sample([prompt], params)
        return str(tokenizer.decode(sample.ids, skip_special_tokens=True))


def undecided(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns with a next message in which the rules see no reward."""
    return [
        turn for turn in turns if turn["next"] and (not (name := read_message(turn)) or find_signal(name).weight <= 0.0)
    ]


def choose(turns: Sequence[Turn], most: int) -> list[Turn]:
    """Return some turns by chance, half of them with a label; all of them for 0."""
    if not most:
        return list(turns)
    shuffled = random.Random(0).sample(list(turns), len(turns))
    labelled = [turn for turn in shuffled if label_of_message(turn) in ("correction", "repetition", "thanks")]
    others = [turn for turn in shuffled if turn not in labelled]
    return [*labelled[: most // 2], *others[: most - most // 2]]


def measure(chat: ReplyReader, most: int = 0) -> dict[str, Any]:
    """Read the messages by a model, and count. most: the most turns; 0 for all."""
    turns = choose(undecided([*load_turns("dev"), *load_turns("test")]), most)
    reader, store = ModelSignals(chat, calls=len(turns) + 1), Store(":memory:")
    called = [reader.read(store, turn["next"], turn["before"], turn["answer"]).removeprefix("model-") for turn in turns]
    labels = [label.replace("new-subject", "") for label in map(label_of_message, turns)]
    generator, chance = random.Random(0), Counter[str]()
    for _ in range(DRAWS):
        shuffled = generator.sample(called, len(called))
        chance.update(name for name, label in zip(shuffled, labels, strict=True) if name and name == label)
    messages = compare(zip(called, labels, strict=True))
    outcomes = {
        name: Counter(turn["labels"]["outcome"] for turn, of in zip(turns, called, strict=True) if of == name)
        for name in sorted(set(called) - {""})
    }
    return {
        "turns": len(turns),
        "messages": {
            name: {**row, "right_by_chance": round(chance[name] / DRAWS, 2)} for name, row in messages.items()
        },
        "outcomes": {name: dict(counts) for name, counts in outcomes.items()},
        "silent": called.count(""),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--environment", action="store_true", help="ask OPENAI_MODEL behind OPENAI_BASE_URL")
    parser.add_argument("--turns", type=int, default=0, help="the number of turns, half of them with a label")
    options = parser.parse_args()
    name = model_in_environment("--environment") if options.environment else MODEL
    chat: ReplyReader = from_environment(name, "--environment") if options.environment else LocalChat(name)
    found = measure(chat, options.turns)
    print(f"{name}: {found['turns']} turns that the rules do not tell; {found['silent']} times it said nothing")
    show_counts(found["messages"])
    for signal, counts in found["outcomes"].items():
        print(f"  {signal:20} right by chance {found['messages'][signal]['right_by_chance']}  answers {counts}")
    prompt = {"instructions": INSTRUCTIONS, "example": EXAMPLE, "labels": list(LABELS)}
    command = "python -m benchmarks.memory.model_signals" + (f" --turns {options.turns}" if options.turns else "")
    save(options.json, {"command": command, "machine": machine(), "model": name, "prompt": prompt, **found})


if __name__ == "__main__":
    main()
