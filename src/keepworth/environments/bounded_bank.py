"""The bounded bank: facts come one by one, the bank holds less than all of them, and a question comes after the last one.

Any writer plays it that can write a line. `ADD` keeps the new fact, `ADD 7` says beside it how much it matters, from 0 to 9;
`UPDATE 2` puts it in the place of entry 2, `DELETE 2` gives entry 2 up, `NOOP` lets the fact pass. Where the bank is full, what
matters least goes first, and of equals the oldest: so a writer that always says `ADD` keeps the latest facts, and one that says
how much each matters keeps the most important ones. Any text is a legal action: what makes no sense changes nothing and is
counted, and so is what cannot be done.

The last observation is the question with what is left in the bank, for the writer to answer; or a reader that was handed in
answers it. Whoever does, the reward is the answer's alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from keepworth.environments.environment import Step, in_thread
from keepworth.episodes.episode import Observation, OperationKind, ParseStatus, RewardTerm, StopReason, Task
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.tasks.operations import read_operation
from keepworth.tasks.verifiers import verifier

USUAL = 5.0
"""How much a fact matters where the writer does not say."""
MOST = 9.0
Unit = Literal["items", "tokens"]
Measure = Callable[[str], int]
"""The tokens of a text."""

_IMPORTANCE = re.compile(r"^\s*ADD\s+([0-9]+(?:\.[0-9]+)?)\s*$", re.IGNORECASE)


def words(text: str) -> int:
    """Tokens where no tokenizer is at hand."""
    return len(text.split())


@dataclass(frozen=True, slots=True)
class BankEntry:
    """A fact in the bank. number: of its arrival; matters: how much, from 0 to 9; pinned: it stays, whatever is
    asked for; part: of the bank that it stands in, where a bank has parts."""

    number: int
    text: str
    matters: float = USUAL
    pinned: bool = False
    part: str = ""


@dataclass(slots=True)
class BoundedBank:
    """At most `budget` items, or tokens. entries: in the order of their arrival. Every method is total: what cannot be done
    changes nothing, says why, and is counted.

    invalid: lines that made no sense; refused: what made sense and cannot be done, because the fact is longer than what is not
    pinned, or because the entry that it should replace is pinned. Raises KeepworthError for a budget below 1 and for
    entries that are more than it."""

    budget: int
    unit: Unit = "items"
    measure: Measure = words
    entries: list[BankEntry] = field(default_factory=list)
    invalid: int = 0
    refused: int = 0
    arrived: int = 0

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise KeepworthError(
                f"a bank of {self.budget} {self.unit} holds nothing.", "Give it a budget of at least 1."
            )
        if (full := self._size(self.entries)) > self.budget:
            raise KeepworthError(
                f"a bank of {self.budget} {self.unit} was given entries of {full}.",
                "Give it fewer, or a larger budget.",
            )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the facts that are in the bank."""
        return tuple(entry.number for entry in self.entries)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(entry.text for entry in self.entries)

    def size(self, text: str) -> int:
        return 1 if self.unit == "items" else self.measure(text)

    def write(self, line: str, fact: str) -> str:
        """Carry out what `line` asks for about the next fact; what was done, in a word."""
        number, self.arrived = self.arrived, self.arrived + 1
        first = next((each for each in line.splitlines() if each.strip()), "")
        if said := _IMPORTANCE.match(first):
            return self.put(BankEntry(number, fact, min(MOST, float(said[1]))))
        kind, target, status = read_operation(line, shown=len(self.entries))
        if status is ParseStatus.INVALID:
            self.invalid += 1
            return "invalid"
        if kind is OperationKind.ADD:
            return self.put(BankEntry(number, fact))
        if target is None:
            return "passed"
        if self.entries[target].pinned:
            self.refused += 1
            return "refused"
        if kind is OperationKind.DELETE:
            del self.entries[target]
            return "deleted"
        if kind is OperationKind.UPDATE:
            before = list(self.entries)
            old = self.entries.pop(target)
            done = self.put(BankEntry(number, fact, old.matters))
            if done != "kept":
                self.entries = before
            return done
        return "passed"

    def _size(self, entries: Iterable[BankEntry]) -> int:
        return sum(self.size(entry.text) for entry in entries)

    def put(self, new: BankEntry) -> str:
        """kept, passed or refused. A fact that matters too little to get in pushes nothing out either."""
        if self._size([new, *(entry for entry in self.entries if entry.pinned)]) > self.budget:
            self.refused += 1
            return "refused"
        given_up = sorted((entry for entry in [*self.entries, new] if not entry.pinned), key=_least_first)
        left = [*self.entries, new]
        while self._size(left) > self.budget:
            gone = given_up.pop(0)
            if gone is new:
                return "passed"
            left = [entry for entry in left if entry is not gone]
        self.entries = left
        return "kept"


def _least_first(entry: BankEntry) -> tuple[float, int]:
    return entry.matters, entry.number


def shown(entries: Sequence[str], fact: str) -> str:
    """What a writer sees: the bank's entries under their numbers, and the new fact, a line each."""
    lines = [f"[{number}] {as_line(text)}" for number, text in enumerate(entries)] or ["(empty)"]
    return "\n".join(("Memory:", *lines, f"New fact: {as_line(fact)}"))


Arriving = Callable[[Task], Sequence[str]]
"""The facts of a task, in the order in which they arrive."""
Kept = Callable[[Task, Sequence[int]], float]
"""(task, numbers of the facts in the bank) to the share of its evidence that is there."""
Reading = Callable[[str, Sequence[str]], str]
"""(question, what is in the bank) to an answer."""


class BankKeeping:
    """`arriving` facts of a task against a bank of `budget` items or tokens, then its question: a turn for each fact, and one
    more for the answer. Whoever runs it lets an episode have that many turns (`keepworth.rollouts.driver.Limits`).

    reader: answers in the writer's place as soon as the last fact was dealt with, in a thread because it may hang; where it
    fails the environment does, and the episode says nothing about the writer. reward: the verifier of the answer. evidence:
    logged beside it, with weight 0, and never trained on; None where nobody knows."""

    def __init__(
        self,
        arriving: Arriving,
        budget: int,
        *,
        unit: Unit = "items",
        reader: Reading | None = None,
        reward: str = "token_f1",
        evidence: Kept | None = None,
    ) -> None:
        self._arriving, self._reader = arriving, reader
        self._reward, self._verifier, self._evidence = reward, verifier(reward), evidence
        self._budget, self._unit = budget, unit
        self.bank = BoundedBank(budget, unit)
        self._task: Task | None = None
        self._left: list[str] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        return self.begin(task)

    def begin(self, task: Task) -> Observation:
        """The first observation, for whoever cannot wait."""
        self.bank = BoundedBank(self._budget, self._unit)
        self._task, self._left = task, list(self._arriving(task))
        return self._next()

    async def step(self, action: str) -> Step:
        assert self._task is not None
        errors: tuple[str, ...] = ()
        if self._left:
            errors = _WRONG.get(self.bank.write(action, self._left.pop(0)), ())
            if self._left or self._reader is None:
                return Step(self._next(), errors=errors)
        if self._reader is not None:
            answer = (await in_thread(self._reader, self._task.input, self.bank.texts)).strip()
        else:
            answer = action.strip()
        terms = [RewardTerm(self._reward, self._verifier(answer, self._task.answers))]
        if self._evidence is not None:
            terms.append(RewardTerm("evidence_kept", self._evidence(self._task, self.bank.numbers), weight=0.0))
        stop = StopReason.COMPLETED if answer or self._reader is not None else StopReason.PARSE_ERROR
        return Step(rewards=tuple(terms), stop=stop, answer=answer, errors=errors)

    async def close(self) -> None:
        self._task, self._left = None, []

    def _next(self) -> Observation:
        assert self._task is not None
        if self._left:
            text = shown(self.bank.texts, self._left[0])
            turns = len(self._left) - (self._reader is not None)
            return Observation(text, answer_due=False, turns_left=turns)
        text = "\n".join(map(as_line, self.bank.texts))
        return Observation(text, question=self._task.input, turns_left=0)


_WRONG = {
    "invalid": ("the writer's line makes no sense",),
    "refused": ("what the writer asked for cannot be done",),
}
