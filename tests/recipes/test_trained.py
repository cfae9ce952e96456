"""What was trained is used: a run's manager writes what a memory keeps, and what a run trained answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from keepworth import Client, Memory
from keepworth.base.errors import KeepworthError, UnknownName
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.methods.recipes import memory_r1, strings
from keepworth.methods.recipes import trained as trained
from keepworth.methods.recipes._memory_r1.memory_manager import Choose, ManagerState
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.memory_server import MemoryServer
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_trained
from keepworth.training.watch.progress import Progress
from tests.recipes.tiny_runs import STRINGS, run_of

STATES = [ManagerState((), (), "Ana moved to Oslo."), ManagerState(("m1",), ("Bo has a dog.",), "Bo has a cat.")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def managed(checkpoint: Path, place: Path) -> RunFolder:
    """A run that trained a manager, whatever that one says."""
    config = memory_r1.Config(
        role="manager", model=str(checkpoint), precision="fp32", threads=1, steps=1, group_size=2, tasks_per_step=1,
        questions=2, warm_start=8, maintained=False, token_budget=2048,
    )  # fmt: skip
    with RunFolder.create(place / "runs" / "managed", {"recipe": "memory_r1", **config.model_dump(mode="json")}) as run:
        with pytest.raises(KeepworthError, match="has not finished training a role"):
            trained.trained(folder=run.path)
        memory_r1.METHOD.make.train(config, run, Progress())
    return run


@pytest.fixture(scope="module")
def answering(checkpoint: Path, place: Path) -> RunFolder:
    return run_of(strings, checkpoint, place / "runs" / "strings", **STRINGS)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ManagerState]]:
    """Makes the manager of any run say these lines, one after the other; what it was shown is in the list."""

    def saying(*lines: str) -> list[ManagerState]:
        rest, shown = iter(lines), list[ManagerState]()

        def made(model: InProcessModel) -> Choose:
            def choose(states: Sequence[ManagerState]) -> list[str]:
                shown.extend(states)
                return [next(rest) for _ in states]

            return choose

        monkeypatch.setattr("keepworth.methods.recipes._memory_r1.memory_manager.chosen_by", made)
        trained._choose_by.cache_clear()
        return shown

    return saying


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    trained._choose_by.cache_clear()


def texts(memory: Memory) -> list[str]:
    return [item.text for item in memory.get_all()]


def test_trained_manager_works_in_a_memory(managed: RunFolder, says: Any) -> None:
    shown = says("ADD", "NOOP", "ADD", "UPDATE 0")
    memory = Memory(encoder=HashedWords(64), writer=str(managed.path))
    for said in ("Hello! I live in Bergen.", "I like tea. Thank you!", "I have a dog.", "I moved to Oslo."):
        memory.add([{"role": "user", "content": said}, {"role": "assistant", "content": "Nice!"}], infer=True)
    # It is asked about what people state, not about talk; and shown what is there.
    assert [state.fact for state in shown] == ["I live in Bergen.", "I like tea.", "I have a dog.", "I moved to Oslo."]
    assert len(texts(memory)) == 2
    assert "I like tea." not in texts(memory)
    assert "I moved to Oslo." in texts(memory)
    (item,) = [each for each in memory.get_all() if each.text == "I moved to Oslo."]
    assert item.provenance.speaker == "user"


def test_trained_manager_works_in_a_server(managed: RunFolder, says: Any, tmp_path: Path) -> None:
    says("ADD", "NOOP")
    with (
        MemoryServer(tmp_path / "a.mem", encoder="hashing", writer=str(managed.path)) as server,
        Client(server.url, server.token) as client,
    ):
        client.add([{"role": "user", "content": "I live in Bergen."}], infer=True, user_id="ana")
        client.add([{"role": "user", "content": "I like tea."}], infer=True, user_id="ana")
        assert [item.text for item in client.get_all(user_id="ana")] == ["I live in Bergen."]


def test_the_model_of_a_run_chooses_and_is_loaded_once(managed: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = trained.trained(folder=managed.path).choose(STATES)
    assert lines
    loads: list[Path] = []
    load = InProcessModel.load

    def counted(folder: Path, **options: Any) -> InProcessModel:
        loads.append(folder)
        return load(folder, **options)

    monkeypatch.setattr(InProcessModel, "load", counted)
    trained._choose_by.cache_clear()
    first, second = (Memory(encoder=None, writer=str(managed.path)) for _ in range(2))
    assert len(loads) == 1
    assert first is not second


def test_run_without_a_manager_is_refused_as_a_writer(answering: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeepworthError, match="trained policy, which does not say what a memory keeps") as caught:
        Memory(encoder=None, writer=str(answering.path))
    assert f"keepworth serve {answering.path}" in caught.value.fix
    with pytest.raises(KeepworthError, match=r"holds no run|not.*run|no run"):
        Memory(encoder=None, writer=str(tmp_path))
    with pytest.raises(UnknownName, match="no writer 'ruels'") as unknown:
        Memory(encoder=None, writer="ruels")
    assert "Did you mean 'rules'" in unknown.value.fix
    assert "folder of a run" in unknown.value.fix


def test_merged_weights_equal_the_adapter(answering: RunFolder) -> None:
    found = find_trained(answering)
    prompts, branches = [tuple(range(20, 44))], [[(30, 31, 32)]]
    (beside,), (inside,) = found.loaded().score(prompts, branches), found.merged().score(prompts, branches)
    assert inside[0] == pytest.approx(beside[0], abs=1e-4)
