"""The Memory Manager: it reads a new fact and the most similar memories, and answers with one operation.

After "Memory-R1: Enhancing Large Language Model Agents to Manage and Utilize Memories via Reinforcement Learning" (arXiv
2508.19828), with one difference that a small model needs: not JSON after an instruction, but four worked examples in plain text
and one line of answer (`ADD`, `UPDATE 1`, `DELETE 0`, `NOOP`). The model never writes the new wording: it is the new fact itself.

Memories are shown under numbers from 0 in an order that the caller shuffles, so that no policy can exploit the order. Any text
parses; a text without a valid operation is INVALID and changes nothing.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from keepworth.base.text import as_line
from keepworth.memory.choose.slots import Finished, Writer
from keepworth.memory.item import UNKNOWN, Item, Provenance
from keepworth.memory.overlay import Bank
from keepworth.records.episode import MemoryEvent, Operation, OperationKind, ParseStatus
from keepworth.records.model import Model, SamplingParams
from keepworth.records.operations import read_operation

ANSWER_TOKENS = 8
"""Enough for `DELETE 12` and the end of its line in any tokenizer met so far."""
MEMORY_WORDS = 32
"""A memory is shown up to this many words; a cut is marked with an ellipsis. The bank stores all of it."""

# People and values of the examples occur nowhere in the generated cases of its recipe.
_EXAMPLES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("Ben has a pet frog.", "Kim lives in Delhi."), "Kim moved to Sydney.", "UPDATE 1"),
    (("Pat drives a taxi.", "Lee is learning Latin."), "Lee studies Latin.", "NOOP"),
    (("Tom works as an actor.", "Pat likes rum best."), "Tom no longer works as an actor.", "DELETE 0"),
    (("Lee trains in chess.", "Kim plays the lute."), "Ben trains in chess.", "ADD"),
)

_Ordered = TypeVar("_Ordered")


def render(memories: Sequence[str], fact: str) -> str:
    """Returns the prompt: four examples, then memory i under the number i and the new fact. It ends where the answer begins."""
    return PREFIX + _block(memories, fact)


def _block(memories: Sequence[str], fact: str) -> str:
    lines = [f"[{number}] {_one_line(memory)}" for number, memory in enumerate(memories)]
    return "\n".join(("Memory:", *(lines or ["(empty)"]), f"New fact: {_one_line(fact)}", "Operation:"))


def _one_line(text: str) -> str:
    words = as_line(text).split()
    return " ".join(words[:MEMORY_WORDS]) + (" ..." if len(words) > MEMORY_WORDS else "")


PREFIX = "".join(f"{_block(memories, fact)} {gold}\n\n" for memories, fact, gold in _EXAMPLES)
"""The constant head of every prompt: an engine may compute it once."""
PROMPT_ID = f"manager/v1-{hashlib.sha256((PREFIX + str(MEMORY_WORDS)).encode('utf-8')).hexdigest()[:8]}"
"""Changes with every change of wording, since a changed prompt invalidates training."""


def completion(gold: str) -> str:
    """Returns the target text after the prompt for the canonical line `gold`, with the newline that ends it."""
    return f" {gold}\n"


def parse(text: str, shown_ids: Sequence[str]) -> tuple[Operation, ParseStatus]:
    """Returns the operation that a model's text asks for, with shown numbers turned into ids of the bank. Never raises.

    `shown_ids[i]` is the id of the memory shown under i. UPDATE comes back without its text: see `ground`.
    """
    kind, number, status = read_operation(text, shown=len(shown_ids))
    return Operation(kind, () if number is None else (shown_ids[number],)), status


def ground(asked: Operation, fact: str, texts: Mapping[str, str]) -> Operation:
    """Returns the operation as the bank executes it: the fact becomes the new text, and UPDATE may become SUPERSEDE.

    The rule for "UPDATE i": if the words are the same (without case, order, endings and small words), or the old
    text has all words of the new one, NOOP; if the new text has all words of the old one, UPDATE; otherwise, or
    where only one of them is negated, the fact changed, so SUPERSEDE, which closes the old one.

    Args:
        asked: The operation that the model asked for.
        fact: The new fact.
        texts: The current text of each target.
    """
    if asked.kind is OperationKind.ADD:
        return Operation(OperationKind.ADD, (), fact)
    if asked.kind is not OperationKind.UPDATE:
        return asked
    new, old = _content(fact), _content(texts[asked.targets[0]])
    if not (new ^ old) & _NEGATIONS:
        if new <= old:
            return Operation(OperationKind.NOOP)
        if old < new:
            return Operation(OperationKind.UPDATE, asked.targets, fact)
    return Operation(OperationKind.SUPERSEDE, asked.targets, fact)


_SMALL = (
    "a an the is are be am do does has have to of in on at for by with and or as it its i my me we our he his she her they "
    "their that this user so just also"
)
_SMALL_WORDS = frozenset(_SMALL.split())
_NEGATIONS = frozenset(("not", "no", "never", "longer", "stopped", "quit", "without"))
_DATED = re.compile(r"^\d{4}-\d{2}-\d{2}(?:\s+\w+)?:\s*")


def _content(text: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+(?:\.[0-9]+)?", _DATED.sub("", text).lower().replace("n't", " not").replace("'s", ""))
    return frozenset(re.sub(r"(?<=[a-z]{3})(?:ing|ed|es|s)$", "", word) for word in words if word not in _SMALL_WORDS)


def format_reward(status: ParseStatus) -> float:
    """Returns 1 for the canonical line, 0.5 for one that had to be repaired, 0 for an invalid one."""
    return {ParseStatus.OK: 1.0, ParseStatus.REPAIRED: 0.5, ParseStatus.INVALID: 0.0}[status]


def shuffle(items: Sequence[_Ordered], seed: str) -> tuple[_Ordered, ...]:
    """Returns the items in an order that depends only on `seed` (name the fact and the attempt in it)."""
    order = list(items)
    random.Random(f"manager/{seed}").shuffle(order)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class ManagerState:
    """The manager's input: ids and texts of the shown memories in order, and the new fact."""

    ids: tuple[str, ...]
    memories: tuple[str, ...]
    fact: str

    @property
    def prompt(self) -> str:
        return render(self.memories, self.fact)


Choose = Callable[[Sequence[ManagerState]], list[str]]
"""Returns the line that a manager writes in each state."""


def observe(bank: Bank, fact: str, *, k: int = 4, mode: str = "hybrid", seed: str = "") -> ManagerState:
    """Returns the state of one step: the items nearest to a fact, in shuffled order.

    Args:
        bank: The bank that is searched.
        fact: The new fact.
        k: The number of items.
        mode: That of the search: "hybrid", "lexical" or "dense".
        seed: That of the order.
    """
    return _state([hit.item for hit in bank.search(fact, k, mode=mode)] if len(bank) else [], fact, seed)


def _state(items: Sequence[Item], fact: str, seed: str) -> ManagerState:
    items = shuffle(items, seed)
    return ManagerState(tuple(item.id for item in items), tuple(item.text for item in items), fact)


@dataclass(frozen=True, slots=True)
class Manager:
    """Uses the manager as a writer: `Memory(path, writer=Manager(choose))`. Each message is a fact, unless `facts` extracts them;
    the manager sees the `k` nearest items and answers with one operation. For one that a run trained see
    `keepworth.methods.recipes.trained.trained`."""

    choose: Choose
    facts: Writer | None = None
    k: int = 4

    def __call__(self, finished: Finished) -> Iterator[Operation]:
        if self.facts is None:
            facts = [Operation(OperationKind.ADD, (), message["content"]) for message in finished.transcript]
        else:  # a `StatedFact` keeps who stated it, and when
            extracted = [fact for fact in self.facts(finished) if fact.text]
            facts = [
                fact if isinstance(fact, Operation) else Operation(OperationKind.ADD, (), fact.text)
                for fact in extracted
            ]
        for fact in facts:
            state = _state(finished.nearest(fact.text, self.k), fact.text, fact.text)
            operation, _ = parse(self.choose([state])[0], state.ids)
            grounded_operation = ground(operation, fact.text, dict(zip(state.ids, state.memories, strict=True)))
            yield replace(
                fact, kind=grounded_operation.kind, targets=grounded_operation.targets, text=grounded_operation.text
            )


def act(
    bank: Bank, state: ManagerState, text: str, *, provenance: Provenance = UNKNOWN, event_time: str = ""
) -> MemoryEvent:
    """Executes the operation that a model's text asks for. Never raises for any text.

    Args:
        bank: The bank that is changed.
        state: The fact, and the items that the model saw.
        text: What the model said.
        provenance: Where the fact comes from.
        event_time: When it happened; "" for now.
    """
    proposed, status = parse(text, state.ids)
    operation = ground(proposed, state.fact, dict(zip(state.ids, state.memories, strict=True)))
    outcome = bank.apply(operation, provenance=provenance, event_time=event_time)
    return MemoryEvent(operation, status, "applied" if outcome.applied else f"no-op: {outcome.reason}")


def manager_params(model: Model, *, temperature: float = 1.0) -> SamplingParams:
    """Returns sampling parameters for one short line, its newline included."""
    return SamplingParams(ANSWER_TOKENS, temperature=temperature, stop_ids=model.stop_ids_for("\n"))


def chosen_by(model: Model) -> Choose:
    """Returns the model as a manager that decodes greedily."""

    def choose(states: Sequence[ManagerState]) -> list[str]:
        prompts = [model.encode(state.prompt) for state in states]
        drawn = model.sample(prompts, manager_params(model, temperature=0.0))
        return [model.decode(sample.ids) for (sample,) in drawn]

    return choose
