"""Chat templates that loop, multiply or recurse without a bound are refused before anything is trained."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import keepworth
from keepworth.models import template_bounds
from keepworth.models.chat_format import TemplateMismatch
from keepworth.training.watch.progress import Progress
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.recipes import tiny_runs

ROWS = [{"prompt": f"Say {letter}.", "answer": letter} for letter in "abcdefghijkl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(("template", "says"), [
    ("{{ 'x' * 2000000000 }}", r"has no bound: it computes '\*'"),
    ("{% set n = 2000000000 %}{{ 'x' * n }}", r"has no bound: it computes '\*'"),
    ("{{ 9 ** (9 ** 8) }}", r"has no bound: it computes '\*\*'"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes longer than 0.3 s"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "has no bound: maximum recursion depth"),
    ("{{ 1 / 0 }}", "does not take these messages .*division by zero"),
])  # fmt: skip
def test_a_template_without_a_bound_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, says: str
) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "model"))
    (model / "chat_template.jinja").write_text(template)
    monkeypatch.setattr(template_bounds, "SECONDS", 0.3)
    begun = time.process_time()
    with pytest.raises(TemplateMismatch, match=says):
        keepworth.train(ROWS, model=str(model), runs=tmp_path, progress=Progress(), **tiny_runs.TINY)
    assert time.process_time() - begun < 20
