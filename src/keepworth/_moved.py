"""Names the new place of modules that have moved, where somebody imports them from the old one. It goes with the next version."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PLACES = {
    "agents": "keepworth.worlds",
    "cluster": "keepworth.training",
    "environments": "keepworth.worlds",
    "episodes": "keepworth.records, and for errors, text and arrays keepworth.base",
    "learning": "keepworth.training",
    "page": "keepworth.charts",
    "recipes": "keepworth.training",
    "rollouts": "keepworth.worlds",
    "tasks": "keepworth.worlds, and for text metrics keepworth.base.metrics",
    "memory.adapters": "keepworth.adapters",
    "memory.manager": "keepworth.methods.recipes.trained, whose writer is what a run trained",
    "memory.durable_file": "keepworth.base.durable_files",
    "memory.policy": "keepworth.memory.choose, keepworth.kit and keepworth.methods.policies.default",
    "memory.verbs": "keepworth.serving.verbs",
    "models.chat": "keepworth.base.chat",
    "models.encoders": "keepworth.encoders.local",
    "models.errors": "keepworth.base.model_errors",
    "models.files": "keepworth.base.model_files",
    "models.hosted_encoder": "keepworth.encoders.hosted",
    "models.http_client": "keepworth.base.http_client",
    "evaluation.report": "keepworth.training.watch.report",
    "evaluation.statistics": "keepworth.base.statistics",
    "evaluation.tables": "keepworth.training.watch.tables",
    "serving.model_server": "keepworth.training.model_server",
    "serving.trl": "keepworth.training.trl",
    "serving.verifiers_memory": "keepworth.training.verifiers_memory",
}
"""The places of before, without the name of the package, and those of today."""


class MovedModules:
    """Finds no module: it is asked last, and raises ImportError for a place of before."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return None for every name but those of modules that have moved. Raises ImportError for these."""
        package, _, place = name.partition(".")
        if package == "keepworth" and place in PLACES:
            raise ImportError(f"{name} has moved: see {PLACES[place]}.", name=name)
        return None
