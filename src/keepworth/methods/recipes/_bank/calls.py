"""Writing by calls, as a rollout: turn by turn the model sees its bank and what is new, says what to do, and it is
done; then a frozen reader answers the question from what is left.

What a turn is belongs to the environment (a `WritingCourse`), what it earns to the recipe (`Earned`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from keepworth.episodes.episode import Episode, OperationKind, RewardTerm
from keepworth.episodes.model import Model, SamplingParams, Tokens
from keepworth.methods.recipes._bank.bounded_bank import BankEntry
from keepworth.methods.recipes._bank.fact_streams import FactStream
from keepworth.methods.recipes._bank.parted import CallOutcome, ChunkTurn
from keepworth.methods.recipes._bank.rollouts import (
    BankAnswer,
    DoneWrite,
    Read,
    WriterTurn,
    state_of_entries,
    writer_episode,
)
from keepworth.rollouts.driver import RolloutContext

MOST_WORDS = 256
"""Of one fact in a prompt; fewer where the prompt does not fit into the model's window."""
SAME_GROUP = "turn"
"""The state of every segment: for an objective that compares all turns of a group with each other (Mem-alpha)."""


class WritingCourse(Protocol):
    """What is written in one episode, turn by turn. turns: those that are over."""

    turns: list[ChunkTurn]

    @property
    def shown(self) -> Sequence[BankEntry]:
        """What the reader is given after the last turn."""
        ...

    @property
    def stored(self) -> Sequence[int]:
        """Numbers of the stream's facts that are in the bank."""
        ...

    def prompt(self, most: int) -> str | None:
        """What the writer sees, each fact in at most `most` words; None after the last turn."""
        ...

    def act(self, text: str) -> ChunkTurn:
        """Carry out a response. Any text is legal."""
        ...


Earned = Callable[[WritingCourse, BankAnswer], Sequence[RewardTerm]]
"""The reward terms of an episode besides the answer's, which is of weight 1 and named `answer`: where one of these has
that name, it stands in its place."""


def fitted(model: Model, course: WritingCourse, answer: int) -> Tokens | None:
    """The next prompt, cut short where it would leave no room for `answer` tokens; None where none is left."""
    most = MOST_WORDS
    while (text := course.prompt(most)) is not None:
        prompt = model.encode(text)
        if len(prompt) + answer <= model.context_limit:
            return prompt
        if most == 1:
            return prompt[len(prompt) + answer - model.context_limit :]
        most //= 2
    return None


async def write_by_calls(
    model: Model,
    stream: FactStream,
    course: WritingCourse,
    context: RolloutContext,
    read: Read,
    earned: Earned,
    *,
    max_tokens: int,
    prompt_id: str,
    temperature: float = 1.0,
    scorer: str = "",
    seconds: float | None = None,
) -> Episode:
    """One episode: a segment for each turn, a decision and an operation for each call, then one reading. Its `shown`
    are what the reader was given."""
    params = SamplingParams(max_tokens, temperature=temperature, stop_ids=model.stop_ids_for("\n"))
    begun, version = time.perf_counter(), model.version
    turns: list[WriterTurn] = []
    while (prompt := fitted(model, course, max_tokens)) is not None:
        sample = await context.sample(prompt, params)
        text = model.decode(sample.ids)
        turn = course.act(text)
        before, after = state_of_entries(turn.before), state_of_entries(turn.after)
        done = [DoneWrite(call.fact, call.number, _kind(call), call.outcome) for call in turn.calls]
        turns.append(WriterTurn(prompt, sample, text, before, after, done, SAME_GROUP))
    sampled = time.perf_counter()
    answered = await context.with_group("read", read, (stream, tuple(each.text for each in course.shown)), seconds)
    terms = list(earned(course, answered))
    if all(term.name != "answer" for term in terms):
        terms.insert(0, RewardTerm("answer", answered.score, scorer=scorer))
    took = {"sample": sampled - begun, "reward": time.perf_counter() - sampled}
    return writer_episode(
        model, stream, context, turns, answered, terms, course.shown, course.stored, took,
        prompt_id=prompt_id, temperature=temperature, version=version,
    )  # fmt: skip


def _kind(call: CallOutcome) -> OperationKind:
    if call.outcome == "kept":
        replaces = call.call is not None and call.call.entry is not None
        return OperationKind.UPDATE if replaces else OperationKind.ADD
    return OperationKind.DELETE if call.outcome == "deleted" else OperationKind.NOOP
