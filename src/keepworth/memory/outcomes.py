"""Where the rewards of a memory come from: what people said, evaluators, signals, and logs, each with how many there were."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from keepworth.memory.item import EVALUATION, SIGNAL, signal_of
from keepworth.memory.signals import load_signals, read_weight
from keepworth.memory.store.log import RewardSum

KINDS = ("people", "evaluation", "signal", "other")
"""Kinds of sources, in the order in which they are listed."""


@dataclass(frozen=True, slots=True)
class OutcomeSource:
    """Where rewards come from.

    Args:
        kind: One of `KINDS`: what people said, all of them together; an evaluator; a signal; or another source, such as a log.
        source: What takes them back, with `rollback(source=...)`; "" for what people said.
        about: What it is, in words; "" where the name says it.
        counts: Whether it may still become a reward: a signal may be switched off.
        weight: How much one counts beside what somebody said.
        rewards: How many there were that were not taken back.
        mean: Their mean; None if there are none.
        last: When the last one came.
        repeated: How many evaluations came again, and counted once.
        unknown: How many evaluations named nothing in this memory.
        unusable: How many evaluations had no score that is a reward.
    """

    kind: str
    source: str
    about: str = ""
    counts: bool = True
    weight: float = 1.0
    rewards: int = 0
    mean: float | None = None
    last: str = ""
    repeated: int = 0
    unknown: int = 0
    unusable: int = 0


def list_sources(
    sums: Mapping[str, RewardSum], tallies: Mapping[str, Mapping[str, int]], signals: Collection[str]
) -> list[OutcomeSource]:
    """List the sources of rewards: all signals, and of the others those from which something came.

    Args:
        sums: The rewards of each channel, "" for people.
        tallies: What became of the evaluations of each evaluator.
        signals: The names of the signals that are switched on.
    """
    listed = list[OutcomeSource]()
    table = load_signals()
    evaluators = {f"{EVALUATION}{name}" for name in tallies}
    for source in {**sums, **dict.fromkeys(evaluators), **dict.fromkeys(signal.source for signal in table.values())}:
        total = sums.get(source, RewardSum())
        name = signal_of(source)
        tally = tallies.get(source.removeprefix(EVALUATION), {}) if source.startswith(EVALUATION) else {}
        listed.append(
            OutcomeSource(
                _kind(source),
                source,
                table[name].about if name in table else "what people said themselves" if not source else "",
                name in signals if name else True,
                table[name].weight if name in table else read_weight(source),
                total.count,
                total.sum / total.count if total.count else None,
                total.last,
                *(tally.get(what, 0) for what in ("repeated", "unknown", "unusable")),
            )
        )
    order = list(table)
    return sorted(
        listed,
        key=lambda row: (
            KINDS.index(row.kind),
            order.index(name) if (name := row.source.removeprefix(SIGNAL)) in order else -1,
            -row.rewards,
            row.source,
        ),
    )


def _kind(source: str) -> str:
    if not source:
        return "people"
    return "signal" if signal_of(source) else "evaluation" if source.startswith(EVALUATION) else "other"
