"""Who answers in a study: a model in this process, or one at an OpenAI-compatible URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.episodes.errors import KeepworthError
from keepworth.registry import part

if TYPE_CHECKING:
    from keepworth.evaluation.harness import BenchmarkReader
    from keepworth.learning.learner import Learner
    from keepworth.models.inprocess import InProcessModel


def open_reader(reader: str, model: str = "", key_variable: str = "") -> BenchmarkReader:
    """A reader.

    Args:
        reader: A model's name or folder, or a URL.
        model: The model's name at that URL.
        key_variable: The variable of the environment that holds its key.

    Raises:
        KeepworthError: A URL without a model, or what is needed is not there.
    """
    if reader.startswith(("http://", "https://")):
        from keepworth.evaluation.reading import ChatReader

        if not model:
            raise KeepworthError("an endpoint serves several models.", "Name one: --set model=NAME")
        chat = part("chat model")(reader, model, key_variable=key_variable, max_tokens=256)
        return ChatReader(lambda text: str(chat.complete([{"role": "user", "content": text}])), f"{model}@{reader}")
    from keepworth.episodes.extras import require

    require("llm", "a reader in this process")
    from keepworth.methods.recipes._answerer import ModelReader
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    return ModelReader(InProcessModel.load(path_of(reader, kind=ModelKind.LANGUAGE), name=reader))


def learning_reader(name: str, rate: float, seed: int) -> tuple[InProcessModel, Learner]:
    """A model by its name or folder, and the learner of an adapter of it, for imitation.

    Args:
        name: Of the model.
        rate: Learning rate.
        seed: Of the adapter.
    """
    from keepworth.episodes.extras import require

    require("train", "weights that learn")
    from keepworth.learning.learner import Learner, Optimisation
    from keepworth.learning.objective.presets import preset
    from keepworth.models.adapter import attach_lora
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    model = InProcessModel.load(path_of(name, kind=ModelKind.LANGUAGE), name=name)
    named = attach_lora(model, seed=seed)
    return model, Learner(model, named, preset("reinforce"), Optimisation(learning_rate=rate), "reader")
