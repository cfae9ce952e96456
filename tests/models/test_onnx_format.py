"""Files written without the package `onnx` are what that package writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from keepworth.models import onnx_graph
from keepworth.models.onnx_graph import build_graph
from tests.models.published import write_bert


def test_a_graph_is_sound_and_nothing_in_it_is_unknown(tmp_path: Path) -> None:
    written = build_graph(write_bert(tmp_path / "bert"))
    model = onnx.load_from_string(written)
    onnx.checker.check_model(model)
    assert model.SerializeToString(deterministic=True) == written
    assert [each.name for each in model.graph.input] == ["input_ids", "attention_mask"]
    assert [dimension.dim_param for dimension in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "length"]


def test_a_type_that_graphs_do_not_use_is_refused() -> None:
    with pytest.raises(KeyError, match="float64"):
        onnx_graph.tensor("x", np.zeros(1))  # type: ignore[arg-type]
