"""The kit: what a method of one's own is made of, in this package or in another one.

A policy of one's own decides what a memory shows: `examples/own_policy.py` is a whole one. `Memory(policy=make)` opens a memory
with it, where `make` is a function that returns a fresh `Policy`. A package that declares an entry point in the group
"keepworth.methods" adds its methods by name. The names are provisional until version 1.0, and under semantic versions then.

* A policy is a `Policy` of a `Keyer`, `Retriever`, `Valuer`, `Selector`, `Presenter`, `Writer` and `Maintainer`s. A
  `PolicyRecord` is the base of a valuer that learns by the ids in a `LoggedChoice` and needs no `Pool`.
* Between its slots pass `Query`, `Candidates`, `Values`, `Use`, `Finished`, `Presented`, `Pool` and `Advice`.
* Ready slots are `whole` (the key is goal and observation), `lines` (one line for each item) and `Mixture` (a choice with its
  probability).
* A method is declared as a `Method`; `need` checks its settings.
"""

from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.record import PolicyRecord
from keepworth.memory.choose.slates import Mixture
from keepworth.memory.choose.slots import (
    Candidates,
    Finished,
    Keyer,
    LoggedChoice,
    Maintainer,
    Policy,
    Presented,
    Presenter,
    Query,
    Retriever,
    Selector,
    Use,
    Valuer,
    Values,
    Writer,
    lines,
    need,
    whole,
)
from keepworth.registry import Method

__all__ = [
    "Advice",
    "Candidates",
    "Finished",
    "Keyer",
    "LoggedChoice",
    "Maintainer",
    "Method",
    "Mixture",
    "Policy",
    "PolicyRecord",
    "Pool",
    "Presented",
    "Presenter",
    "Query",
    "Retriever",
    "Selector",
    "Use",
    "Valuer",
    "Values",
    "Writer",
    "lines",
    "need",
    "whole",
]
