"""Makes a model of the laboratory: a small Llama with a tokenizer of its own, taught from generated text on one core.

What is taught is drawn from the worlds of `keepworth.worlds.laboratory`, as conversations in the model's chat format. Only what
the model says in them is imitated. Every draw has its seed, and one thread computes, so that the same version of PyTorch on the
same machine makes the same weights, bit for bit. An interrupted making goes on where its last checkpoint was."""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.needs import needs_train

import torch

from keepworth.base.durable_files import replacing
from keepworth.base.errors import KeepworthError
from keepworth.base.interruption import interruptible, uninterrupted
from keepworth.base.model_files import State, find_made, locked, path_of, publish, status_of
from keepworth.models.threads import threads_set
from keepworth.training.watch.progress import Progress
from keepworth.worlds.laboratory import WORLDS

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

USER, MODEL, END, PAD = "<|user|>", "<|model|>", "<|end|>", "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}" + MODEL + "{{ m['content'] }}" + END + "{% else %}"
    + USER + "{{ m['content'] }}{% endif %}{% endfor %}{% if add_generation_prompt %}" + MODEL + "{% endif %}"
)  # fmt: skip
SECONDS, OFTEN = 60.0, 100
"""Seconds between two checkpoints, and steps between two lines of progress."""
CHUNK = 16
"""Steps whose conversations are drawn together, and sorted by length, so that little of a batch is padding."""


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a model, and how it is taught.

    Attributes:
        width, inner, layers, heads: Of the network.
        steps: Batches that it is taught.
        rows: Conversations of a batch.
        rate: The highest learning rate; it rises over the first hundred steps and falls linearly to a twentieth.
    """

    width: int
    inner: int
    layers: int
    heads: int
    steps: int
    rows: int = 64
    rate: float = 3e-3


SIZES = {"lab-small": Size(192, 512, 4, 4, 3000)}
"""The models of the laboratory by name."""
SHARES = {"functions": 5, "numbers": 3, "calculator": 3, "notes": 2, "facts": 4, "rooms": 1}
"""Of a batch's conversations, by world."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Makes the tokenizer: bytes, a token for each of the worlds' words, and the marks of the chat format."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = dict.fromkeys(word for world in WORLDS.values() for word in world.words)
    tokenizer.add_tokens([AddedToken(word, normalized=False, single_word=True) for word in words])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=[USER, MODEL]
    )
    made.chat_template = TEMPLATE
    return made


def make_network(size: Size, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    """Makes the network with random weights.

    Args:
        size: Its shape.
        tokenizer: The tokenizer, whose vocabulary it has.
        seed: The seed of the weights.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=size.width, intermediate_size=size.inner, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, num_key_value_heads=size.heads, max_position_embeddings=512,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def written(turns: Sequence[tuple[str, str]]) -> str:
    """Returns a conversation as the chat format writes it."""
    return "".join(f"{USER}{text}{MODEL}{action}{END}" for text, action in turns)


def lessons(size: Size, chunk: int, seed: int = 0) -> list[str]:
    """Returns the conversations of a chunk of batches.

    Args:
        size: It says how many there are.
        chunk: The number of the chunk, from 0 on.
        seed: The seed of all chunks.
    """
    draw = random.Random(f"laboratory/{seed}/{chunk}")
    sources = {name: WORLDS[name].lessons(draw) for name in SHARES}
    names = draw.choices(list(SHARES), list(SHARES.values()), k=CHUNK * size.rows)
    drawn = []
    for name in names:
        exercise, way = next(sources[name])
        drawn.append(written(WORLDS[name].conversation(exercise, way)))
    return drawn


def batches(size: Size, tokenizer: PreTrainedTokenizerFast, begin: int = 0, seed: int = 0) -> Iterator[list[list[int]]]:
    """Yields the batches of ids from a step on. Conversations of similar length are together.

    Args:
        size: It says how many conversations a batch has.
        tokenizer: It makes ids of the texts.
        begin: The first step.
        seed: The seed of the draws.
    """
    for chunk in itertools.count(begin // CHUNK):
        rows = sorted(tokenizer(lessons(size, chunk, seed), add_special_tokens=False)["input_ids"], key=len)
        order = list(range(CHUNK))
        random.Random(f"order/{seed}/{chunk}").shuffle(order)
        # Of equal rows each, longer rows in later batches.
        for place in order[begin % CHUNK if chunk == begin // CHUNK else 0 :]:
            yield rows[place * size.rows : (place + 1) * size.rows]


def loss_of(network: Any, rows: Sequence[Sequence[int]], tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Returns the mean cross-entropy, in nats, of the tokens that the model says in these conversations.

    Args:
        network: It computes the logits, and gets the gradient.
        rows: The ids of each conversation.
        tokenizer: The tokenizer, whose marks tell who speaks.
    """
    model, end, pad = (tokenizer.convert_tokens_to_ids(mark) for mark in (MODEL, END, PAD))
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    begins, ends = (ids == model).cumsum(1), (ids == end).cumsum(1)
    says = (begins > ends)[:, :-1]  # the token after each of these is the model's
    # Padding is on the right, where causal attention never reads it.
    hidden = network.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = network.lm_head(hidden[says])
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][says])


def digest_of_lessons(size: Size) -> str:
    """Returns the sha256 of a model's shape and of its first lessons: the catalogue pins it."""
    tokens = list(make_tokenizer().get_vocab().items())
    return hashlib.sha256(repr((size, SHARES, sorted(tokens), lessons(size, 0))).encode()).hexdigest()


class Teaching:
    """A model that is being taught, and all that the next step depends on. `file` is where checkpoints are written."""

    def __init__(self, size: Size, file: Path) -> None:
        self.size, self.file, self.step = size, file, 0
        self.tokenizer = make_tokenizer()
        self.network = make_network(size, self.tokenizer)
        # Muon (https://kellerjordan.github.io/posts/muon) needs half of the steps that AdamW needs here. It is for matrices.
        named = dict(self.network.named_parameters())
        matrices = [value for name, value in named.items() if value.ndim == 2 and "embed" not in name]
        others = [value for name, value in named.items() if value.ndim != 2 or "embed" in name]
        self._optimisers = (
            torch.optim.Muon(matrices, size.rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, size.rate, betas=(0.9, 0.95), weight_decay=0.01),
        )
        if file.is_file():
            self._load()
        self._batches = batches(size, self.tokenizer, self.step)

    def teach(self) -> float:
        """Takes a step, and returns its loss."""
        rising, falling = (self.step + 1) / 100, 1 - self.step / self.size.steps
        for group in (group for optimiser in self._optimisers for group in optimiser.param_groups):
            group["lr"] = self.size.rate * min(1.0, rising) * max(0.05, falling)
        loss = loss_of(self.network, next(self._batches), self.tokenizer)
        self.network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for optimiser in self._optimisers:
            optimiser.step()  # type: ignore[no-untyped-call]
        self.step += 1
        return loss.item()

    def save(self) -> None:
        """Writes a checkpoint, whole or not at all."""
        optimisers = [optimiser.state_dict() for optimiser in self._optimisers]
        state = {"step": self.step, "network": self.network.state_dict(), "optimisers": optimisers}
        with replacing(self.file) as out:
            torch.save(state, out)

    def _load(self) -> None:
        state = torch.load(self.file, weights_only=True)
        self.step = int(state["step"])
        self.network.load_state_dict(state["network"])
        for optimiser, of_it in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(of_it)

    def write(self, folder: Path) -> None:
        """Writes the model into a folder that transformers loads."""
        self.network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def make_model(name: str, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Makes a model of the laboratory, and returns its folder in the cache. One that is there is returned as it is.

    What is interrupted goes on at the last checkpoint, which Ctrl-C writes, too. Raises UnknownModel, CorruptModel,
    UnusableCache, and KeepworthError where PyTorch is too old.

    Args:
        name: A name of `SIZES`.
        force: Whether to make it again although it is there.
        progress: It is told what happens; None says nothing.
    """
    model, monitor = find_made(name), progress or Progress()
    if not force and status_of(name).state is State.READY:
        return path_of(name)
    if not hasattr(torch.optim, "Muon"):
        raise KeepworthError(
            f"{name} is made with the optimiser Muon, which PyTorch {torch.__version__} does not have.",
            "Install PyTorch 2.9 or later.",
        )
    with locked(model) as folder:
        if not force and status_of(name).state is State.READY:  # the process that held the lock may have made it
            return path_of(name)
        file = folder / f".{name}.{model.lessons[:12]}.checkpoint"
        with threads_set(1), interruptible():
            teaching = Teaching(SIZES[name], file)
            monitor.start(teaching.size.steps, f"{name} is taught")
            if teaching.step:
                monitor.note(f"It goes on after step {teaching.step}.")
            try:
                _teach(teaching, monitor)
            except KeyboardInterrupt:
                teaching.save()
                monitor.note(f"It stopped after step {teaching.step}. `{model.command}` goes on there.")
                raise
            finally:
                monitor.finish()
            product = Path(tempfile.mkdtemp(prefix=f".{name}.building-", dir=folder))
            try:
                teaching.write(product)
                publish(model, product, {"made": model.command, "torch": torch.__version__})
            finally:
                shutil.rmtree(product, ignore_errors=True)
            file.unlink(missing_ok=True)
    return path_of(name)


def _teach(teaching: Teaching, monitor: Progress) -> None:
    losses, saved = list[float](), time.monotonic()
    while teaching.step < teaching.size.steps:
        with uninterrupted():
            losses.append(teaching.teach())
        if time.monotonic() - saved > SECONDS:
            teaching.save()
            saved = time.monotonic()
        if teaching.step % OFTEN == 0:
            monitor.step(teaching.step, {"loss": sum(losses) / len(losses)})
            losses.clear()
