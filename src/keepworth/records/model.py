"""Model: samples and scores tokens, in this process or behind HTTP. Encoder: converts text to vectors."""

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
class Grammar:
    """What a sample may say. It is drawn from the tokens that the grammar allows next, so its log-probabilities are of that
    distribution; a token that was the only one allowed has 0.

    Attributes:
        text: The grammar, in the form of Lark that llguidance reads.
        ends: Ids that end a sample. They are allowed where the grammar is complete, and nowhere else.
        begun: Ids at the end of the prompt with which the text that the grammar describes begins.
    """

    text: str
    ends: Tokens = ()
    begun: Tokens = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample.

    Attributes:
        n: Samples per prompt.
        temperature: 0 is greedy.
        seed: The draw for sample j of prompt i depends only on (seed, prompt index, j, position).
        stop_ids: Ids that end a sample and are part of it (drawing one is a choice).
        top_k: How many of the likeliest tokens are drawn from, 0 for all. Like `top_p` it is for measuring: training samples are
            drawn from all tokens, as their log-probabilities are.
        top_p: After `top_k`, the fewest of the likeliest that have this share of the probability are drawn from.
        grammar: What a sample may say; None leaves it free.
    """

    max_tokens: int
    n: int = 1
    temperature: float = 1.0
    seed: int = 0
    stop_ids: frozenset[int] = frozenset()
    top_k: int = 0
    top_p: float = 1.0
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens [start, end) of a sample were drawn under weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: `ids` exactly as drawn, and `logprobs` of each under the distribution it was drawn from (after temperature)."""

    ids: Tokens
    logprobs: tuple[float, ...]
    finish: FinishReason
    spans: tuple[VersionSpan, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a weight update arrived: the version read back, and the largest gap between both sides on a probe, in nats."""

    version: int
    probe_gap: float
    seconds: float


Message = Mapping[str, Any]
"""One message of a conversation: `role` (system, user, assistant, tool) and `content`, a text."""


class ChatTemplate(Protocol):
    """Formats conversations in a model's own format, as tokens that are only ever appended to."""

    @property
    def takes_tools(self) -> bool:
        """Whether the format describes tools."""
        ...

    @property
    def takes_results(self) -> bool:
        """Whether there is a role for a tool's result."""
        ...

    @property
    def takes_system(self) -> bool:
        """Whether there is a system role."""
        ...

    @property
    def takes_later_system(self) -> bool:
        """Whether system messages may also stand behind the first message."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an assistant's turn."""
        ...

    def opening(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Tokens:
        """Returns the ids of a conversation up to where the assistant's turn begins. `tools` are JSON schemas."""
        ...

    def following(self, messages: Sequence[Message], last: int | None) -> Tokens:
        """Returns the ids between two turns of the assistant, with `messages` in between. `last` is the id that ended the
        assistant's turn, which is not repeated; None where the turn was cut off."""
        ...


class Reads(Protocol):
    """Encodes and decodes text for a model."""

    @property
    def context_limit(self) -> int: ...

    @property
    def chat(self) -> ChatTemplate:
        """The model's chat template. Raises KeepworthError where it has none."""
        ...

    def encode(self, text: str) -> Tokens:
        """Returns the ids of a text that begins a context, with a BOS where the model's tokenizer adds one."""
        ...

    def encode_continuation(self, text: str) -> Tokens:
        """Returns the ids of a text that follows others (a completion, a tool's result, an environment's answer), without a
        BOS."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        """Returns the ids of every token whose text starts with `prefix`, and the end-of-text ids."""
        ...


class Scorer(Protocol):
    """What scores given tokens: a model, or what a model scored before."""

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        """Returns the log-probability of each token of each branch, [prompts][branches][tokens of the branch].

        Args:
            prompts: The ids of each prompt.
            branches: For each prompt, the ids of the continuations that are scored behind it.
            temperature: The logits are divided by it before the softmax.
        """
        ...


class Model(Reads, Scorer, Protocol):
    """The engine protocol: one sampler and scorer, for policies, frozen readers and candidate scorers alike."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    def check_grammar(self, grammar: Grammar) -> None:
        """Raises KeepworthError where samples cannot be drawn under a grammar, or not under this one."""
        ...

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        """Draws `params.n` samples for each prompt, in the order of `prompts`."""
        ...


def beginning(tokenizer: Any) -> Tokens:
    """Returns the special ids that the tokenizer's own settings put before a text; none for most Qwen and SmolLM ones. Ids that
    it would put behind a text (an EOS) are left out, because a prompt goes on."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("a", add_special_tokens=True)["input_ids"])
    starts = [i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain]
    return tuple(whole[: starts[0]]) if starts else ()


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Identifies an encoder. It is stored with every vector set, and vectors of different identities are never compared."""

    model: str
    dimension: int
    normalised: bool


class Encoder(Protocol):
    @property
    def identity(self) -> EncoderIdentity: ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns vectors [len(texts), dimension], float32, of unit length where `identity.normalised`. A row of zeros is near
        nothing."""
        ...
