"""Recipes that sample ahead of the learner: with bounded lag here, and at a real server of an engine behind HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.base.model_errors import EngineError, EngineRefused, EngineUnreachable, MissingCapability
from keepworth.methods.recipes import arithmetic, memory_r1, overwrite_reading, strings
from keepworth.models.inprocess import InProcessModel
from keepworth.training.collect.curriculum import CANDIDATES, SPAN, batch, draw_seed, draw_task
from keepworth.training.configuration import as_toml, resolve
from keepworth.training.run_folder import RunFolder
from keepworth.training.settings import KEY
from tests.recipes.tiny_runs import READING, STRINGS, TINY, run_of, trained
from tests.stand_in.server import ModelServer

AHEAD = {"steps": 4, "patience": 0, "evaluate_every": 4, "sampling": "overlap", "learning_rate": 0.01}
OWN: dict[ModuleType, dict[str, Any]] = {
    strings: STRINGS,
    memory_r1: {"memories": 1, "words": 10, "max_tokens": 3},
    overwrite_reading: READING,
    arithmetic: {"answer": "calculator", "turns": 2, "max_tokens": 3},
}


@pytest.fixture
def server(checkpoint: Path) -> Iterator[ModelServer]:
    with ModelServer(InProcessModel.load(checkpoint, precision="fp32")) as running:
        yield running


def config_of(recipe: ModuleType, checkpoint: Path, url: str | list[str], **settings: Any) -> Any:
    return recipe.Config(model=str(checkpoint), engine=url, **{**TINY, **AHEAD, **OWN[recipe], **settings})


def groups_of(run: RunFolder) -> list[tuple[int, int]]:
    """(step, index) of every group."""
    return sorted({(s.step, int(s.episode.id.split("/")[0])) for s in run.episodes(arm="train")})


def wait_until_taken_back(*servers: ModelServer) -> None:
    """Returns once no adapter is left: the requests that a run abandoned at its end let go of theirs a little later."""
    while any(server.model.adapters for server in servers):
        time.sleep(0.05)


@pytest.mark.parametrize("recipe", list(OWN), ids=lambda recipe: recipe.__name__.split(".")[-1])
def test_recipes_sample_at_an_engine(checkpoint: Path, server: ModelServer, tmp_path: Path, recipe: ModuleType) -> None:
    run = trained(recipe, config_of(recipe, checkpoint, server.url), tmp_path / "run")
    assert run.result()
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
    groups = groups_of(run)
    assert len(groups) == len({index for _, index in groups}) == 8
    spans = [span.version for s in run.episodes(arm="train") for e in s.episode.segments for span in e.spans]
    assert len(set(spans)) > 1, "published weights were sampled from"
    assert all(row["publish/probe_gap"] < 1e-3 for row in run.metrics())
    assert server.url in run.environment["engine"]
    wait_until_taken_back(server)


def test_engines_that_serve_other_models_are_named(checkpoint: Path, server: ModelServer, tmp_path: Path) -> None:
    model = InProcessModel.load(checkpoint, precision="fp32")
    model.name = "another"
    with ModelServer(model) as other:
        config = config_of(strings, checkpoint, [server.url, other.url])
        with pytest.raises(EngineError, match=f"{server.url} serves .* and {other.url} serves 'another'"):
            trained(strings, config, tmp_path / "run")


def test_several_engines_are_a_list_wherever_settings_are_written(tmp_path: Path) -> None:
    urls = ["http://a:8000", "http://b:8000"]
    given = ["sampling=overlap", 'engine=["http://a:8000", "http://b:8000"]']
    config = resolve(strings.Config, assignments=given)
    assert config.engine_urls == tuple(config.engine) == tuple(urls)  # type: ignore[attr-defined]
    (tmp_path / "config.toml").write_text(as_toml(config))
    assert resolve(strings.Config, file=tmp_path / "config.toml") == config
    single = resolve(strings.Config, assignments=["sampling=overlap", "engine=http://a:8000"])
    assert single.engine == "http://a:8000"  # type: ignore[attr-defined]
    assert single.engine_urls == ("http://a:8000",)  # type: ignore[attr-defined]
    assert resolve(strings.Config).engine_urls == ()  # type: ignore[attr-defined]


def test_key_is_not_written_to_disk(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(InProcessModel.load(checkpoint, precision="fp32"), api_key="sesame-1905") as locked:
        config = config_of(overwrite_reading, checkpoint, locked.url, steps=1, evaluate_every=1)
        monkeypatch.delenv(KEY, raising=False)
        with pytest.raises(EngineRefused, match="401"):
            trained(overwrite_reading, config, tmp_path / "without")
        monkeypatch.setenv(KEY, "sesame-1905")
        run = trained(overwrite_reading, config, tmp_path / "run")
    assert run.result()
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"sesame-1905" not in file.read_bytes()
    assert "sesame" not in as_toml(config)


@pytest.mark.parametrize("recipe", [strings, memory_r1], ids=["interactive", "memory_r1"])
def test_engine_problems_are_reported_before_loading_the_model(
    checkpoint: Path, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: ModuleType
) -> None:
    url = server.url
    with ModelServer(InProcessModel.load(checkpoint, precision="fp32"), control=False) as plain:
        monkeypatch.setattr(InProcessModel, "load", lambda *_, **__: pytest.fail("the model was loaded"))
        with pytest.raises(MissingCapability, match="adapters"):
            trained(recipe, config_of(recipe, checkpoint, plain.url), tmp_path / "cannot")
        with pytest.raises(KeepworthError, match="train = full trains all weights"):
            trained(recipe, config_of(recipe, checkpoint, plain.url, train="full"), tmp_path / "full")
        with pytest.raises(UnknownName, match="another-model"):
            trained(recipe, config_of(recipe, checkpoint, plain.url, engine_model="another-model"), tmp_path / "name")
    server.close()
    with pytest.raises(EngineUnreachable, match=url.replace("http://", "")):
        trained(recipe, config_of(recipe, checkpoint, url), tmp_path / "gone")


Settings = dict[str, object]
LONG = {"steps": 3, "evaluate_every": 3}
ANSWERING = {"memories": 1, "words": 10, "max_tokens": 3, "balance": True}
MODES = [pytest.param("turns", marks=pytest.mark.slow), "overlap"]
"""Every recipe is sampled in step with the learner in tests/methods/test_recipes.py."""


@pytest.mark.parametrize(("recipe", "own"), [
    (strings, STRINGS),
    pytest.param(overwrite_reading, READING, marks=pytest.mark.slow),
    pytest.param(memory_r1, ANSWERING, marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("sampling", MODES)
def test_samples_ahead(checkpoint: Path, tmp_path: Path, recipe: ModuleType, own: Settings, sampling: str) -> None:
    run = run_of(recipe, checkpoint, tmp_path / "run", sampling=sampling, slots=8, patience=0, **LONG, **own)
    assert run.result()
    assert [row["episodes"] for row in run.metrics()] == [4.0] * 3
    trained = list(run.episodes(arm="train"))
    assert len({stored.episode.id for stored in trained}) == 12
    spans = [(stored.step, span) for stored in trained for call in stored.episode.segments for span in call.spans]
    first = min(span.version for step, span in spans if step == 1)  # of the training: imitation makes versions, too
    assert max(step - 1 - (span.version - first) for step, span in spans) <= 1


@pytest.mark.slow
def test_values_of_tasks_are_measured_with_the_rollouts_of_the_training(checkpoint: Path, tmp_path: Path) -> None:
    run = run_of(memory_r1, checkpoint, tmp_path / "run", objective="a_star_po", **LONG, **ANSWERING)
    assert [row["episodes"] for row in run.metrics()] == [4.0] * 3
    trained = {stored.episode.task for stored in run.episodes(arm="train")}
    last = run.latest_checkpoint()
    assert last is not None
    assert set(torch.load(last.path / "learner.pt", weights_only=True)["learner"]["soft_values"]) == trained


def test_a_positions_own_task_is_the_one_it_always_had_and_others_are_others() -> None:
    items = list(range(20))
    passed = [item for step in range(5) for item in batch(items[:10], 4, step, 3)]
    assert sorted(passed[:10]) == sorted(passed[10:]) == items[:10]

    def kind_of(item: int) -> str:
        return "rare" if item < 2 else "common"

    own = [draw_task(items, None, 3, position) for position in range(32, 40)]
    assert own == batch(items, 8, 4, 3)
    others = [draw_task(items, None, 3, 4 * SPAN + position) for position in range(32, 40)]
    assert others != own
    assert others == [draw_task(items, None, 3, 4 * SPAN + position) for position in range(32, 40)]
    even = [draw_task(items, kind_of, 3, position) for position in range(32, 40)]
    assert sum(item < 2 for item in even) == 4
    assert draw_seed(3, 4, 32) == 3 * 1_000_003 + 4
    retried = [8 * step + CANDIDATES * retry * SPAN for step in range(50) for retry in range(9)]
    assert len({draw_seed(3, group % SPAN // 8, group) for group in retried}) == 450
