"""Files written without the package `onnx` are what that package writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from keepworth.models import onnx_graph
from keepworth.models.onnx_graph import published_graph
from tests.models.published import write_bert


def test_a_graph_is_sound_and_nothing_in_it_is_unknown(tmp_path: Path) -> None:
    written = published_graph(write_bert(tmp_path / "bert"))
    model = onnx.load_from_string(written)
    onnx.checker.check_model(model)
    assert model.SerializeToString(deterministic=True) == written
    assert [each.name for each in model.graph.input] == ["input_ids", "attention_mask"]
    assert [dimension.dim_param for dimension in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "length"]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.array([-1, 2**31 - 1], dtype=np.int32),
        np.array([-(2**63)], dtype=np.int64),
        np.zeros((0, 3), dtype=np.float32),
        np.arange(3, dtype=">f4"),
    ],
    ids=["transposed", "int32", "int64", "empty", "big-endian"],
)
def test_tensors(values: np.ndarray) -> None:
    expected = onnx.numpy_helper.from_array(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))), "x")
    assert onnx_graph.tensor("x", values) == expected.SerializeToString()


def test_a_node_with_every_kind_of_part() -> None:
    expected = onnx.helper.make_node("K", ["a", "é"], ["c"], name="n" * 200, domain="d", f=0.1, i=300, z=0)
    written = onnx_graph.node_bytes(
        "K", ["a", "é"], ["c"], name="n" * 200, domain="d", attributes={"z": 0, "f": 0.1, "i": 300}
    )
    assert written == expected.SerializeToString()


def test_a_type_that_graphs_do_not_use_is_refused() -> None:
    with pytest.raises(KeyError, match="float64"):
        onnx_graph.tensor("x", np.zeros(1))  # type: ignore[arg-type]
