"""What a run trained, found and loaded: to be exported, served, or to write what a memory keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import cast

from keepworth.episodes.needs import needs_train

from keepworth.agents.manager import ROLE as MANAGER
from keepworth.agents.manager import Choose, Manager, ManagerState, chosen_by
from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.learning.run_folder import RunFolder, read_json
from keepworth.memory.policy.slots import Writer
from keepworth.models.adapter import load_trained, merged_network
from keepworth.models.files import ModelKind, path_of
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision
from keepworth.recipes.training import kept_weights


@dataclass(frozen=True, slots=True)
class Trained:
    """What one role learned. weights: a folder as `save_trained` writes it, an adapter's or a whole checkpoint's. model: the
    name or folder of its base. step: at which it ended. precision: the type of number that it was trained in."""

    role: str
    weights: Path
    model: str
    step: int
    precision: Precision

    @property
    def is_adapter(self) -> bool:
        return (self.weights / "adapter_config.json").is_file()

    @property
    def base(self) -> Path:
        return path_of(self.model, kind=ModelKind.LANGUAGE)

    def loaded(self, precision: Precision | None = None) -> InProcessModel:
        """The model that was trained, an adapter beside its weights. precision: another than it was trained in."""
        precision = precision or self.precision
        if not self.is_adapter:
            return InProcessModel.load(self.weights, name=self.model, precision=precision)
        model = InProcessModel.load(self.base, name=self.model, precision=precision)
        load_trained(model, self.weights)
        return model

    def merged(self, precision: Precision | None = None) -> InProcessModel:
        """The same with the adapter in its weights: put together in float32, then rounded to `precision`."""
        model = self.loaded("fp32")
        model.network = merged_network(model).to(DTYPES[precision or self.precision])
        return model


def trained_by(run: RunFolder, role: str = "") -> Trained:
    """What a run has finished training. role: which, where it trained several. Raises KeepworthError."""
    roles = run.finished_roles()
    if not roles:
        raise KeepworthError(
            f"{run.path} has not finished training a role.", "Continue the run with the command that began it."
        )
    if not role and len(roles) > 1:
        raise KeepworthError(f"{run.path} trained {' and '.join(roles)}.", f"Say which: --role {roles[0]}.")
    if role and role not in roles:
        raise UnknownName("trained role", role, roles, where=str(run.path))
    weights = kept_weights(run, role or roles[0])
    ended = read_json(weights / "step.json", f"Delete {weights}: it is trained again.")
    return Trained(role or roles[0], weights, model_of(run), int(ended.get("step") or 0), precision_of(run))


def model_of(run: RunFolder) -> str:
    """What the run calls the model that it trained. Raises KeepworthError where it trained none."""
    model = run.config.get("model") or run.environment.get("model")
    if not isinstance(model, str):
        raise KeepworthError(f"{run.path} trained no language model: it has no weights.")
    return model


def precision_of(run: RunFolder) -> Precision:
    return cast(Precision, run.environment.get("precision", "bf16"))


def manager_of(path: Path | str, *, facts: Writer | None = None) -> Manager:
    """The manager that a run trained, as a writer: `Memory("agent.mem", writer=manager_of("runs/mine"))`.
    It says of each fact whether it is added, takes the place of another, removes one, or changes nothing. facts: the writer
    that finds them in what was said; without one each message is a fact.

    Raises KeepworthError where there is none. The model is loaded once for a process, and asked by one thread at a time."""
    run = RunFolder.open(Path(path))
    roles = run.finished_roles()
    if roles and MANAGER not in roles:
        raise KeepworthError(
            f"{path} trained {' and '.join(roles)}, which does not say what a memory keeps.",
            "Name a run that trained a manager (keepworth train memory_r1 --role manager). To let this one answer: "
            f"keepworth serve {path}.",
        )
    trained = trained_by(run, MANAGER if roles else "")
    changed = max(file.stat().st_mtime_ns for file in trained.weights.glob("*.safetensors"))
    return Manager(_choose_by(trained, changed), facts)


@lru_cache(maxsize=2)
def _choose_by(trained: Trained, changed: int) -> Choose:
    """changed: when, so that weights which were trained anew are loaded anew."""
    choose, lock = chosen_by(trained.loaded()), Lock()

    def one_at_a_time(states: Sequence[ManagerState]) -> list[str]:
        with lock:
            return choose(states)

    return one_at_a_time
