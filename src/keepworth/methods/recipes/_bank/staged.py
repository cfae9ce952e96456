"""Staged editing of memory: facts are stored, then distractors fill the context, then the question comes and stored facts are
retrieved.

    stage 1   a chunk of facts           L2 stores fact 2, L0=2 replaces entry 0 by it, -L0 deletes entry 0
    stage 2   distractors                -M1 removes message 1 from the context, M1 shortens it
    stage 3   the question, the store    R0 retrieves entry 0 into the context, -M1 and M1 as before

The reader gets the context alone: the remaining messages, then the retrieved facts, cut off at the end of its window. Any text is
legal, as in `keepworth.methods.recipes._bank.parted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from keepworth.methods.recipes._bank.bounded_bank import BankEntry
from keepworth.methods.recipes._bank.parted import (
    BankCall,
    CallOutcome,
    ChunkedWriting,
    ChunkTurn,
    PartedBank,
    calls_of,
    short,
)

STORE, MESSAGE, RETRIEVE = "L", "M", "R"


class WritingStage(str, Enum):
    STORE = "store"
    FILTER = "filter"
    ANSWER = "answer"


ASK_STORE, ASK_DROP, ASK_FETCH = "Store as L:", "Drop as -M, shorten as M:", "Retrieve as R:"
"""The last line of the prompt in each stage."""


class StagedWriting:
    """One stream through the three stages. facts: in the order of arrival; distractors: messages of stage 2; question: of stage
    3. bank: with the part `STORE`; chunk, recent: as in `ChunkedWriting`; window: the context's limit, in the bank's measure;
    retrievals: most retrieved entries; words: length of a shortened message."""

    state, stop = "turn", "\n"

    def __init__(
        self,
        facts: Sequence[str],
        distractors: Sequence[str],
        question: str,
        bank: PartedBank,
        *,
        chunk: int,
        recent: int,
        window: int,
        retrievals: int,
        words: int = 6,
    ) -> None:
        self.storing = ChunkedWriting(facts, bank, chunk, recent, ASK_STORE)
        self.turns: list[ChunkTurn] = []
        self.question, self.window = question, window
        self.stage = WritingStage.STORE if facts else WritingStage.FILTER
        self.messages = dict(enumerate(distractors))
        self.retrieved: list[BankEntry] = []
        self.over = False
        self._retrievals, self._words = retrievals, words

    @property
    def bank(self) -> PartedBank:
        return self.storing.bank

    @property
    def stored(self) -> tuple[int, ...]:
        return self.storing.stored

    @property
    def context(self) -> list[BankEntry]:
        """Returns the remaining messages, then the retrieved entries, whether they fit or not."""
        messages = [BankEntry(-1 - number, text, part=MESSAGE) for number, text in self.messages.items()]
        return [*messages, *self.retrieved]

    @property
    def used(self) -> int:
        """Returns the length of the context, in the bank's measure."""
        return sum(self.bank.bank.measure(entry.text) for entry in self.context)

    @property
    def shown(self) -> list[BankEntry]:
        """Returns the part of the context that fits into its window."""
        left, fits = self.window, list[BankEntry]()
        for entry in self.context:
            left -= self.bank.bank.measure(entry.text)
            if left < 0:
                break
            fits.append(entry)
        return fits

    def prompt(self, most: int) -> str | None:
        if self.over:
            return None
        if self.stage is WritingStage.STORE:
            return self.storing.prompt(most)
        lines = [f"M{number} {short(text, most)}" for number, text in self.messages.items()]
        if self.stage is WritingStage.FILTER:
            return "\n".join((*lines, ASK_DROP))
        lines += [f"R{number} {short(entry.text, most)}" for number, entry in enumerate(self.bank.entries(STORE))]
        return "\n".join((*lines, f"Question: {short(self.question, most)}", ASK_FETCH))

    def act(self, text: str) -> ChunkTurn:
        if self.stage is WritingStage.STORE:
            self.turns.append(self.storing.act(text))
            if not self.storing.waiting:
                self.stage = WritingStage.FILTER
            return self.turns[-1]
        messages = tuple(self.messages.values())
        before = (*self.bank.bank.entries, *self.context)
        calls = tuple(self._edited(call) for call in calls_of(text))
        self.bank.bank.invalid += sum(call.outcome == "invalid" for call in calls)
        self.over = self.stage is WritingStage.ANSWER
        self.stage = WritingStage.ANSWER
        self.turns.append(ChunkTurn(messages, calls, before, (*self.bank.bank.entries, *self.context)))
        return self.turns[-1]

    def _edited(self, call: BankCall | None) -> CallOutcome:
        invalid = CallOutcome(call, "invalid")
        if call is None:
            return invalid
        if call.part == MESSAGE and (call.entry is None) != (call.fact is None):
            number = call.fact if call.entry is None else call.entry
            if number not in self.messages:
                return invalid
            text = self.messages[number]
            if call.fact is None:
                del self.messages[number]
                return CallOutcome(call, "deleted", text, -1 - number)
            self.messages[number] = " ".join(text.split()[: self._words])
            outcome = "shortened" if self.messages[number] != text else "duplicate"
            return CallOutcome(call, outcome, self.messages[number], -1 - number)
        entries = self.bank.entries(STORE) if self.stage is WritingStage.ANSWER else []
        if call.part != RETRIEVE or call.entry is not None or call.fact is None or call.fact >= len(entries):
            return invalid
        entry, outcome = entries[call.fact], "retrieved"
        if any(retrieved.number == entry.number and retrieved.text == entry.text for retrieved in self.retrieved):
            outcome = "duplicate"
        elif len(self.retrieved) >= self._retrievals:
            outcome = "refused"
        else:
            self.retrieved.append(replace(entry, part=RETRIEVE))
        return CallOutcome(call, outcome, entry.text, entry.number)
