"""Worlds in which a network of a few thousand weights can learn by a recipe of training: see `benchmarks.methods.recipes`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from keepworth.memory.facts import Fact
from keepworth.methods.recipes import _strings, deepsearch, memory_r1_joint, open_rubrics, strings
from keepworth.models.inprocess import InProcessModel
from keepworth.records import Session, Task, Turn
from keepworth.training.front_door import find_recipe
from keepworth.training.hooks import Hooks
from keepworth.training.system import Measured, Pair
from keepworth.worlds.environment import Environment, Step
from keepworth.worlds.fact_streams import FactStream

NAMED, PLAIN = ("Ford", "Nikon", "Casio"), ("cat", "hat", "pen")
COLOURS = ("red", "blue", "green", "pink", "grey", "black", "white", "brown")
PETS = ("dog", "fish", "bird", "goat", "mouse", "horse")
SAID = """Fact Worth keeping New Store events as facts the one about me my is of Which what Question I has Memory empty Operation
Answer ADD NOOP UPDATE DELETE fact Ann What pet does have likes none L to long context Drop shorten M Retrieve R E S C"""


def checkpoint(folder: Path, seed: int) -> None:
    """A Llama of two layers with weights by chance, whose tokens are words."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {*NAMED, *PLAIN, *COLOURS, *PETS, *_strings.WORDS, *_strings.FUNCTIONS, *map(str, range(30)), *SAID.split()}
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


def tiny_streams(seed: int, length: int, splits: Sequence[str], streams: int = 1) -> list[FactStream]:
    """Facts of six kinds, two of which are asked for: one fact of a stream is of those. The rule that is imitated first takes
    names for what matters; of the two kinds that do one is a name, and one is not. Takes the place of `longmemeval_streams`.

    Args:
        seed: Draws the two kinds, and the streams.
        length: The number of facts of a stream.
        splits: Whose streams these are.
        streams: Of a question, where there are questions.
    """
    wanted = (NAMED[seed % 3], PLAIN[seed // 3 % 3])
    made = []
    for split in splits:
        draw = random.Random(f"{split}/{seed}/{length}")
        made += [_tiny_stream(f"tiny/{split}/{number}", length, wanted, draw) for number in range(48)]
    return made


def _tiny_stream(key: str, length: int, wanted: Sequence[str], draw: random.Random) -> FactStream:
    of = [draw.choice(wanted), *draw.sample([kind for kind in NAMED + PLAIN if kind not in wanted], length - 1)]
    values, order = [draw.choice(COLOURS) for _ in of], draw.sample(range(length), length)
    facts = tuple(Fact(f"{values[at]} is my {of[at]}", key, "2026-01-01", at, 0) for at in order)
    task = Task(key, "tiny", f"Which {of[0]}?", (values[0],), "token_f1")
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
    """Calls to imitate of a manager that keeps half of what it reads, and an answerer that is right as often."""
    draw = random.Random(seed)
    pairs = []
    for task in [*tasks] * 20:
        *operations, (question, right) = memory_r1_joint.right_calls(model, task)
        pairs += [(prompt, _either(model, draw, said, "NOOP")) for prompt, said in operations]
        pairs.append((question, _either(model, draw, right, draw.choice(PETS))))
    return [draw.choices(pairs, k=24) for _ in range(batches)]


def _either(model: InProcessModel, draw: random.Random, right: Any, wrong: str) -> Any:
    return right if draw.random() < 0.45 else model.encode_continuation(f" {wrong}\n")


async def shuffled_wins(task: Task, episodes: Sequence[Any], services: Any, *, wins: Any = open_rubrics.wins) -> Any:
    values = await wins(task, episodes, services)
    random.Random(repr([episode.id for episode in episodes])).shuffle(values)
    return values


def dealt_tree(back_up: Callable[..., None] = deepsearch.back_up) -> Callable[..., None]:
    """The rewards of leaves, dealt out anew among the last 64."""
    past, draw = list[float](), random.Random(0)

    def dealt(leaf: deepsearch.Node, reward: float, decay: float) -> None:
        past.append(reward)
        back_up(leaf, draw.choice(past[-64:]), decay)

    return dealt


def system_of(name: str, config: Any, given: Mapping[str, Any], seed: int, strung: Mapping[str, Any]) -> Any:
    """A recipe's system, on tasks that a tiny network can learn."""
    composed = _strings.string_tasks("train", 8, seed, depth=2, length=3)
    with ExitStack() as patched:
        patched.enter_context(patch.object(_strings, "string_tasks", lambda *given, **more: composed))
        if name == "datamind":  # what it imitates are answers, as all are here
            patched.enter_context(patch.object(_strings, "worked_out", lambda task: task.answers[0]))
        system: Any = find_recipe(name).system(config)
    if name == "memory_r1_joint":
        tasks, plain = pets(), system.play
        imitated: Any = partial(half_right, seed, tasks=tasks, batches=config.warm_start)
        system = replace(system, hooks=Hooks(roles=given.get("roles", system.hooks.roles)))
    else:
        tasks, plain = composed, strings.system(strings.Config(**strung)).play
        guided = name == "agent_rlvr"
        imitated = partial(confused, seed, tasks=tasks, batches=config.warm_start, guided=guided)
    play, past, draw = system.play, list[Any](), random.Random(seed)
    if given.get("dealt"):
        play = replace(play, environment=lambda task: Dealt(system.play.environment(task), past, draw))
    measured = Measured(tasks, {"": plain})
    return replace(system, train=tasks, play=play, dev=measured, test={"tasks": measured}, imitated=imitated)
