"""Memories beside the implementations of other packages: equal weights, equal inputs, equal starts of episodes, equal results.

`popgym.baselines` is in PyTorch, by the authors of POPGym; `memax` is in JAX, by the author of FFM. Both compute in single
precision. DeltaNet of memax is left out: version 0.1.1 multiplies the correction from the side of the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from keepworth.control import memory
from keepworth.control.memory_base import SequenceMemory

SIZE, TIME = 16, 40
STARTS = torch.zeros(1, TIME, dtype=torch.bool)
STARTS[0, [0, 13, 14, 31]] = True


def built(name: str, **settings: Any) -> tuple[Any, Tensor]:
    """A memory and its inputs, [1, time, size]."""
    torch.manual_seed(3)
    return memory(name, SIZE, SIZE, **settings), torch.randn(1, TIME, SIZE)


def states(module: SequenceMemory, x: Tensor) -> Tensor:
    """The first part of the state after each step, [time, ...]."""
    rows = [module(x[:, : time + 1], None, STARTS[:, : time + 1])[1][0][0] for time in range(TIME)]
    return torch.stack(rows).detach()


def close(one: Tensor, other: Any) -> None:
    np.testing.assert_allclose(one.detach().numpy(), np.asarray(other), rtol=1e-4, atol=2e-5)


def run_package(layer: Any, x: Tensor) -> tuple[Any, Any]:
    """The states and outputs of a layer of memax."""
    numbers = pytest.importorskip("jax").numpy
    inputs = numbers.asarray(x[0].numpy()), numbers.asarray(STARTS[0].numpy())
    return layer(layer.initialize_carry(), inputs)  # type: ignore[no-any-return]


def make_package(name: str, *sizes: int, **weights: Tensor) -> Any:
    """A layer of memax with weights, "layer.weight" written layer__weight."""
    equinox, jax = pytest.importorskip("equinox"), pytest.importorskip("jax")
    layers = pytest.importorskip(f"memax.equinox.semigroups.{name.lower()}")
    layer = getattr(layers, name)(*sizes, key=jax.random.key(0))
    for path, value in weights.items():
        parts = path.split("__")

        def part(tree: Any, parts: list[str] = parts) -> Any:
            for attribute in parts:
                tree = tree[int(attribute)] if attribute.isdigit() else getattr(tree, attribute)
            return tree

        layer = equinox.tree_at(part, layer, jax.numpy.asarray(value.detach().numpy()))
    return layer


def test_lmu_is_that_of_popgym() -> None:
    peers = pytest.importorskip("popgym.baselines.models.lmu")
    module, x = built("lmu", order=8, window=20)
    other = peers.LMU(SIZE, SIZE, 8, 20)
    with torch.no_grad():
        module.input.bias.zero_()
        module.signal.weight.normal_(std=0.3)
        for letter, weight in (("e", module.signal.weight), ("W", module.past.weight)):
            getattr(other.cell, f"{letter}_h").copy_(weight[:, :SIZE])
            getattr(other.cell, f"{letter}_m").copy_(weight[:, SIZE:])
        other.cell.e_x.copy_(module.input.weight[:1])
        other.cell.W_x.copy_(module.input.weight[1:])
    close(module(x)[0], other(x)[0].detach().numpy())


def test_indrnn_is_that_of_popgym() -> None:
    peers = pytest.importorskip("popgym.baselines.models.indrnn")
    module, x = built("indrnn", blocks=0)
    other = peers.IndRNN(SIZE, SIZE)
    with torch.no_grad():
        other.input0.load_state_dict(module.input.state_dict())
        other.weight0.copy_(module.past)
        other.input1.weight.copy_(torch.eye(SIZE))  # its second layer passes on what the first says
        for zero in (other.bias0, other.input1.bias, other.weight1, other.bias1):
            zero.zero_()
    close(module(x)[0], other(x)[0].detach().numpy())


def test_ffm_state_equals_memax() -> None:
    module, x = built("ffm", traces=6, contexts=3)
    value, gate = module.input.weight.chunk(2)
    value_bias, gate_bias = module.input.bias.chunk(2)
    layer = make_package(
        "FFM", SIZE, 6, 3, pre__weight=value, pre__bias=value_bias, gate_in__linear__weight=gate,
        gate_in__linear__bias=gate_bias, algebra__algebra__params__0=module.alpha,
        algebra__algebra__params__1=module.omega,
    )  # fmt: skip
    ((held, _), _), _ = run_package(layer, x)
    close(torch.view_as_complex(states(module, x).contiguous()), held)


def test_lru_is_that_of_memax() -> None:
    module, x = built("lru", blocks=0)
    with torch.no_grad():
        module.skip.weight.copy_(torch.diag(torch.randn(SIZE)))
        module.output.bias.zero_()
    real, imaginary = module.write.T.chunk(2)
    weights = {
        "nu_log": module.nu, "theta_log": module.theta, "gamma_log": module.gamma, "B_re": real, "B_im": imaginary,
    }  # fmt: skip
    # It asks for as many modes as there are features: the others are read with a weight of 0.
    weights = {name: torch.cat([value, torch.zeros_like(value)]) for name, value in weights.items()}
    read_real, read_imaginary = module.output.weight.chunk(2, 1)
    weights["C_re"] = torch.cat([read_real, torch.zeros_like(read_real)], 1)
    weights["C_im"] = torch.cat([-read_imaginary, torch.zeros_like(read_real)], 1)
    layer = make_package("LRU", SIZE, SIZE, D=module.skip.weight.diagonal(), **weights)
    _, y = run_package(layer, x)
    close(module(x, None, STARTS)[0][0], y)


def test_linear_attention_without_decay_equals_memax() -> None:
    module, x = built("linear_attention", blocks=0, heads=1, key=SIZE)
    with torch.no_grad():
        module.fading.weight.zero_()
        module.fading.bias.fill_(50.0)
    _, keys, values = module.input.weight.split(SIZE)
    layer = make_package("FART", SIZE, SIZE, K__weight=keys, V__weight=values)
    ((held, _), _), _ = run_package(layer, x)
    close(states(module, x)[:, 0], held)
