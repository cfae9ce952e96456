"""Threads and type of number that a model computes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.models import threads
from keepworth.models.threads import faster_type, settle_threads, usual_threads
from tests.models.tiny import tiny_model


def test_all_cores_are_usual_unless_the_user_asks_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert usual_threads() == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert usual_threads() == 3


@pytest.mark.parametrize(("limit", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1)])
def test_a_container_s_quota_bounds_the_cores(monkeypatch: Any, tmp_path: Path, limit: str, cores: int) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(f"{limit}\n")
    monkeypatch.setattr(threads, "CPU_QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert threads.available_cores() == cores


def test_torch_is_set() -> None:
    before = torch.get_num_threads()
    try:
        assert settle_threads(tiny_model(), 1) == torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("seconds", "chosen"), [(0.4, "bf16"), (4.0, "fp32")])
def test_the_type_of_number_is_the_one_that_computes_faster(monkeypatch: Any, seconds: float, chosen: str) -> None:
    of = {torch.float32: 1.0, torch.bfloat16: seconds}
    monkeypatch.setattr(threads, "product_seconds", of.__getitem__)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert faster_type() == chosen
