"""Finds and loads the weights that a run trained, to export them, serve them, or write a memory with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from keepworth.base.needs import needs_train

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.json_values import read_json
from keepworth.base.model_files import ModelKind, path_of
from keepworth.models.adapter import load_trained, merge_network
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision
from keepworth.training.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Trained:
    """The trained weights of one role.

    Attributes:
        weights: A folder as `save_trained` writes it, of an adapter or of a whole checkpoint.
        model: The name or folder of its base.
        step: The step at which training ended.
        precision: The type of number that it was trained in.
    """

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

    def untrained(self, precision: Precision | None = None) -> InProcessModel:
        """Loads the model that training began from."""
        return InProcessModel.load(self.base, name=self.model, precision=precision or self.precision)

    def loaded(self, precision: Precision | None = None) -> InProcessModel:
        """Loads the trained model, with an adapter separate from its weights. `precision` overrides that of training."""
        if not self.is_adapter:
            return InProcessModel.load(self.weights, name=self.model, precision=precision or self.precision)
        model = self.untrained(precision)
        load_trained(model, self.weights)
        return model

    def merged(self, precision: Precision | None = None) -> InProcessModel:
        """Loads the model with the adapter merged into its weights in float32, which are then rounded to `precision`."""
        model = self.loaded("fp32")
        model.network = merge_network(model).to(DTYPES[precision or self.precision])
        return model


def find_weights(run: RunFolder, role: str) -> Path:
    """Returns the folder of a role's finished weights, which outlive the checkpoints."""
    return run.path / "weights" / role


def find_trained(run: RunFolder, role: str = "") -> Trained:
    """Finds the finished weights of a run; `role` says which, where it trained several. Raises KeepworthError."""
    roles = run.finished_roles()
    if not roles:
        raise KeepworthError(
            f"{run.path} has not finished training a role.", "Continue the run with the command that began it."
        )
    if not role and len(roles) > 1:
        raise KeepworthError(f"{run.path} trained {' and '.join(roles)}.", f"Say which: --role {roles[0]}.")
    if role and role not in roles:
        raise UnknownName("trained role", role, roles, where=str(run.path))
    weights = find_weights(run, role or roles[0])
    ended = read_json(weights / "step.json", f"Delete {weights}: it is trained again.")
    precision = cast(Precision, run.environment.get("precision", "bf16"))
    return Trained(role or roles[0], weights, model_of(run), int(ended.get("step") or 0), precision)


def model_of(run: RunFolder) -> str:
    """Returns the run's name of the model that it trained. Raises KeepworthError where it trained none."""
    model = run.config.get("model") or run.environment.get("model")
    if not isinstance(model, str):
        raise KeepworthError(f"{run.path} trained no language model: it has no weights.")
    return model
