"""A pipeline that samples from an engine behind HTTP: published weights arrive, bounds hold, nothing is trained twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth.models.adapter import attach_lora, load_trained
from keepworth.models.http_engine import HttpModel
from keepworth.records import Episode, FinishReason, Sample, SamplingParams
from keepworth.records.model import VersionSpan
from keepworth.training.collect.http_sampler import PUBLISHED
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import Progress
from tests.learning.letters import OBJECTIVE, Letters, Stops, index_of, settings, train_letters
from tests.learning.letters import trained as trained_in
from tests.models.tiny import tiny_model
from tests.serving.engines import connect
from tests.stand_in.server import ModelServer


def trained(
    folder: Path, engines: Sequence[HttpModel], steps: int, letters: Letters | None = None, **how: Any
) -> Learner:
    """Train over HTTP in `folder`, or continue what is there. how: measurements and notes of the training, and its asynchrony."""
    shown = {name: how.pop(name) for name in ("evaluate_every", "progress") if name in how}
    model = tiny_model()
    named = attach_lora(model, rank=4, alpha=8.0)
    mind = Learner(model, named, OBJECTIVE, Optimisation(learning_rate=2e-2), "speaker")
    asynchrony = settings(**{"mode": "overlap", "max_staleness": 1, "pipeline_depth": 2.0, **how})
    return train_letters(folder, steps, asynchrony, letters, 1, mind, engines=engines, **shown)


def groups_of(folder: Path) -> list[int]:
    """The group of every episode's step, once; no group was trained at two steps."""
    groups = {(step, index_of(episode)) for step, episode in trained_in(folder)}
    assert len({index for _, index in groups}) == len(groups), "a group was trained twice"
    return [step for step, _ in groups]


def whole(episode: Episode) -> bool:
    """Every drawn token belongs to exactly one span."""
    (segment,) = episode.segments
    ends = [0, *(span.end for span in segment.spans)]
    return [span.start for span in segment.spans] == ends[:-1] and ends[-1] == len(segment.ids) == len(segment.logprobs)


def test_adapters_are_published_while_the_engine_samples(tmp_path: Path) -> None:
    with ModelServer(tiny_model()) as running, connect(running.url, max_staleness=1) as engine:
        trained(tmp_path / "run", [engine], 4, letters=Letters(lengths=lambda t: 24 if t % 3 == 0 else 4))
        assert engine.version == 4
    found = trained_in(tmp_path / "run")
    assert len(groups_of(tmp_path / "run")) == 16
    assert all(whole(each) for _, each in found)
    lags = [step - 1 - min(span.version for s in each.segments for span in s.spans) for step, each in found]
    assert max(lags) <= 1
    assert max(span.version for _, each in found for s in each.segments for span in s.spans) > 0
    assert all(row["publish/probe_gap"] < 1e-4 for row in RunFolder.open(tmp_path / "run").metrics())


def test_log_probabilities_are_those_of_the_version_that_drew_them(tmp_path: Path) -> None:
    with ModelServer(tiny_model()) as running, connect(running.url, max_staleness=1) as engine:
        trained(tmp_path / "run", [engine], 3)
    checked = 0
    for folder in (tmp_path / "run" / PUBLISHED / "speaker").iterdir():
        version = int(folder.name.split("-")[1])
        model = tiny_model()
        load_trained(model, folder)
        for _, episode in trained_in(tmp_path / "run"):
            (segment,) = episode.segments
            if {span.version for span in segment.spans} == {version}:
                ((scores,),) = model.score([segment.context], [[segment.ids]])
                assert segment.logprobs == pytest.approx(scores, abs=1e-4)
                checked += 1
    assert checked > 10


def test_a_stopped_run_continues_on_a_fresh_engine(tmp_path: Path) -> None:
    with (
        ModelServer(tiny_model()) as running,
        connect(running.url, max_staleness=1, run="a") as engine,
        pytest.raises(KeyboardInterrupt),
    ):
        trained(tmp_path / "run", [engine], 4, Stops(), evaluate_every=2)
    with ModelServer(tiny_model()) as running, connect(running.url, max_staleness=1, run="b") as engine:
        trained(tmp_path / "run", [engine], 4)
        assert engine.version == 4
    assert Counter(groups_of(tmp_path / "run")) == dict.fromkeys(range(1, 5), 4)


def test_lost_engine_ends_the_run_and_keeps_finished_groups(tmp_path: Path) -> None:
    with ModelServer(tiny_model()) as running, connect(running.url, max_staleness=1, run="a") as engine:
        leaves = Stops(at_step=running.close)
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            trained(tmp_path / "run", [engine], 6, leaves, evaluate_every=2, patience=2)
    with ModelServer(tiny_model()) as running, connect(running.url, max_staleness=1, run="b") as engine:
        trained(tmp_path / "run", [engine], 6)
    assert len(groups_of(tmp_path / "run")) == 24


def test_run_continues_on_the_second_engine_without_loss(tmp_path: Path) -> None:
    notes: list[str] = []

    class Noted(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    with (
        ModelServer(tiny_model()) as first,
        ModelServer(tiny_model()) as second,
        connect(first.url, max_staleness=1) as one,
        connect(second.url, max_staleness=1) as other,
    ):
        kills = Stops(turns=2, at_step=second.close)
        trained(tmp_path / "run", [one, other], 5, kills, evaluate_every=2, progress=Noted())
    rows = RunFolder.open(tmp_path / "run").metrics()
    assert (rows[0]["pipeline/engines"], rows[-1]["pipeline/engines"]) == (2, 1)
    (note,) = notes
    assert f"The engine at {second.url} is left" in note
    assert len(groups_of(tmp_path / "run")) == 4 * 5
    assert all(row["pipeline/retried"] == 0 for row in rows)


def test_interrupted_sample_continues_from_drawn_tokens() -> None:
    draft = PartialSample((1, 2), SamplingParams(5), (0, 0, 0, 0))
    draft.append(Sample((7, 8), (-0.1, -0.2), FinishReason.ABORTED, (VersionSpan(3, 0, 2),)))
    assert draft.finish is None
    draft.append(Sample((), (), FinishReason.ABORTED, ()))
    draft.append(Sample((9,), (-0.3,), FinishReason.ABORTED, (VersionSpan(3, 0, 1),)))
    draft.append(Sample((5, 6), (-0.4, -0.5), FinishReason.LENGTH, (VersionSpan(4, 0, 2),)))
    sample = draft.sample()
    assert sample.ids == (7, 8, 9, 5, 6)
    assert sample.spans == (VersionSpan(3, 0, 2), VersionSpan(3, 2, 3), VersionSpan(4, 3, 5))
    assert sample.finish is FinishReason.LENGTH
