"""The bounded bank as an environment of TRL's `GRPOTrainer`: `environment_factory=lambda: TrlBank(4, reader)`.

In TRL an episode is one conversation, and what was said in it stays in view. So a writer that answered the question itself would
not need its bank. Here a reader answers, which sees the bank and nothing else, and only what it makes of the bank is rewarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from keepworth.environments.bounded_bank import WRITING, BankKeeping, Measure, Reading, Unit, words
from keepworth.episodes.episode import Task
from keepworth.tasks.fact_streams import FactStream

DONE = "That was the last fact."


class TrlBank:
    """One tool, `write`; the rows of its data set come from `trl_rows`. budget, unit, measure: of the bank. reader: answers the
    question (see `BankKeeping`). reward: the verifier of the answer.

    An episode that ends before its last fact has reward 0; one whose reader failed has none, and TRL leaves it out."""

    def __init__(
        self, budget: int, reader: Reading, *, unit: Unit = "items", measure: Measure = words, reward: str = "token_f1"
    ) -> None:
        self._facts: list[str] = []
        self._world = BankKeeping(
            lambda task: self._facts, budget, unit=unit, measure=measure, reader=reader, reward=reward
        )
        self._reward: float | None = 0.0
        self._over = False
        self._turn = asyncio.Lock()  # calls of one message run at once

    def reset(self, *, key: str, facts: Sequence[str], question: str, answers: Sequence[str], **row: Any) -> str:
        """The first fact, which TRL appends to the row's prompt."""
        self._facts, self._reward, self._over = list(facts), 0.0, False
        return self._world.begin(Task(key, "fact streams", question, tuple(answers), "token_f1")).text

    async def write(self, operation: str) -> str:
        """
        Say what becomes of the new fact, and see the next one.

        Args:
            operation: One line: ADD 7 (how much it matters, 0 to 9), UPDATE 2, DELETE 2 or NOOP.

        Returns:
            The memory and the next new fact.
        """
        async with self._turn:
            if self._over:
                return DONE
            try:
                step = await self._world.step(operation)
            except Exception:
                self._over, self._reward = True, None
                raise
            if step.stop is None:
                return step.observation.text
            self._over, self._reward = True, sum(term.value * term.weight for term in step.rewards)
            return DONE

    def get_reward(self) -> float | None:
        return self._reward


def trl_rows(streams: Iterable[FactStream], budget: int, unit: Unit = "items") -> list[dict[str, Any]]:
    """A row for each stream, for `datasets.Dataset.from_list`. Which facts decide the question is not among what is given."""
    asked = f"{WRITING.format(budget=budget, unit=unit)}\nSay it through the tool `write`, once for each fact.\n\n"
    return [
        {
            "prompt": [{"role": "user", "content": asked}],
            "key": stream.key,
            "facts": [fact.text for fact in stream.facts],
            "question": stream.task.input,
            "answers": list(stream.task.answers),
        }
        for stream in streams
    ]
