"""Memories against their formulas, computed a second way; and what retrieval must do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from keepworth.control import memory
from keepworth.control.attention import age_code
from keepworth.control.memory_base import SequenceMemory
from keepworth.control.scan import scan_pairs
from keepworth.control.settings import SettingError

FEATURES, WIDTH, TIME = 5, 16, 20


def built(name: str, **settings: Any) -> SequenceMemory:
    torch.manual_seed(1)
    return memory(name, FEATURES, WIDTH, **settings).double()


def noise(time: int = TIME, features: int = FEATURES) -> Tensor:
    return torch.randn(2, time, features, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def close(one: Tensor, other: Tensor | np.ndarray) -> None:
    torch.testing.assert_close(one.detach(), torch.as_tensor(other), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_gated_memories_are_those_of_torch(name: str) -> None:
    module, x = built(name), noise()
    other = getattr(torch.nn, name.upper())(FEATURES, WIDTH, batch_first=True).double()
    with torch.no_grad():
        for parameter, weights in zip(other.parameters(), module.weights(), strict=True):
            parameter.copy_(weights)
    close(module(x)[0], other(x)[0].detach())


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13])
def test_both_scans_are_the_recurrence(length: int) -> None:
    a, b = noise(length).sigmoid(), noise(length, 2 * FEATURES)[..., FEATURES:]
    h, expected = torch.zeros(2, FEATURES, dtype=torch.float64), []
    for t in range(length):
        h = a[:, t] * h + b[:, t]
        expected.append(h)
    close(scan_pairs(a, b), torch.stack(expected, 1))


def test_ffm_is_its_recurrence() -> None:
    module, x = built("ffm", traces=3, contexts=2), noise()
    value, gate = module.input(x).detach().numpy().reshape(2, TIME, 2, 3).transpose(2, 0, 1, 3)
    rate = np.exp(module.alpha.detach().numpy()[:, None] + 1j * module.omega.detach().numpy())
    assert abs(rate[-1, 0]) ** 1024 == pytest.approx(0.01, rel=1e-3)
    assert (built("ffm", horizon=10_000).alpha < -1e-8).all()
    state, states = np.zeros((2, 3, 2), complex), []
    for t in range(TIME):
        state = rate * state + (value[:, t] / (1 + np.exp(-gate[:, t])))[..., None]
        states.append(np.concatenate([state.real.reshape(2, -1), state.imag.reshape(2, -1)], 1))
    z = module.mix(torch.tensor(np.stack(states, 1)))
    skip, out = module.skip(x).chunk(2, -1)
    norm = (z - z.mean(-1, keepdim=True)) / (z.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    close(module(x)[0], (norm * out.sigmoid() + skip * (1 - out.sigmoid())).detach())


def test_lru_is_its_recurrence_and_its_modes_begin_in_their_ring() -> None:
    module, x = built("lru", blocks=0), noise()
    rate = np.exp(-np.exp(module.nu.detach().numpy()) + 1j * np.exp(module.theta.detach().numpy()))
    assert ((abs(rate) >= 0.5) & (abs(rate) <= 0.999)).all()
    assert np.allclose(np.exp(module.gamma.detach().numpy()), np.sqrt(1 - abs(rate) ** 2), rtol=1e-4)
    written = (x @ module.write).detach().numpy()
    written = (written[..., : WIDTH // 2] + 1j * written[..., WIDTH // 2 :]) * np.exp(module.gamma.detach().numpy())
    state, states = np.zeros((2, WIDTH // 2), complex), []
    for t in range(TIME):
        state = rate * state + written[:, t]
        states.append(np.concatenate([state.real, state.imag], 1))
    close(module(x)[0], (module.output(torch.tensor(np.stack(states, 1))) + module.skip(x)).detach())


def test_s5_begins_as_the_normal_part_of_hippo_and_steps_as_its_differential_equation() -> None:
    module = built("s5", blocks=0)
    n = np.arange(WIDTH)
    a = -np.tril(np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), -1) - np.diag(n + 1)
    p = np.sqrt(n + 0.5)
    values = np.linalg.eigvals(a + np.outer(p, p))
    assert np.allclose(values.real, -0.5)
    assert np.allclose(np.sort(values.imag)[WIDTH // 2 :], np.sort(module.turning.detach().numpy()), rtol=1e-5)
    x = noise(1)
    decay, write = module.recur(x)
    rate = torch.complex(module.fading, module.turning).detach().numpy()
    step = np.exp(module.log_step.detach().numpy())
    held = (x @ module.write).detach().numpy()[0, 0]
    held = held[: WIDTH // 2] + 1j * held[WIDTH // 2 :]
    h = np.zeros(WIDTH // 2, complex)
    for _ in range(20_000):
        h = h + step / 20_000 * (rate * h + held)
    assert np.allclose(write.detach().numpy()[0, 0], h, rtol=1e-2)
    assert np.allclose(decay.detach().numpy()[0, 0], np.exp(rate * step))


def test_lmu_holds_a_window_of_its_signal() -> None:
    """Legendre polynomials of m give the signal of r * window steps ago."""
    module = built("lmu", order=16, window=64)
    m, signal = torch.zeros(16, dtype=torch.float64), [math.sin(t / 15) for t in range(300)]
    for u in signal:
        m = module.decay @ m + module.write * u
    for back in (8, 32, 56):
        legendre = np.polynomial.legendre.legvander(np.array([2 * back / 64 - 1]), 15)[0]
        assert abs(float(m @ torch.tensor(legendre)) - signal[-1 - back]) < 0.05


@pytest.mark.parametrize("horizon", [1024, 2])
def test_indrnn_is_its_recurrence(horizon: int) -> None:
    module, x = built("indrnn", blocks=0, horizon=horizon), noise()
    weight, bias, past = (part.detach().numpy() for part in (module.input.weight, module.input.bias, module.past))
    with torch.no_grad():
        module.past += 0.3  # beyond the bound, at some units
    bound = math.exp(-1 / horizon)
    h, outputs = np.zeros((2, WIDTH)), []
    for t in range(TIME):
        h = np.maximum(x[:, t].numpy() @ weight.T + bias + np.clip(past, -bound, bound) * h, 0.0)
        outputs.append(h)
    close(module(x)[0], np.stack(outputs, 1))


def test_lmu_is_its_recurrence() -> None:
    module, x = built("lmu", order=4, window=20), noise()
    with torch.no_grad():
        module.signal.weight.normal_(std=0.3)
    weights = (module.input.weight, module.input.bias, module.signal.weight, module.past.weight)
    read, bias, signal, past = (part.detach().numpy() for part in weights)
    decay, write = module.decay.numpy(), module.write.numpy()
    h, m, outputs = np.zeros((2, WIDTH)), np.zeros((2, 4)), []
    for t in range(TIME):
        given = x[:, t].numpy() @ read.T + bias
        u = given[:, 0] + np.concatenate([h, m], 1) @ signal[0]
        m = m @ decay.T + u[:, None] * write
        h = np.tanh(given[:, 1:] + np.concatenate([h, m], 1) @ past.T)
        outputs.append(h)
    close(module(x)[0], np.stack(outputs, 1))


def test_selective_is_its_recurrence() -> None:
    module, x = built("selective", blocks=0, states=3, convolution=1), noise()
    with torch.no_grad():
        speed = torch.nn.functional.softplus(module.speed(x))
        rates, u, b, c = -module.rates.exp(), module.value(x), module.write(x), module.probe(x)
        h, outputs = torch.zeros(2, WIDTH, 3, dtype=torch.float64), []
        for t in range(TIME):
            h = (speed[:, t, :, None] * rates).exp() * h + (speed * u)[:, t, :, None] * b[:, t, None]
            outputs.append((h * c[:, t, None]).sum(-1) + module.skip * u[:, t])
        gate = torch.nn.functional.silu(module.gate(x))
        close(module(x)[0], module.output(torch.stack(outputs, 1) * gate))


def test_a_short_convolution_is_that_of_torch_and_knows_where_episodes_start() -> None:
    from keepworth.control.windows import ShortConvolution

    module, x = ShortConvolution(FEATURES, 4).double(), noise()
    weight = module.weight.T.unsqueeze(1)
    sums = torch.nn.functional.conv1d(x.transpose(1, 2), weight, module.bias, padding=3, groups=FEATURES)
    expected = torch.nn.functional.silu(sums[..., :TIME]).transpose(1, 2).detach()
    close(module(x)[0], expected)
    starts = torch.zeros(2, TIME, dtype=torch.bool)
    starts[:, 9] = True
    close(module(x, None, starts)[0][:, 9:], module(x[:, 9:])[0].detach())


def test_linear_attention_in_chunks_is_its_recurrence() -> None:
    module, x = built("linear_attention", blocks=0, heads=2, key=4, chunk=6), noise()
    with torch.no_grad():
        q, k, v = module.input(x).split([8, 8, WIDTH], -1)
        q, k = ((torch.nn.functional.elu(part) + 1).unflatten(-1, (2, 4)) for part in (q / 1.0, k))
        left, v = module.fading(x).sigmoid(), v.unflatten(-1, (2, -1))
        matrix, reads = torch.zeros(2, 2, 4, WIDTH // 2, dtype=torch.float64), []
        for t in range(TIME):
            matrix = left[:, t, :, None, None] * matrix + k[:, t, :, :, None] * v[:, t, :, None]
            reads.append((matrix * q[:, t, :, :, None]).sum(2) / 2)
        close(module(x)[0], module.output(module.norm(torch.stack(reads, 1)).flatten(2)))


def test_deltanet_puts_a_new_value_in_the_place_of_the_old_one() -> None:
    module = built("deltanet", blocks=0, heads=1, key=4, convolution=1)
    first, second = torch.randn(2, WIDTH, dtype=torch.float64)
    key = torch.tensor([30.0, -60.0, -60.0, -60.0], dtype=torch.float64)
    state = module.initial_state(1)
    for value in (first, second):
        row = torch.cat([key, key, value, torch.tensor([60.0], dtype=torch.float64)])
        _, state = module.cell(row.view(1, 1, -1), state)
    torch.testing.assert_close(state[0][0, 0, 0], second, rtol=1e-6, atol=1e-6)


def filled(module: SequenceMemory, steps: int = 32) -> tuple[Tensor, ...]:
    return tuple(part.detach() for part in module(noise(steps))[1])


def test_hcam_ignores_chunks_outside_the_best_and_their_order() -> None:
    module = built("hcam", chunk=4, chunks=8, best=3, heads=2)
    summaries, rows, _, _, kept = filled(module)
    query = noise(1, WIDTH)[:, 0]
    assert kept.tolist() == [8.0, 8.0]
    with torch.no_grad():
        read = module.recall(query, summaries, rows, kept)
        logits = (module.key(summaries) @ module.query(query).unsqueeze(2)).squeeze(2)
        worst = logits.argmin(1)
        other = rows.clone()
        other[torch.arange(2), worst] = 9.0
        assert torch.equal(module.recall(query, summaries, other, kept), read)
        order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
        close(module.recall(query, summaries[:, order], rows[:, order], kept), read)


def test_all_chunks_with_equal_summaries_give_the_mean_of_attention_inside_each() -> None:
    module = built("hcam", chunk=4, chunks=8, best=8, heads=2)
    summaries, rows, _, _, kept = filled(module)
    query = noise(1, WIDTH)[:, 0]
    there = torch.ones(2, 4, dtype=torch.bool)
    with torch.no_grad():
        read = module.recall(query, torch.zeros_like(summaries), rows, kept)
        inside = [module.inside(query, rows[:, k], there, module.code(query)) for k in range(8)]
    close(read, torch.stack(inside).mean(0))


def test_empty_hcam_memory_reads_zero() -> None:
    module = built("hcam", chunk=4, chunks=8)
    summaries, rows, _, _, kept = module.initial_state(2)
    read = module.recall(noise(1, WIDTH)[:, 0], summaries, rows, kept)
    assert torch.equal(read, torch.zeros_like(read))


def test_compressive_memory_stores_means_of_departed_steps() -> None:
    module, x = built("compressive", layers=1, heads=2, window=4, compressed=3, rate=2), noise(10)
    counts, rows = module(x)[1]
    embedded = module.embed(x)
    assert counts[0].tolist() == [4.0, 3.0]  # ten steps: 4 as they are, 3 means of 2
    close(rows[:, 0], embedded[:, 0:2].mean(1).detach())
    close(rows[:, 2], embedded[:, 4:6].mean(1).detach())
    close(rows[:, -1], embedded[:, 9].detach())


def test_a_gated_transformer_begins_near_the_network_without_memory() -> None:
    module, x = built("gtrxl"), noise()
    change = (module(x)[0] - module.embed(x)).norm() / module.embed(x).norm()
    assert change.item() < 0.5


@pytest.mark.parametrize("rule", ["merge", "fifo"])
def test_a_full_bank_merges_its_most_similar_neighbours_or_drops_the_oldest(rule: str) -> None:
    torch.manual_seed(1)
    module = memory("memory_vla", FEATURES, 2, rule=rule, capacity=3, heads=1).double()
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.2, 1.0], [-1.0, 0.0]], dtype=torch.float64).expand(2, 4, 2)
    times = torch.tensor([0.0, 1.0, 4.0, 5.0], dtype=torch.float64).expand(2, 4)
    left, when = module.evict(rows, times, torch.tensor([True, False]))
    merged = torch.tensor([[1.0, 0.0], [0.1, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    close(left, torch.stack([merged if rule == "merge" else rows[0, 1:], rows[1, 1:]]))
    assert when.tolist() == [[0.0, 2.5, 5.0] if rule == "merge" else [1.0, 4.0, 5.0], [1.0, 4.0, 5.0]]


def test_a_bank_never_outgrows_its_capacity_and_its_times_stay_in_order() -> None:
    module, state = built("memory_vla", capacity=4), None
    for steps in (3, 1, 20):
        rows, times, count, time = state = module(noise(steps), state)[1]
    assert (count.tolist(), time.tolist(), rows.shape[1]) == ([4.0, 4.0], [24.0, 24.0], 4)
    assert (times.diff(dim=1) > 0).all()
    assert times[0, 0] < 20 <= times[0, -1] <= 23


def test_merged_bank_reaches_the_first_input_and_fifo_does_not() -> None:
    x = noise(12)
    other = x.clone()
    other[:, 0] += 3.0
    for name, reaches in (("memory_vla", True), ("sam2act", False)):
        module = built(name, capacity=4)
        assert bool((module(x)[0][:, -1] != module(other)[0][:, -1]).any()) == reaches


def test_empty_bank_reads_zero() -> None:
    module, x = built("memory_vla"), noise(1)
    rows, times, count, time = module.initial_state(2)
    full = (rows + 9.0, times, count, time)
    with torch.no_grad():
        close(module(x, full)[0], module(x)[0])


@pytest.mark.parametrize(("rule", "goes"), [("fifo", 0), ("lifo", 3), ("mvfo", 1), ("lvfo", 2)])
def test_a_rule_says_which_row_goes(rule: str, goes: int) -> None:
    module = memory("spatial", FEATURES, WIDTH, rule=rule, capacity=4, signs=2)
    places = torch.tensor([[3.0, 1.0, 0.0, 1.0]])
    assert module.choose(places, torch.tensor([[2.0, 5.0, 9.0, 3.0]])).tolist() == [goes]


def test_a_full_spatial_memory_loses_the_row_of_its_rule_and_keeps_its_order() -> None:
    module = built("spatial", rule="lifo", capacity=3)
    x = noise(8)
    rows, places, times, visits, count, time = module(x)[1]
    assert times.tolist() == [[0.0, 1.0, 7.0]] * 2
    close(rows, module.embed(x[:, [0, 1, 7]]).detach())
    assert (count.tolist(), time.tolist(), visits.sum(1).tolist()) == ([3.0] * 2, [8.0] * 2, [8.0] * 2)
    assert bool((visits.gather(1, places.long()) > 0).all())


def test_image_goal_reads_its_rows_by_the_input_and_by_the_features_of_the_goal() -> None:
    module, x = built("image_goal", goal_start=3, goal_size=2, capacity=4, heads=2), noise(9)
    state = module(x[:, :8])[1]
    rows, times, count, time, before = state
    assert (times[0].tolist(), count[0].item(), time[0].item()) == ([4.0, 5.0, 6.0, 7.0], 4.0, 8.0)
    close(rows, module.embed(x[:, 4:8]).detach())
    there = torch.ones(2, 4, dtype=torch.bool)
    code = age_code(torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64), WIDTH)
    last = x[:, 8]
    queries = (module.embed(last), module.goal(last[:, 3:]))
    reads = [read(query, rows, there, code) for read, query in zip(module.reads, queries, strict=True)]
    close(module.step(last, state)[0], module.recurrence(torch.cat([queries[0], *reads], 1), before).detach())
    moved = x.clone()
    moved[:, 8, :3] += 1.0
    close(module.project(moved)[..., WIDTH:], module.project(x)[..., WIDTH:].detach())


def test_image_goal_does_not_write_a_step_that_it_has_and_wants_features_that_there_are() -> None:
    module, x = built("image_goal", capacity=4, alike=0.999), noise(3)
    _, times, count, time, _ = module(x[:, [0, 0, 1, 0, 2]])[1]
    assert (times[0].tolist(), count.tolist(), time.tolist()) == ([0.0, 0.0, 2.0, 4.0], [3.0] * 2, [5.0] * 2)
    with pytest.raises(SettingError, match="5 features"):
        built("image_goal", goal_start=4, goal_size=2)
