"""The example of docs/asynchrony.md, run on a model of a few thousand weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from keepworth.learning.run_folder import RunFolder
from tests.end_to_end.tiny_folder import write_tiny_checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "asynchrony.md"


def test_the_example_of_the_page_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[0]
    model = write_tiny_checkpoint(tmp_path / "model")
    assert '"smollm2-135m-instruct"' in code
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(compile(code.replace('"smollm2-135m-instruct"', repr(str(model))), str(PAGE), "exec"), namespace)
    rows = RunFolder.open(tmp_path / "runs" / "vowels").metrics()
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["episodes"] == 16 for row in rows)
