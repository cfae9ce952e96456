"""Model: something that samples and scores tokens, in this process or behind HTTP. Encoder: text to vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Tokens = tuple[int, ...]


class FinishReason(str, Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """n samples per prompt; temperature 0 is greedy; `stop_ids` end a sample and are part of it (drawing one is a choice).

    top_k: only so many of the likeliest tokens are drawn from, 0 for all; top_p: then the fewest of the likeliest that have this
    share of the probability. For measuring: what is trained on is drawn from all tokens, as its log-probabilities are.
    seed: the draw for sample j of prompt i depends only on (seed, prompt index, j, position)."""

    max_tokens: int
    n: int = 1
    temperature: float = 1.0
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens [start, end) of a sample were drawn under weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sample:
    """ids: exactly as drawn; logprobs: of each id under the distribution it was drawn from (after temperature)."""

    ids: Tokens
    logprobs: tuple[float, ...]
    finish: FinishReason
    spans: tuple[VersionSpan, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a weight update arrived: the version read back and the largest gap between both sides on a probe, in nats."""

    version: int
    probe_gap: float
    seconds: float


Message = Mapping[str, Any]
"""One message of a conversation: `role` (system, user, assistant, tool) and `content`, a text."""


class ChatTemplate(Protocol):
    """Conversations in a model's own format, as tokens that are only ever added to."""

    @property
    def takes_tools(self) -> bool:
        """Whether the format has words of its own for tools."""
        ...

    @property
    def takes_results(self) -> bool:
        """Whether there is a role for what a tool returned."""
        ...

    @property
    def takes_system(self) -> bool:
        """Whether there is a role for what stands before everything."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end what an assistant says."""
        ...

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Tokens:
        """Ids of a conversation up to where the assistant begins to speak. tools: as JSON schemas."""
        ...

    def following(self, messages: Sequence[Message], last: int | None) -> Tokens:
        """Ids between what an assistant said and where it speaks again, with `messages` in between. last: the id that the
        assistant ended with, which is not written a second time; None where it was cut off."""
        ...


class Reads(Protocol):
    """Text as a model reads it."""

    @property
    def context_limit(self) -> int: ...

    @property
    def chat(self) -> ChatTemplate:
        """Raises KeepworthError where the model has no chat template."""
        ...

    def encode(self, text: str) -> Tokens:
        """Ids of a text that begins a context, as the model's tokenizer begins one: with a BOS where it has one."""
        ...

    def encode_continuation(self, text: str) -> Tokens:
        """Ids of a text that follows others: a completion, a tool's result, an environment's answer. Never a second BOS."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        """Ids of every token whose text starts with `prefix`, and the end-of-text ids."""
        ...


class Model(Reads, Protocol):
    """The engine protocol: one sampler and one scorer for policies, frozen readers and candidate scorers alike."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        """`params.n` samples for each prompt, in the order of `prompts`."""
        ...

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        """Per-token log-probabilities of each branch given its prompt."""
        ...


def beginning(tokenizer: Any) -> Tokens:
    """The special ids before a text, as the tokenizer's own settings have them; nothing for most Qwen and SmolLM ones.

    What it would put behind a text (an EOS) is left out: a prompt goes on."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("a", add_special_tokens=True)["input_ids"])
    starts = [i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain]
    return tuple(whole[: starts[0]]) if starts else ()


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Stored with every vector set: vectors of different identities are never compared."""

    model: str
    dimension: int
    normalised: bool


class Encoder(Protocol):
    @property
    def identity(self) -> EncoderIdentity: ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Shape (len(texts), dimension), float32, rows of unit length where `identity.normalised`, or of zeros, which are near
        nothing."""
        ...
