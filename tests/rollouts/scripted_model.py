"""A model that says what it is told to: one token per character, answers from a function of the prompt's text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keepworth.records.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan


class ScriptedModel:
    """answer: from the prompt's text and the number of the sample to what is said. batches: prompts per call, as made."""

    name = "scripted"
    version = 3

    def __init__(self, answer: Callable[[str, int], str], context_limit: int = 4096) -> None:
        self.answer, self.context_limit = answer, context_limit
        self.batches: list[tuple[list[str], SamplingParams]] = []

    def encode(self, text: str) -> Tokens:
        return tuple(map(ord, text))

    encode_continuation = encode

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        return frozenset({ord(prefix[0])})

    def sample(self, prompts: Sequence[Tokens], params: SamplingParams) -> list[list[Sample]]:
        self.batches.append(([self.decode(prompt) for prompt in prompts], params))
        return [[self._said(self.decode(prompt), j, params) for j in range(params.n)] for prompt in prompts]

    def _said(self, prompt: str, number: int, params: SamplingParams) -> Sample:
        text = self.answer(prompt, number)
        ends = next((i + 1 for i, letter in enumerate(text) if ord(letter) in params.stop_ids), None)
        ids = tuple(map(ord, text[: ends or len(text)][: params.max_tokens]))
        stopped = bool(ids) and ids[-1] in params.stop_ids
        span = VersionSpan(self.version, 0, len(ids))
        return Sample(ids, (-0.5,) * len(ids), FinishReason.STOP if stopped else FinishReason.LENGTH, (span,))

    def score(
        self, prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], temperature: float = 1.0
    ) -> list[list[tuple[float, ...]]]:
        return [[(-0.5,) * len(branch) for branch in own] for own in branches]


@dataclass(frozen=True, slots=True)
class FunctionReader:
    """A plain function (question, memories) -> answer as a reader of the manager's reward."""

    identity: str
    answer: Callable[[str, Sequence[str]], str]

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        return [self.answer(question, memories) for question, memories in queries]
