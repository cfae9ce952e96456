"""Computes one token for each of many texts with a network of Llama's shape, without the network's own modules.

A step over few rows is short: the Python overhead of thirty layers of modules takes longer than their products. Here a layer is
some thirty operations. Weights with the same input are one product (queries, keys and values; gate and up), and so are their
adapters. All weights have the layout in which the processor multiplies few rows with them.

The arithmetic is the network's own, including rounding, except for attention (`keepworth.models.attention`) and the order of
sums. Whether that holds for a network is measured when it is loaded (`keepworth.models.checkpoint.require_tree`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.base.needs import needs_llm

import torch
from torch.nn.functional import embedding, linear, rms_norm, silu

from keepworth.models.attention import behind_prompts, decoder_of, window_of
from keepworth.models.fused_adapter import plain_adapter

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
_NORMS = frozenset({"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm"})
_ROWS = 16
"""The number of rows that the layout of weights is optimised for. It works for any number."""


_State = list[tuple[float, ...]]


class PackedWeights:
    """Weights in the layout in which oneDNN multiplies few rows with them. Otherwise oneDNN converts a matrix at every product,
    which for sixteen rows takes about as long as the product. The copies are kept from call to call, and made again when a weight
    has changed."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, ...], tuple[Sequence[torch.Tensor], _State, torch.Tensor, bool]] = {}
        self._used: set[tuple[int, ...]] = set()

    def clear(self) -> None:
        """Frees the memory. Copies that are needed again are made again."""
        self._copies.clear()

    def of(self, weights: Sequence[torch.Tensor]) -> tuple[torch.Tensor, bool]:
        """Returns one weight, or several with the same input concatenated, and whether it is packed. It is not packed where this
        build or processor has no such product."""
        name, state = tuple(map(id, weights)), [*_state(weights), *map(_sampled, weights)]
        self._used.add(name)
        copy = self._copies.get(name)
        if copy is None or copy[1] != state:
            whole = weights[0] if len(weights) == 1 else torch.cat(list(weights))
            copied = _packed(whole)
            copy = self._copies[name] = weights, state, whole if copied is None else copied, copied is not None
        return copy[2], copy[3]

    def forget_unused(self) -> None:
        """Frees the copies of weights that were not used since the last call."""
        self._copies = {name: copy for name, copy in self._copies.items() if name in self._used}
        self._used.clear()


def _state(tensors: Sequence[torch.Tensor]) -> _State:
    """Returns values that differ after each change that PyTorch counts."""
    return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


_SAMPLED = 61
"""How many numbers of a tensor are compared, spread over it."""


def _sampled(tensor: torch.Tensor) -> tuple[float, ...]:
    """Returns values that differ after nearly every change that PyTorch does not count. Such changes are those of fused
    optimisers, and writes to `.data`, as where an adapter is merged into its base."""
    flat = tensor.detach().reshape(-1)
    return tuple(flat[:: len(flat) // _SAMPLED | 1].tolist())


def _packed(weight: torch.Tensor) -> torch.Tensor | None:
    """Returns the packed weight; None where packing is not available, or gives another result."""
    try:
        copied: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        tried = torch.linspace(-1, 1, 2 * weight.shape[1]).view(2, -1).to(weight.dtype)
        computed, wanted = _multiplied(tried, copied, None), linear(tried, weight)
    except (AttributeError, RuntimeError):
        return None
    return copied if torch.allclose(computed, wanted, rtol=0.02, atol=1e-3 * float(wanted.abs().max())) else None


def _multiplied(rows: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


@dataclass(frozen=True, slots=True)
class Product:
    """y = x W' + b + scale (x A') B', of one linear layer or of several over the same x, concatenated. weight is packed, or [out,
    in]; down is [in, r] or None; up is [r, out]."""

    weight: torch.Tensor
    packed: bool
    bias: torch.Tensor | None
    down: torch.Tensor | None
    up: torch.Tensor | None
    scale: float

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        multiply = _multiplied if self.packed else linear
        product = multiply(rows, self.weight, self.bias)
        if self.down is None or self.up is None:
            return product
        return product.addmm_(rows @ self.down, self.up, alpha=self.scale)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: torch.Tensor
    epsilon: float | None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], None, self.epsilon).mul_(self.weight)


@dataclass(frozen=True, slots=True)
class _Layer:
    before: _Norm
    after: _Norm
    heads: Product
    out: Product
    gates: Product
    down: Product
    query_norm: _Norm | None
    key_norm: _Norm | None


class DecodingStep:
    """A step of one call. It holds the weights, and the adapter, as they are when it is made."""

    def __init__(self, causal: Any, packed: PackedWeights) -> None:
        """Prepares the weights of `causal`, the network without PEFT's wrapper. Raises ThroughModules where it has another
        shape."""
        self._decoder = decoder = decoder_of(causal)
        if type(getattr(decoder, "embed_tokens", None)) is not torch.nn.Embedding:
            raise ThroughModules
        self._read: list[torch.Tensor] = [decoder.embed_tokens.weight]
        config = causal.config
        if config.model_type not in _FAMILIES or window_of(config) is not None:
            raise ThroughModules
        if any(module._forward_hooks or module._forward_pre_hooks for module in causal.modules()):
            raise ThroughModules
        linear_layers = [module for module in causal.modules() if isinstance(module, torch.nn.Linear)]
        if any(layer.weight.device.type != "cpu" for layer in linear_layers):
            raise ThroughModules
        self._packed = packed
        first = decoder.layers[0].self_attn
        self._scale, self._size = float(first.scaling), int(first.head_dim)
        self._queries, self._keys = int(config.num_attention_heads), int(config.num_key_value_heads)
        self._layers = [self._layer(layer) for layer in decoder.layers]
        self._norm = self._norm_of(decoder.norm)
        self._head = self._product([causal.get_output_embeddings()])
        packed.forget_unused()
        self._state = _state(self._read)

    def current(self) -> bool:
        """Whether the weights have not changed."""
        return _state(self._read) == self._state

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        if type(mlp.act_fn).__name__ not in ("SiLU", "SiLUActivation"):
            raise ThroughModules
        query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        return _Layer(
            before=self._norm_of(layer.input_layernorm),
            after=self._norm_of(layer.post_attention_layernorm),
            heads=self._product([attention.q_proj, attention.k_proj, attention.v_proj]),
            out=self._product([attention.o_proj]),
            gates=self._product([mlp.gate_proj, mlp.up_proj]),
            down=self._product([mlp.down_proj]),
            query_norm=None if query_norm is None else self._norm_of(query_norm),
            key_norm=None if key_norm is None else self._norm_of(key_norm),
        )

    def _norm_of(self, norm: Any) -> _Norm:
        weight: torch.Tensor = norm.weight
        self._read.append(weight)
        if type(norm) is torch.nn.RMSNorm:
            return _Norm(weight, norm.eps)
        if type(norm).__name__ not in _NORMS or weight.dtype is torch.float64:  # theirs are float32 inside
            raise ThroughModules
        return _Norm(weight, float(norm.variance_epsilon))

    def _product(self, layers: Sequence[Any]) -> Product:
        parts = [_parts(layer) for layer in layers]
        self._read += [
            other for base, *others in parts for other in (base.weight, base.bias, *others) if torch.is_tensor(other)
        ]
        weights = [base.weight for base, *_ in parts]
        biases = [base.bias for base, *_ in parts]
        if any(bias is None for bias in biases) != all(bias is None for bias in biases):
            raise ThroughModules
        down = up = None
        scales = {scale for _, _, _, scale in parts if scale}
        if scales:
            if len(scales) > 1:
                raise ThroughModules
            down = torch.cat([matrix for _, matrix, _, _ in parts if matrix is not None]).t().contiguous()
            up = torch.block_diag(  # type: ignore[no-untyped-call]
                *(base.weight.new_zeros(base.weight.shape[0], 0) if matrix is None else matrix for base, _, matrix, _ in parts)
            ).t().contiguous()  # fmt: skip
        return Product(
            *self._packed.of(weights),
            None if biases[0] is None else torch.cat(biases),
            down,
            up,
            scales.pop() if scales else 0.0,
        )

    def __call__(self, token: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """Returns the logits [R, V] after tokens [R] at positions [R]. Keys and values are added to `cache`."""
        rows, queries, keys, size = len(token), self._queries, self._keys, self._size
        x = embedding(token, self._decoder.embed_tokens.weight)
        cos, sin = self._decoder.rotary_emb(x[:, None], positions[:, None])
        if cos.shape[-1] != size:
            raise ThroughModules
        half = size // 2
        signed = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            heads = layer.heads(layer.before(x)).view(rows, -1, size)
            turned = heads[:, : queries + keys]
            if layer.query_norm is not None and layer.key_norm is not None:
                turned = torch.cat([layer.query_norm(heads[:, :queries]), layer.key_norm(turned[:, queries:])], 1)
            turned = (turned * cos).add_(turned.roll(half, -1).mul_(signed))
            key, value = layer_cache.update(turned[:, queries:, None], heads[:, queries + keys :, None])
            query = turned[:, :queries, None]
            seen = behind_prompts(query, key, value, layer_cache.prompts, self._scale)
            x = x + layer.out(seen.reshape(rows, -1))
            gates = layer.gates(layer.after(x))
            width = gates.shape[-1] // 2
            x = x + layer.down(silu(gates[:, :width]).mul_(gates[:, width:]))
        return self._head(self._norm(x))


class ThroughModules(Exception):
    """The network has to be computed by its own modules."""


def _parts(layer: Any) -> tuple[Any, torch.Tensor | None, torch.Tensor | None, float]:
    """Returns the linear layer itself, and A, B and the scale of its adapter, where it has one."""
    if type(layer) is torch.nn.Linear:
        return layer, None, None, 0.0
    base = getattr(layer, "base_layer", None)
    if type(base) is not torch.nn.Linear:
        raise ThroughModules
    if layer.disable_adapters or layer.merged:
        return base, None, None, 0.0
    adapter = plain_adapter(layer, base.weight.dtype) if hasattr(layer, "lora_A") else None
    if adapter is None:
        raise ThroughModules
    if layer.scaling[adapter] == 0:
        return base, None, None, 0.0
    return base, layer.lora_A[adapter].weight, layer.lora_B[adapter].weight, float(layer.scaling[adapter])
