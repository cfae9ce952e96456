"""The frozen reader of a bank: the untrained model, or the trained answerer of a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from keepworth.base.errors import KeepworthError
from keepworth.base.model_files import ModelKind, path_of, sha256_of
from keepworth.models.adapter import load_trained
from keepworth.training.run import load_model
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import TrainingSettings
from keepworth.training.trained import find_weights
from keepworth.training.watch.progress import Progress
from keepworth.worlds.answerer import ModelReader, Style


@dataclass(frozen=True, slots=True)
class FoundReader:
    """A reader whose files exist: its model, its trained weights and their name. The weights are not loaded."""

    model: str
    weights: Path | None
    identity: str

    def loaded(
        self, config: TrainingSettings, max_tokens: int, style: str, run: RunFolder, progress: Progress
    ) -> ModelReader:
        """Loads the reader, frozen, in the precision that the run was measured in."""
        precision = run.environment.get("precision", config.precision)
        frozen = load_model(config.model_copy(update={"model": self.model, "precision": precision}), progress)
        if self.weights is not None:
            load_trained(frozen, self.weights)
        return ModelReader(frozen, max_tokens=max_tokens, style=Style(style), weights=self.identity)


def found_reader(named: str | None, model: str, style: str, run: RunFolder) -> FoundReader:
    """Returns the trained answerer of the run `named`, next to `run` or at that path; where None, the published `model`.

    Raises KeepworthError, with a fix, where the run, its weights or its model is missing, or where it was trained in another
    style.
    """
    if not named:
        return FoundReader(model, None, "")
    at = Path(named)
    folder = RunFolder.open(at if (at / "config.json").is_file() else run.path.parent / at)
    settings = folder.config
    weights = find_weights(folder, "answerer")
    if not weights.is_dir():
        raise KeepworthError(
            f"The reader {named} cannot be read with: {weights} does not exist.",
            "Name a run that has finished training an answerer, or leave reader out for the untrained model.",
        )
    if (learned := settings.get("style", Style.DIRECT.value)) != style:
        raise KeepworthError(
            f"The reader {named} learned to answer in the style {learned}, and is asked in the style {style}.",
            f"Give this run --set style={learned}.",
        )
    base_model = str(settings.get("model", model))
    path_of(base_model, kind=ModelKind.LANGUAGE)
    sums = "".join(sha256_of(file) for file in sorted(weights.glob("*.safetensors")))
    return FoundReader(base_model, weights, f"{folder.name}/{hashlib.sha256(sums.encode()).hexdigest()[:12]}")
