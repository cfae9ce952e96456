"""Worlds in which a network of a few thousand weights can learn by a recipe of training: see `benchmarks.methods.recipes`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keepworth.environments.environment import Environment, Step
from keepworth.episodes import Session, Task, Turn
from keepworth.methods.recipes import _strings, memory_r1_joint, strings
from keepworth.methods.recipes._bank.fact_streams import FactStream
from keepworth.methods.recipes._bank.writers import WriterStreams
from keepworth.methods.writers._facts import Fact
from keepworth.models.inprocess import InProcessModel
from keepworth.recipes.system import Pair

KINDS = ("cat", "key", "car", "hat", "mug", "pen", "bag", "sofa", "lamp", "book")
COLOURS = ("red", "blue", "green", "pink", "grey", "black", "white", "brown")
PETS = ("dog", "fish", "bird", "goat", "mouse", "horse")
SAID = """Fact Worth keeping New Store events as facts the one about me my is of Which what Question I has Memory empty Operation
Answer ADD NOOP UPDATE DELETE fact Ann What pet does have likes none L to long context Drop shorten M Retrieve R E S C"""


def checkpoint(folder: Path, seed: int) -> None:
    """A Llama of two layers with weights by chance, whose tokens are words."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {*KINDS, *COLOURS, *PETS, *_strings.WORDS, *_strings.FUNCTIONS, *map(str, range(30)), *SAID.split()}
    words |= {f"{part}{number}" for part in "LMRESC" for number in range(8)}
    pieces = sorted({*words, *(f" {word}" for word in words), *map(chr, range(32, 127)), "\n"})
    vocabulary = {"<end>": 0, "<unk>": 1, **{piece: number for number, piece in enumerate(pieces, start=2)}}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+|[^\w]"), "isolated")
    made.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


class Dealt:
    """An environment whose last rewards are drawn from those of the last 64 episodes."""

    def __init__(self, inner: Environment, past: list[Any], draw: random.Random) -> None:
        self._inner, self._past, self._draw = inner, past, draw
        self.reset, self.close = inner.reset, inner.close

    async def step(self, action: str) -> Step:
        step = await self._inner.step(action)
        if step.stop is None:
            return step
        self._past.append(step.rewards)
        return replace(step, rewards=self._draw.choice(self._past[-64:]))


def confused(
    seed: int, model: InProcessModel, *, tasks: Sequence[Task], batches: int, guided: bool
) -> list[list[Pair]]:
    """Calls to imitate of a pupil who answers a composition with the value of any other, and rarely knows it. guided: it is
    shown the first step half of the time, and then knows half."""
    draw = random.Random(seed)
    pairs = []
    for task in [*tasks] * 40:
        words = tuple(task.input.rpartition("(")[2].rstrip(")").split())
        names, helped = draw.choices(tuple(_strings.FUNCTIONS), k=2), guided and draw.random() < 0.5
        asked = strings.asked(task)
        if helped:
            asked = f"{_strings.worked_out(task).split(', ')[0]}, {asked}"
        right = draw.random() < (0.5 if helped else 0.15)
        said = task.answers[0] if right else " ".join(_strings.value(names, words))
        pairs.append((model.encode(asked), model.encode_continuation(f" {said}\n")))
    return [draw.choices(pairs, k=16) for _ in range(batches)]


class Streams(WriterStreams):
    """Facts of ten kinds, four of which are asked for: a third of a stream is of those, and one fact of them decides. Half of the
    values are numbers, which the rule that is imitated first takes for what matters."""

    def _of(self, split: str, length: int) -> list[FactStream]:
        kinds = random.Random(f"kinds/{self._config.seed}").sample(KINDS, len(KINDS))
        draw = random.Random(f"{split}/{self._config.seed}/{length}")
        return [self._one(f"tiny/{split}/{number}", length, kinds, draw) for number in range(48)]

    def _one(self, key: str, length: int, kinds: Sequence[str], draw: random.Random) -> FactStream:
        wanted = length // 3
        of = [*draw.sample(kinds[:4], wanted), *draw.sample(kinds[4:], length - wanted)]
        values = [draw.choice(COLOURS) if draw.random() < 0.5 else str(draw.randrange(10, 30)) for _ in of]
        asked, order = of[0], draw.sample(range(length), length)
        facts = tuple(Fact(f"{values[at]} is my {of[at]}", key, "2026-01-01", at, 0) for at in order)
        task = Task(key, "tiny", f"Which {asked}?", (values[0],), "token_f1")
        return FactStream(task, facts, tuple(at == 0 for at in order), key)


class Finds:
    """A reader that answers with the first fact of the bank that is of the kind which is asked for."""

    identity = "finds@1"

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        return [
            next((text.split()[0] for text in texts if text.endswith(f" {question[6:-1]}")), "nothing")
            for question, texts in queries
        ]


def pets() -> list[Task]:
    """Streams of two facts about Ann, one of which says what pet she has, which differs from stream to stream."""
    made = []
    for number, (pet, first) in enumerate((pet, first) for pet in PETS for first in (True, False)):
        told = [(f"Ann has a {pet}.", True), (f"Ann likes {COLOURS[number % len(COLOURS)]}.", False)]
        sessions = tuple(
            Session(f"s{at}", "", (Turn("text", text, 0, asked),))
            for at, (text, asked) in enumerate(told if first else told[::-1])
        )
        made.append(Task(f"pets/{number}", "pets", "What pet does Ann have?", (pet,), "token_f1", sessions=sessions))
    return made


def half_right(seed: int, model: InProcessModel, *, tasks: Sequence[Task], batches: int) -> list[list[Pair]]:
    """Calls to imitate of a manager that keeps two thirds of what it reads, and an answerer that is right as often."""
    draw = random.Random(seed)
    pairs = []
    for task in [*tasks] * 20:
        *operations, (question, right) = memory_r1_joint.right_calls(model, task)
        pairs += [(prompt, _either(model, draw, said, "NOOP")) for prompt, said in operations]
        pairs.append((question, _either(model, draw, right, draw.choice(PETS))))
    return [draw.choices(pairs, k=24) for _ in range(batches)]


def _either(model: InProcessModel, draw: random.Random, right: Any, wrong: str) -> Any:
    return right if draw.random() < 0.6 else model.encode_continuation(f" {wrong}\n")
