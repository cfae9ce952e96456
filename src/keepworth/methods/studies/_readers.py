"""Who answers in a study: a model in this process, or one at an OpenAI-compatible URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.episodes.errors import KeepworthError
from keepworth.registry import part

if TYPE_CHECKING:
    from keepworth.evaluation.harness import BenchmarkReader


def open_reader(reader: str, model: str = "") -> BenchmarkReader:
    """A reader.

    Args:
        reader: A model's name or folder, or a URL.
        model: The model's name at that URL.

    Raises:
        KeepworthError: A URL without a model, or what is needed is not there.
    """
    if reader.startswith(("http://", "https://")):
        from keepworth.evaluation.reading import ChatReader

        if not model:
            raise KeepworthError("an endpoint serves several models.", "Name one: --set model=NAME")
        chat = part("chat model")(reader, model, max_tokens=256)
        return ChatReader(lambda text: str(chat.complete([{"role": "user", "content": text}])), f"{model}@{reader}")
    from keepworth.episodes.extras import require

    require("llm", "a reader in this process")
    from keepworth.methods.recipes._answerer import ModelReader
    from keepworth.models.files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel

    return ModelReader(InProcessModel.load(path_of(reader, kind=ModelKind.LANGUAGE), name=reader))
