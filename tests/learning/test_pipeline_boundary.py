"""Between updates a turn-taking pipeline stands still: the loop may run for other reasons, and draws nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from keepworth.learning.collect.pipeline import Pipeline
from keepworth.learning.learner import Learner, Optimisation
from keepworth.learning.run_folder import RunFolder
from keepworth.models.adapter import unfreeze
from tests.learning.letters import OBJECTIVE, Letters, settings
from tests.models.tiny import tiny_model


def test_nothing_is_drawn_between_a_publication_and_the_next_collection(tmp_path: Path) -> None:
    model = tiny_model(hidden=16)
    learner = Learner(model, unfreeze(model), OBJECTIVE, Optimisation(learning_rate=1e-2), "speaker")
    with RunFolder.create(tmp_path / "run", {}) as run:
        pipeline = Pipeline(run, learner, Letters(lengths=lambda index: 9), settings(mode="serial"))
        pipeline.begin(None, 0, 0)
        learner.update(pipeline.collect(0).groups)
        pipeline.publish()
        steps = pipeline.batch.steps
        assert steps > 0
        for _ in range(20):
            pipeline._loop.do(asyncio.sleep(0.001))
        assert pipeline.batch.steps == steps
        assert not pipeline.batch.live, "what is unfinished is read again under the new weights"
        learner.update(pipeline.collect(1).groups)
        assert pipeline.batch.steps > steps
        pipeline.close()
