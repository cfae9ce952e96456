"""keepworth: memory that learns what is worth keeping, for language-model agents."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keepworth._moved import MovedModules

if TYPE_CHECKING:
    from keepworth.memory.async_memory import AsyncMemory as AsyncMemory
    from keepworth.memory.by_name import encoder as encoder
    from keepworth.memory.by_name import policy as policy
    from keepworth.memory.choose.pool import Advice as Advice
    from keepworth.memory.choose.slots import Policy as Policy
    from keepworth.memory.choose.slots import Writer as Writer
    from keepworth.memory.item import Item as Item
    from keepworth.memory.item import ItemKind as ItemKind
    from keepworth.memory.memory import Memory as Memory
    from keepworth.memory.scan import Scan as Scan
    from keepworth.memory.search.search import Hit as Hit
    from keepworth.memory.search.search import Hits as Hits
    from keepworth.methods.writers.facts import Facts as Facts
    from keepworth.methods.writers.keeper import Keeper as Keeper
    from keepworth.serving.client import AsyncClient as AsyncClient
    from keepworth.serving.client import Client as Client
    from keepworth.training.front_door import train as train

__version__ = "0.1.0"
sys.meta_path.append(MovedModules)

# `import keepworth` stays instant: a room is loaded when one of its names is first used.
_HOMES = {
    "Advice": "memory.choose.pool",
    "Facts": "methods.writers.facts",
    "AsyncClient": "serving.client",
    "AsyncMemory": "memory.async_memory",
    "Client": "serving.client",
    "Hit": "memory.search.search",
    "Hits": "memory.search.search",
    "Item": "memory.item",
    "ItemKind": "memory.item",
    "KeepworthError": "base.errors",
    "Keeper": "methods.writers.keeper",
    "Memory": "memory.memory",
    "Policy": "memory.choose.slots",
    "Scan": "memory.scan",
    "Writer": "memory.choose.slots",
    "encoder": "memory.by_name",
    "policy": "memory.by_name",
    "train": "training.front_door",
}
__all__ = ["__version__", "errors", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(f"{__name__}.memory.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
