"""The Answerer: reads memories and a question, and writes a short answer.

After the Answer Agent of "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via Reinforcement
Learning" (arXiv 2508.19828), in a form that a 135M model can follow: two worked examples in plain text instead of an instruction.
Memories are in order of time, so that "the later one counts" can be learned without writing dates, which would cost a dozen
tokens each. `Style.DISTIL` asks for the useful memory before the answer, as the paper does; it needs a larger model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import Enum
from itertools import groupby, takewhile
from typing import Protocol

from keepworth.base.errors import KeepworthError
from keepworth.base.text import as_line
from keepworth.records.episode import ParseStatus, Shown
from keepworth.records.model import Model, SamplingParams, Tokens
from keepworth.worlds.agent import first_line

ROLE = "answerer"
MARKER = "Answer:"


class Style(str, Enum):
    DIRECT = "direct"
    DISTIL = "distil"


# (memories, question, useful memory, answer). One answer is a name, the other a number that was updated.
_EXAMPLES: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (
        ("I finally adopted a cat, her name is Pepper.", "My sister Nora moved to Leeds."),
        "What is the name of my cat?",
        "I finally adopted a cat, her name is Pepper.",
        "Pepper",
    ),
    (
        ("I ran 5 miles on Sunday.", "My longest run is now 9 miles, up from 5."),
        "How long is my longest run?",
        "My longest run is now 9 miles, up from 5.",
        "9 miles",
    ),
)


def _block(memories: Sequence[str], question: str) -> str:
    lines = [f"- {text}" for text in memories] or ["(empty)"]
    return "\n".join(("Memory:", *lines, f"Question: {question}"))


def _prefix(style: Style) -> str:
    worked = []
    for memories, question, useful, answer in _EXAMPLES:
        evidence = f"\nUseful: {useful}" if style is Style.DISTIL else ""
        worked.append(f"{_block(memories, question)}{evidence}\n{MARKER} {answer}\n\n")
    return "".join(worked)


PREFIX = {style: _prefix(style) for style in Style}
PROMPT_ID = {
    style: f"answerer/{style.value}-v1-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    for style, text in PREFIX.items()
}
"""Changes with every change of wording, since the prompt is part of the environment."""


def render(shown: Sequence[Shown], question: str, style: Style = Style.DIRECT) -> str:
    """Returns the prompt: two examples, the memories, the question. It ends where the model continues.

    Args:
        shown: The memories, in the order in which they appear.
        question: The text of the question; its line breaks become blanks.
        style: Whether the model answers at once, or first writes what is useful.
    """
    memories = [as_line(item.text) for item in shown]
    ending = "Useful:" if style is Style.DISTIL else MARKER
    return f"{PREFIX[style]}{_block(memories, as_line(question))}\n{ending}"


def parse(text: str, style: Style = Style.DIRECT) -> tuple[str, ParseStatus]:
    """Returns the answer in a model's text: its first line, or the text after the marker. Never raises."""
    if style is Style.DISTIL:
        _, marker, text = text.rpartition(MARKER)
        if not marker:
            return "", ParseStatus.INVALID
    answer = first_line(text)
    return answer, ParseStatus.OK if answer else ParseStatus.INVALID


def fit(
    model: Model, shown: Sequence[Shown], question: str, max_tokens: int, style: Style = Style.DIRECT
) -> tuple[Tokens, tuple[Shown, ...]]:
    """Returns the prompt's tokens and the memories that fit in the model's window, in the order shown. How many fit is found by
    bisection: a handful of prompts is encoded, however many memories there are. Raises KeepworthError where `max_tokens` or
    the question alone is too long.

    Args:
        model: The model that reads the prompt.
        shown: The memories. Those of the lowest score are left out first, of equal ones the first (the oldest).
        question: The text of the question.
        max_tokens: The tokens of the window that are left for the answer.
        style: The form of the prompt, as for `render`.
    """
    limit = model.context_limit - max_tokens
    if limit < 1:
        raise KeepworthError(
            f"max_tokens = {max_tokens} is more than the window of {model.context_limit} tokens that {model.name} "
            "reads leaves beside a prompt.",
            f"Set max_tokens well below {model.context_limit}.",
        )

    worst_first = sorted(range(len(shown)), key=lambda i: (shown[i].score, i))

    def best(count: int) -> tuple[Tokens, tuple[Shown, ...]]:
        fitting = tuple(shown[i] for i in sorted(worst_first[len(shown) - count :]))
        return model.encode(render(fitting, question, style)), fitting

    prompt = best(len(shown))
    if len(prompt[0]) <= limit:
        return prompt
    prompt = best(0)
    if len(prompt[0]) > limit:
        raise KeepworthError(
            f"The question has {len(prompt[0])} tokens with its examples, past the {limit} that {model.name} can read "
            f"before answering in up to {max_tokens}.",
            "Shorten it, lower max_tokens, or take a model with a longer window.",
        )
    fits, too_many = 0, len(shown)
    while too_many - fits > 1:
        count = (fits + too_many) // 2
        candidate = best(count)
        if len(candidate[0]) <= limit:
            fits, prompt = count, candidate
        else:
            too_many = count
    return prompt


Query = tuple[str, Sequence[str]]
"""(question, memories in the order of the prompt)."""


class Reader(Protocol):
    """A frozen reader that answers questions from memories. `identity` is stored with every reward it gave."""

    @property
    def identity(self) -> str: ...

    def answers(self, queries: Sequence[Query]) -> list[str]:
        """Returns one answer per query. Equal queries get equal answers."""
        ...


class ModelReader:
    """A model behind the answerer's prompt, greedy, with one call per distinct prompt and version of the model.

    weights: the name of its trained weights, if any: the identity distinguishes a trained reader from an untrained one.
    """

    def __init__(self, model: Model, *, max_tokens: int = 16, style: Style = Style.DIRECT, weights: str = "") -> None:
        self._model, self._max_tokens, self._style = model, max_tokens, style
        self._weights = f"+{weights}" if weights else ""
        self._cache: dict[tuple[str, bytes], str] = {}

    @property
    def identity(self) -> str:
        return f"{self._model.name}@{self._model.version}{self._weights} {PROMPT_ID[self._style]}"

    def answers(self, queries: Sequence[Query]) -> list[str]:
        identity = self.identity
        prompts: dict[tuple[str, bytes], Tokens] = {}
        keys = []
        for question, memories in queries:
            prompt = self._prompt(question, memories, self._max_tokens)
            key = identity, hashlib.sha256(repr(prompt).encode()).digest()
            keys.append(key)
            if key not in self._cache:
                prompts[key] = prompt
        if prompts:
            greedy = SamplingParams(self._max_tokens, temperature=0.0, stop_ids=self._model.stop_ids_for("\n"))
            for key, (sample,) in zip(prompts, self._model.sample(list(prompts.values()), greedy), strict=True):
                self._cache[key] = parse(self._model.decode(sample.ids), self._style)[0]
        return [self._cache[key] for key in keys]

    def _prompt(self, question: str, memories: Sequence[str], max_tokens: int) -> Tokens:
        shown = [Shown(str(number), 0.0, memory) for number, memory in enumerate(memories)]
        return fit(self._model, shown, question, max_tokens, self._style)[0]

    @property
    def room(self) -> int:
        """Returns the number of tokens for memories, beside the examples and a question of usual length."""
        head = len(self._model.encode(PREFIX[self._style]))
        return self._model.context_limit - self._max_tokens - head - USUAL_QUESTION

    def tokens(self, text: str) -> int:
        """Returns the number of tokens of one memory as a line of the prompt."""
        return len(self._model.encode_continuation(f"- {as_line(text)}\n"))

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        """Returns for each (question, memories, options) the index of the option of highest mean log-probability per token."""
        picked = []
        for start in range(0, len(queries), TOGETHER):
            for _, group in groupby(queries[start : start + TOGETHER], key=lambda query: tuple(query[1])):
                asked = list[tuple[Tokens, list[Tokens]]]()
                for question, memories, options in group:
                    endings = [self._model.encode_continuation(f" {as_line(option)}\n") for option in options]
                    asked.append((self._prompt(question, memories, max(map(len, endings))), endings))
                columns = zip(*(prompt for prompt, _ in asked), strict=False)
                head = tuple(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))
                branches = [(*prompt[len(head) :], *ending) for prompt, endings in asked for ending in endings]
                scores = iter(self._model.score([head], [branches])[0])
                for _, endings in asked:
                    means = [sum(next(scores)[-len(ending) :]) / len(ending) for ending in endings]
                    picked.append(means.index(max(means)))
        return picked


TOGETHER = 8
"""Consecutive questions whose memories are read once for all of them, if equal."""
USUAL_QUESTION = 64
"""Tokens reserved for a question."""
