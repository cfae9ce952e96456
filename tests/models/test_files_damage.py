"""A fetch that is stopped, two at once, a damaged cache, a full disk: nothing half done is ever taken for a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from keepworth.models import files
from keepworth.models.errors import CorruptModel, UnreachableModel
from keepworth.models.files import KnownModel, State
from tests.models.catalogues import left
from tests.models.published import bert_sources, publish, write_bert

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("moment", ["downloading", "verifying", "converting"])
def test_an_interrupted_fetch_leaves_nothing(
    tiny: KnownModel, without_pip: list[str], moment: str, tmp_path: Path
) -> None:
    def interrupt(line: str) -> None:
        if line.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.fetch("tiny", progress=interrupt)
    assert left(tmp_path / "cache") == []


def test_a_forced_fetch_that_fails_keeps_the_old_files(
    tiny: KnownModel, without_pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.fetch("tiny")

    def unreachable(*_: object) -> Path:
        raise UnreachableModel("no network")

    monkeypatch.setattr(files, "download", unreachable)
    with pytest.raises(UnreachableModel):
        files.fetch("tiny", force=True)
    assert files.status_of("tiny").state is State.READY


CHILD = textwrap.dedent("""
    import os, shutil, signal, sys, time
    from pathlib import Path
    import pytest
    from keepworth.models import files
    from tests.models import catalogues
    from tests.models.published import publish, bert_sources
    index, cache, role = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    model = publish(index, bert_sources(index / "sources"))
    catalogues.catalogue(model, pytest.MonkeyPatch())
    os.environ["KEEPWORTH_CACHE"] = cache
    def copy(model, folder):
        time.sleep(0.3)
        return Path(shutil.copy(next(index.glob("*.whl")), folder))
    files.download = copy
    def progress(line):
        print(line, flush=True)
        if role == "killed" and line == "converting":
            os.kill(os.getpid(), signal.SIGKILL)
    files.fetch("tiny", progress=progress)
""")


def _child(index: Path, cache: Path, role: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(index), str(cache), role]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True)


def test_after_a_killed_fetch_the_model_is_absent_and_the_next_fetch_cleans_up(
    tiny: KnownModel, without_pip: list[str], tmp_path: Path
) -> None:
    own = tmp_path / "index"
    write_bert(own / "sources")
    killed = _child(own, tmp_path / "cache", "killed")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert len(left(tmp_path / "cache")) == 3  # the half-built folder is there ...
    assert files.status_of("tiny").state is State.ABSENT  # ... and is not the model
    folder = files.fetch("tiny")
    assert [path.name for path in folder.parent.iterdir() if path.name != ".tiny.lock"] == ["tiny"]


def test_two_processes_at_once_download_once(tiny: KnownModel, tmp_path: Path) -> None:
    own = tmp_path / "index"
    write_bert(own / "sources")
    publish(own, bert_sources(own / "sources"))
    children = [_child(own, tmp_path / "cache", "plain") for _ in range(2)]
    said = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert "".join(said).count("downloading") == 1
    assert files.status_of("tiny").state is State.READY


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json has 2 bytes"),
        (lambda folder: (folder / "keepworth.json").write_text("{"), "keepworth.json cannot be read"),
    ],
)
def test_a_damaged_cache_is_an_error_with_its_fix(
    tiny: KnownModel, without_pip: list[str], damage: Any, said: str
) -> None:
    folder = files.fetch("tiny")
    damage(folder)
    assert files.status_of("tiny").detail.startswith(said)
    with pytest.raises(CorruptModel, match=r"keepworth models fetch tiny --force") as damaged:
        files.path_of("tiny")
    assert said in str(damaged.value)
    files.fetch("tiny", force=True)
    assert files.status_of("tiny").state is State.READY


def test_a_folder_that_an_older_layout_wrote_is_rebuilt(
    tiny: KnownModel, without_pip: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.fetch("tiny")
    monkeypatch.setattr(files, "_LAYOUT", files._LAYOUT + 1)
    assert files.status_of("tiny").state is State.ABSENT
    files.fetch("tiny")
    assert files.status_of("tiny").state is State.READY
    assert len(without_pip) == 2
