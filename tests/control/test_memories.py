"""What every sequence memory must do: exactness of steps, chunks, resets, batches, padding and states."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import Tensor

from keepworth.control.memory_base import SegmentedMemory, SequenceMemory, State
from tests.control.conftest import FEATURES, WIDTH

EXACT = {"rtol": 1e-9, "atol": 1e-10}


def inputs(time: int, batch: int = 4, chance: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise, and random starts."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, time, FEATURES, generator=draw, dtype=torch.float64)
    return x, torch.rand(batch, time, generator=draw) < chance


def carried(module: SequenceMemory, batch: int = 4, time: int = 40) -> State:
    """The state after some noise."""
    x, starts = inputs(time, batch, seed=7)
    return tuple(part.detach() for part in module(x, None, starts)[1])


def stepped(module: SequenceMemory, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
    outputs = []
    for x_t, start in zip(x.unbind(1), starts.unbind(1), strict=True):
        y, state = module.step(x_t, state, start)
        outputs.append(y)
    return torch.stack(outputs, 1), state


def same(one: State, other: State) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("time", [1, 2, 7, 64, 257])
def test_running_over_time_equals_stepping(module: SequenceMemory, time: int) -> None:
    for part in module.modules():
        if isinstance(part, SegmentedMemory):
            part.segment = 50  # so that long inputs are run in parts
    x, starts = inputs(time)
    state = carried(module)
    with torch.no_grad():
        y, last = module(x, state, starts)
        expected, after = stepped(module, x, state, starts)
    torch.testing.assert_close(y, expected, **EXACT)
    same(last, after)


@pytest.mark.parametrize("batch", [3, 70])
def test_gradients_of_inputs_parameters_and_carry_equal_those_of_stepping(module: SequenceMemory, batch: int) -> None:
    x, starts = inputs(24, batch)
    state = carried(module, batch)
    toward = torch.randn(batch, 24, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = []
    for run in (module, lambda *given: stepped(module, *given)):
        leaves = [x.clone().requires_grad_(), *(part.clone().requires_grad_() for part in state)]
        y, _ = run(leaves[0], tuple(leaves[1:]), starts)
        wanted = [*leaves, *module.parameters()]
        gradients.append(torch.autograd.grad((y * toward).sum(), wanted, allow_unused=True))
    for parallel, recurrent in zip(*gradients, strict=True):
        if parallel is None or recurrent is None:
            assert parallel is recurrent
        else:
            torch.testing.assert_close(parallel, recurrent, rtol=1e-7, atol=1e-9)


def test_episode_start_blocks_values_and_gradients(module: SequenceMemory) -> None:
    x, starts = inputs(30, chance=0.0)
    starts[:, 13] = True
    other = x.clone()
    other[:, :13] += 3.0
    with torch.no_grad():
        one, two = module(x, carried(module), starts)[0], module(other, carried(module), starts)[0]
    assert torch.equal(one[:, 13:], two[:, 13:])
    x.requires_grad_()
    module(x, carried(module), starts)[0][:, 13:].square().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad[:, :13], torch.zeros_like(x[:, :13]))
    assert (x.grad[:, 13:] != 0).any()


def test_a_start_makes_the_state_new(module: SequenceMemory) -> None:
    x, starts = inputs(30, chance=0.0)
    starts[:, 11] = True
    with torch.no_grad():
        y, last = module(x, carried(module), starts)
        fresh, after = module(x[:, 11:])
        torch.testing.assert_close(y[:, 11:], fresh, **EXACT)
        torch.testing.assert_close(module(x[:, 11:18], last)[0], module(x[:, 11:18], after)[0], **EXACT)


def test_batch_elements_do_not_meet(module: SequenceMemory) -> None:
    x, starts = inputs(30)
    state = carried(module)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        y, last = module(x, state, starts)
        moved, after = module(x[order], tuple(part[order] for part in state), starts[order])
        torch.testing.assert_close(moved, y[order], **EXACT)
        same(after, tuple(part[order] for part in last))
        x[1] += 1.0
        changed, _ = module(x, state, starts)
    assert torch.equal(changed[[0, 2, 3]], y[[0, 2, 3]])


@pytest.mark.parametrize("padded", [[0, 3, 9, 1], [5, 5, 5, 5]])
def test_padding_at_the_end_changes_no_output_and_no_state(module: SequenceMemory, padded: list[int]) -> None:
    time = 30
    x, starts = inputs(time)
    state = carried(module)
    mask = torch.arange(time).unsqueeze(0) < time - torch.tensor(padded).unsqueeze(1)
    with torch.no_grad():
        y, last = module(x, state, starts, mask)
        for row, count in enumerate(padded):
            alone = (x[row : row + 1, : time - count], tuple(part[row : row + 1] for part in state))
            expected, after = module(*alone, starts[row : row + 1, : time - count])
            torch.testing.assert_close(y[row, : time - count], expected[0], **EXACT)
            same(tuple(part[row : row + 1] for part in last), after)


@pytest.mark.slow
def test_many_steps_of_noise_stay_bounded(module: SequenceMemory) -> None:
    """2,000 steps here; 100,000 by `python -m benchmarks.control.probes`."""
    module.float()
    draw = torch.Generator().manual_seed(0)
    state, sizes = module.initial_state(2), []
    with torch.no_grad():
        for _ in range(10):
            y, state = module(torch.randn(2, 200, FEATURES, generator=draw), state)
            sizes.append(max([float(y.abs().max()), *(float(part.abs().max()) for part in state if part.numel())]))
    assert np.isfinite(sizes).all()
    assert max(sizes[5:]) <= 3 * max(sizes[:5])


def test_a_state_is_saved_indexed_joined_and_made_an_array(module: SequenceMemory) -> None:
    state = carried(module)
    assert all(len(part) == 4 and not part.is_complex() for part in state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    same(tuple(loaded), state)
    same(tuple(torch.cat([part[:1], part[1:]]) for part in state), state)
    arrays = [part.numpy() for part in state]
    same(tuple(torch.from_numpy(array.copy()) for array in arrays), state)
    module.load_state_dict(module.state_dict())


def test_a_gradient_reaches_the_first_input(module: SequenceMemory) -> None:
    x, _ = inputs(min(6, module.reach or 6))
    x.requires_grad_()
    module(x)[0][:, -1].square().sum().backward()
    assert x.grad is not None
    assert (x.grad[:, 0] != 0).any()
