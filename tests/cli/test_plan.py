"""`keepworth plan` with what real runs cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepworth.cli.main import main
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.pages import lines_that_run_in

TINY = {
    "precision": "fp32",
    "threads": 1,
    "steps": 8,  # fewer updates say too little about costs
    "tasks_per_step": 2,
    "group_size": 2,
    "warm_start": 1,
    "warm_start_batch": 2,
    "tasks": 40,
    "held_out": 4,
    "max_tokens": 4,
}


@pytest.mark.slow
def test_the_lines_of_docs_asynchrony_md_plan_from_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = write_tiny_checkpoint(tmp_path / "model")
    small = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    planned = 0
    for _, verb, *words in lines_that_run_in("asynchrony.md", "tests/cli/test_plan.py"):
        if verb == "train":
            assert main([verb, *words, "--model", str(checkpoint), *small]) == 0, capsys.readouterr()
            continue
        capsys.readouterr()
        assert main([verb, *words, "--json"]) == 0, capsys.readouterr()
        told = json.loads(capsys.readouterr().out)
        bounds = [int(each) for each in words[words.index("--staleness") + 1].split(",")]
        assert sorted({each["staleness"]["max_staleness"] for each in told["candidates"]}) == bounds
        assert all(each["forecast"]["updates_per_hour"] > 0 for each in told["candidates"])
        assert told["run"]["measured"] > 0
        planned += 1
    assert planned == 2
