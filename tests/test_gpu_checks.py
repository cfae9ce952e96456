"""`python -m benchmarks.gpu` on the processor, with a model of the tests: every check passes, and can fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from benchmarks import gpu
from keepworth.models.inprocess import InProcessModel


def test_every_check_passes_on_the_processor() -> None:
    written: list[str] = []
    result = gpu.run(gpu.QUICK, 10.0, lambda result: written.append(json.dumps(result)))
    assert {name: made.get("error") for name, made in result["checks"].items() if "error" in made} == {}
    assert result["passes"]
    assert set(result["checks"]) == set(gpu.CHECKS) - {"training step beside TRL"}
    assert result["left_out"] == {"training step beside TRL": "--quick has no model's files"}
    assert len(written) == len(result["checks"]), "each is kept as soon as it is measured"
    checks = result["checks"]
    assert checks["as on the processor"]["relative_difference"] == 0.0, "it is the processor"
    assert checks["as on the processor"]["identical_answers"] == checks["as on the processor"]["answers"]
    assert checks["attention"] == checks["attention"] | {"sampling": ["written out"], "scoring": ["written out"]}
    assert checks["sampled against scored"]["fp32"]["n"] == 2 * 4 * 12


def test_scores_that_are_off_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    score = InProcessModel.score

    def off(self: InProcessModel, *given: Any, **more: Any) -> Any:
        return [[tuple(each + 0.01 for each in row) for row in own] for own in score(self, *given, **more)]

    monkeypatch.setattr(InProcessModel, "score", off)
    assert not gpu.sampled_against_scored(gpu.QUICK)["passes"]
    found = gpu.tree_against_sequences(gpu.QUICK)
    assert not found["fp32"]["passes"]
    assert found["fp32"]["mean"] == pytest.approx(0.01, rel=0.01)


def test_gradients_that_are_off_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    gradients = gpu.gradients

    def off(*given: Any) -> dict[str, torch.Tensor]:
        made.append(1)
        return {name: value * (1.0 if len(made) == 1 else 1.01) for name, value in gradients(*given).items()}

    monkeypatch.setattr(gpu, "gradients", off)
    found = gpu.as_on_the_processor(gpu.QUICK)
    assert not found["passes"]
    assert found["relative_difference"] == pytest.approx(0.01)


def test_a_check_that_breaks_says_why_and_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(setting: gpu.Setting) -> dict[str, Any]:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(gpu, "CHECKS", {"broken": broken, "attention": gpu.attention_used})
    result = gpu.run(gpu.QUICK, 10.0, lambda result: None)
    assert "no kernel image" in result["checks"]["broken"]["error"]
    assert "sampling" in result["checks"]["attention"]
    assert not result["passes"]
