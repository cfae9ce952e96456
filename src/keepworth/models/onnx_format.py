"""Just enough of the ONNX file format to write a graph of our own; no package `onnx` (31 MB) is needed.

A message is bytes: its fields, in the order of their numbers. Field numbers and types are those of `onnx.proto`
(github.com/onnx/onnx, IR version 8); the encoding is that of protocol buffers (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FLOAT, INT32, INT64 = 1, 6, 7
"""TensorProto.DataType"""
_TYPES = {"float32": FLOAT, "int32": INT32, "int64": INT64}
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE = 1, 2  # AttributeProto.AttributeType


def tensor(name: str, values: npt.NDArray[np.float32] | npt.NDArray[np.integer]) -> bytes:
    """A TensorProto. values: float32, int32 or int64, of any shape. Raises KeyError for another type."""
    little_endian = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
    return b"".join(
        [
            *(_integer(1, size) for size in values.shape),
            _integer(2, _TYPES[values.dtype.name]),
            _text(8, name),
            _bytes(9, little_endian.tobytes()),
        ]
    )


def node(
    kind: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    *,
    name: str = "",
    domain: str = "",
    attributes: Mapping[str, float | int] | None = None,
) -> bytes:
    """A NodeProto. domain: "" for ONNX's own operators."""
    return b"".join(
        [
            *(_text(1, each) for each in inputs),
            *(_text(2, each) for each in outputs),
            *([_text(3, name)] if name else []),
            _text(4, kind),
            *(_bytes(5, _attribute(key, value)) for key, value in sorted((attributes or {}).items())),
            _text(7, domain),
        ]
    )


def value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    """A ValueInfoProto: an input or output. shape: sizes, and names for those that are free."""
    sizes = (_text(2, each) if isinstance(each, str) else _integer(1, each) for each in shape)
    dimensions = b"".join(_bytes(1, each) for each in sizes)
    return _text(1, name) + _bytes(2, _bytes(1, _integer(1, kind) + _bytes(2, dimensions)))


def model(
    name: str,
    *,
    nodes: Iterable[bytes],
    constants: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[bytes],
    operator_sets: Mapping[str, int],
    ir_version: int,
) -> bytes:
    """A ModelProto with one graph. operator_sets: domain -> version."""
    graph = b"".join(
        [
            *(_bytes(1, each) for each in nodes),
            _text(2, name),
            *(_bytes(5, each) for each in constants),
            *(_bytes(11, each) for each in inputs),
            *(_bytes(12, each) for each in outputs),
        ]
    )
    sets = (_text(1, domain) + _integer(2, version) for domain, version in operator_sets.items())
    return b"".join(
        [_integer(1, ir_version), _text(2, "keepworth"), _bytes(7, graph), *(_bytes(8, each) for each in sets)]
    )


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
    """Seven bits a byte, the lowest first. value: not negative."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
