"""Writes a sentence encoder's published weights as an ONNX graph, which onnxruntime runs without torch.

The graph holds everything from token ids to unit vectors: the BERT encoder, the mean over unmasked positions and the L2
normalisation."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepworth.base.model_errors import CorruptModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# This is just enough of the ONNX file format; no package `onnx` (31 MB) is needed. A message is bytes: its fields, in the order
# of their numbers. Field numbers and types are those of `onnx.proto` (github.com/onnx/onnx, IR version 8); the encoding is that
# of protocol buffers (protobuf.dev/programming-guides/encoding).


FLOAT, INT32, INT64 = 1, 6, 7
"""TensorProto.DataType"""
_TYPES = {"float32": FLOAT, "int32": INT32, "int64": INT64}
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE = 1, 2  # AttributeProto.AttributeType


def tensor(name: str, values: npt.NDArray[np.float32] | npt.NDArray[np.integer]) -> bytes:
    """Encodes a TensorProto of float32, int32 or int64 values of any shape. Raises KeyError for another type."""
    little_endian = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
    return b"".join(
        [
            *(_integer(1, size) for size in values.shape),
            _integer(2, _TYPES[values.dtype.name]),
            _text(8, name),
            _bytes(9, little_endian.tobytes()),
        ]
    )


def node_bytes(
    kind: str, inputs: Iterable[str], outputs: Sequence[str], domain: str, attributes: Mapping[str, float | int]
) -> bytes:
    """Encodes a NodeProto. A node with one output bears the name of this output.

    Args:
        kind: The operator, such as "MatMul".
        inputs: The names of its input tensors, in the operator's order.
        outputs: The names of its output tensors.
        domain: The set of operators that it is from; "" for ONNX's own.
        attributes: The values of its attributes, by their names.
    """
    return b"".join(
        [
            *(_text(1, tensor) for tensor in inputs),
            *(_text(2, output) for output in outputs),
            *(_text(3, output) for output in outputs if len(outputs) == 1),
            _text(4, kind),
            *(_bytes(5, _attribute(key, value)) for key, value in sorted(attributes.items())),
            _text(7, domain),
        ]
    )


def value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    """Encodes a ValueInfoProto: an input or an output of the graph.

    Args:
        name: The name of the tensor.
        kind: The number of its element type in ONNX's TensorProto.
        shape: The size of each dimension; a name where the size is free.
    """
    sizes = (_text(2, length) if isinstance(length, str) else _integer(1, length) for length in shape)
    dimensions = b"".join(_bytes(1, size) for size in sizes)
    return _text(1, name) + _bytes(2, _bytes(1, _integer(1, kind) + _bytes(2, dimensions)))


def _attribute(name: str, value: float | int) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _integer(3, value) + _integer(20, _INT_ATTRIBUTE)
    return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, _FLOAT_ATTRIBUTE)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Encodes an integer that is not negative, seven bits a byte, the lowest first."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


# The graph of a BERT encoder. It is spelled out node by node rather than traced from a library's model, so it depends on the
# weights alone. Each attention block is onnxruntime's fused operator (`com.microsoft` domain, kept stable since version 1.2):
# one matrix product for query, key and value.
#
# Sources: BERT (Devlin et al., arXiv 1810.04805); mean pooling as in Sentence-BERT (Reimers and Gurevych, arXiv 1908.10084).


GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"
# The oldest pair that has LayerNormalization's inputs as used here; any onnxruntime since 1.13 reads it.
_OPSET, _IR_VERSION = 17, 8
_FUSED = "com.microsoft"


def build_graph(sources: Path) -> bytes:
    """Returns the ONNX file of the encoder whose config.json and model.safetensors are in `sources`. Inputs are `input_ids` and
    `attention_mask` (int32, batch x length), the output is `vectors` (float32, batch x hidden, unit rows). Raises CorruptModel
    where they are not those of a BERT encoder with the exact GELU and absolute positions."""
    import numpy as np
    from safetensors.numpy import load_file

    config = json.loads((sources / "config.json").read_text(encoding="utf-8"))
    for setting, wanted in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(setting, "absolute") != wanted:
            raise CorruptModel(
                f"{sources} has {setting} {config.get(setting)!r}; only {wanted!r} encoders can be used."
            )
    try:
        state = {
            name: value.astype(np.float32) for name, value in load_file(str(sources / "model.safetensors")).items()
        }
        return sentence_graph(state, config)
    except Exception as error:  # safetensors raises its own bare type for a damaged file, KeyError for an unknown dtype
        raise CorruptModel(f"{sources} does not hold the weights of a BERT encoder: {error!r}") from error


def sentence_graph(state: Mapping[str, npt.NDArray[np.float32]], config: Mapping[str, Any]) -> bytes:
    """Returns the encoder as one ONNX file. `state` is named as transformers names a BertModel's parameters."""
    import numpy as np

    hidden, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    nodes: list[bytes] = []
    constants: list[bytes] = []

    def constant(name: str, value: npt.NDArray[Any]) -> str:
        constants.append(tensor(name, value))
        return name

    def weight(name: str) -> str:
        return constant(name, state[name])

    def transposed(name: str) -> str:
        return constant(name, state[name].T)

    def node(kind: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(node_bytes(kind, inputs, outputs, domain, attributes))
        return outputs[0]

    def add_and_normalise(x: str, skip: str, dense: str, norm: str) -> str:
        inputs = [x, skip, weight(f"{norm}.weight"), weight(f"{norm}.bias"), weight(f"{dense}.bias")]
        return node("SkipLayerNormalization", inputs, norm, domain=_FUSED, epsilon=float(epsilon))

    embeddings = "embeddings."
    tables = [f"{embeddings}{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    norm = f"{embeddings}LayerNorm"
    segments = node("Mul", ["input_ids", constant("zero", np.array([0], np.int32))], "segment_ids")
    named = [*tables, f"{norm}.weight", f"{norm}.bias"]
    inputs = ["input_ids", segments, *map(weight, named)]
    x = node("EmbedLayerNormalization", inputs, norm, "unused_mask", domain=_FUSED, epsilon=float(epsilon))
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        qkv = constant(f"{name}.qkv.weight", np.concatenate([state[f"{part}.weight"].T for part in parts], axis=1))
        qkv_bias = constant(f"{name}.qkv.bias", np.concatenate([state[f"{part}.bias"] for part in parts]))
        mixed = node("Attention", [x, qkv, qkv_bias, "attention_mask"], f"{name}.mixed", domain=_FUSED, num_heads=heads)
        output = f"{name}.attention.output"
        projected = node("MatMul", [mixed, transposed(f"{output}.dense.weight")], f"{output}.projected")
        x = add_and_normalise(projected, x, f"{output}.dense", f"{output}.LayerNorm")
        wide = node("MatMul", [x, transposed(f"{name}.intermediate.dense.weight")], f"{name}.wide")
        bent = node("BiasGelu", [wide, weight(f"{name}.intermediate.dense.bias")], f"{name}.bent", domain=_FUSED)
        narrow = node("MatMul", [bent, transposed(f"{name}.output.dense.weight")], f"{name}.narrow")
        x = add_and_normalise(narrow, x, f"{name}.output.dense", f"{name}.output.LayerNorm")

    weights = node("Cast", ["attention_mask"], "mask", to=FLOAT)
    column = node("Unsqueeze", [weights, constant("last", np.array([2], np.int64))], "mask_column")
    along = constant("length_axis", np.array([1], np.int64))
    summed = node("ReduceSum", [node("Mul", [x, column], "kept"), along], "summed", keepdims=0)
    count = node("ReduceSum", [weights, along], "count", keepdims=1)
    pooled = node("Div", [summed, count], "pooled")
    node("LpNormalization", [pooled], "vectors", axis=1, p=2)

    shape = ["batch", "length"]
    graph = b"".join(
        [
            *(_bytes(1, node) for node in nodes),
            _text(2, "sentence-encoder"),
            *(_bytes(5, constant) for constant in constants),
            *(_bytes(11, value(name, INT32, shape)) for name in ("input_ids", "attention_mask")),
            _bytes(12, value("vectors", FLOAT, ["batch", hidden])),
        ]
    )
    sets = (_bytes(8, _text(1, domain) + _integer(2, version)) for domain, version in (("", _OPSET), (_FUSED, 1)))
    return b"".join([_integer(1, _IR_VERSION), _text(2, "keepworth"), _bytes(7, graph), *sets])
