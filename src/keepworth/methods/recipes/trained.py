"""A memory manager that a run trained decides about each fact of messages: ADD, UPDATE, DELETE or NOOP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from keepworth.base.errors import KeepworthError
from keepworth.memory.choose.slots import Writer
from keepworth.methods.writers.facts import Facts
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.methods.recipes._memory_r1.memory_manager import Choose, Manager, ManagerState
    from keepworth.training.trained import Trained


def trained(*, folder: str | Path, facts: Writer | None = None) -> Manager:
    """Returns the manager that a run trained, as a writer: `Memory("agent.mem", writer=trained(folder="runs/mine"))`.

    It decides for each fact whether it is added, replaces another, removes one, or changes nothing. The model is loaded once per
    process, and called by one thread at a time.

    Args:
        folder: The run's folder.
        facts: The writer that finds the facts of messages; None for the rules.

    Raises:
        MissingExtra: The extra "train" is not installed.
        KeepworthError: The folder holds no manager.
    """
    from keepworth.base.extras import require
    from keepworth.methods.recipes._memory_r1.memory_manager import Manager

    require("train", f"The writer {folder}")
    from keepworth.training.run_folder import MANAGER, RunFolder
    from keepworth.training.trained import find_trained

    path = Path(folder).expanduser()
    run = RunFolder.open(path)
    roles = run.finished_roles()
    if roles and MANAGER not in roles:
        raise KeepworthError(
            f"{path} trained {' and '.join(roles)}, which does not say what a memory keeps.",
            "Name a run that trained a manager (keepworth train memory_r1 --role manager). To let this one answer: "
            f"keepworth serve {path}.",
        )
    manager = find_trained(run, MANAGER if roles else "")
    changed = max(file.stat().st_mtime_ns for file in manager.weights.glob("*.safetensors"))
    return Manager(_choose_by(manager, changed), facts or Facts(updates=False))


@lru_cache(maxsize=2)
def _choose_by(manager: Trained, changed: int) -> Choose:
    """Returns the manager's choices. `changed` is the time of its weights, so that the cache reloads new weights."""
    from keepworth.methods.recipes._memory_r1.memory_manager import chosen_by

    choose, lock = chosen_by(manager.loaded()), Lock()

    def one_at_a_time(states: Sequence[ManagerState]) -> list[str]:
        with lock:
            return choose(states)

    return one_at_a_time


METHOD = Method(
    kind="writer",
    name="trained",
    title="Memory manager of a run",
    paper="arXiv 2508.19828",
    about="Lets a trained manager add, update, delete or ignore each fact; it is named by the folder of its run",
    tags=("token", "factual", "formation", "evolution"),
    differs="The default writer extracts the facts, where the paper asks a model.",
    extra="train",
    make=trained,
)
