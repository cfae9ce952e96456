"""The engine that a recipe samples at, where its settings name one: found, and found fit, before anything slow is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from keepworth.episodes.model import SamplingParams
from keepworth.learning.run.run_folder import RunFolder
from keepworth.learning.watch.progress import Progress
from keepworth.recipes.settings import CONTROL_KEY, KEY, TrainingSettings

if TYPE_CHECKING:
    from keepworth.models.http_engine import HttpModel


@contextmanager
def engine_of(
    settings: TrainingSettings, train: Literal["lora", "full"] | None, run: RunFolder, progress: Progress
) -> Iterator[HttpModel | None]:
    """None where this process samples. At the end the adapters that were published are taken out of the engine again.

    Raises EngineUnreachable, MissingCapability for what publishing `train` needs and the engine lacks, UnknownName or EngineError
    where it serves another model, and what else `HttpModel.connect` raises."""
    if not settings.engine:
        yield None
        return
    from keepworth.models.files import path_of
    from keepworth.models.http_engine import HttpModel
    from keepworth.models.known import ModelKind

    progress.phase(f"asking the engine at {settings.engine} what it can do")
    with HttpModel.connect(
        settings.engine,
        path_of(settings.model, kind=ModelKind.LANGUAGE),
        model=settings.engine_model,
        require=("weights", "pause") if train == "full" else ("adapters",),
        max_staleness=settings.max_staleness,
        api_key=os.environ.get(KEY) or None,
        control_key=os.environ.get(CONTROL_KEY) or None,
        concurrency=max(8, settings.slots),
    ) as engine:
        if settings.temperature != 1:  # raises where the engine's log-probabilities are of another temperature
            engine.sample([engine.encode("The")], SamplingParams(1, temperature=settings.temperature))
        run.record_environment(engine=f"{engine.name} at {engine.url} ({engine.software})")
        try:
            yield engine
        finally:
            engine.unload()
