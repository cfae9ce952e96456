"""Bresa, hybrid regions, OER and Mini-Diffuser: chances, regions, buffers and losses are those of direct computation."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.methods.studies import offline_replay as replay
from keepworth.methods.studies import reflexes
from keepworth.methods.studies.reflexes import CELLS, HELD, MOVES, SIDE, cross, draw_field, learn_risk, risk_of

torch = pytest.importorskip("torch", reason="the extra control brings it")

from keepworth.methods.studies import hybrid_regions as regions  # noqa: E402
from keepworth.methods.studies import level_two_batches as batches  # noqa: E402


def test_plan_of_a_field_reaches_its_goal_without_a_fall_where_no_step_slips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflexes, "SLIP", 0.0)
    for seed in range(5):
        field = draw_field(np.random.default_rng(seed))
        assert cross(field, None, 0.0, False) == pytest.approx((1.0, 0.0))
        assert field.plan[:, 0].min() >= 2 * (SIDE - 1) / HELD


def test_risk_is_the_share_of_held_directions_that_end_in_a_hole() -> None:
    generator = np.random.default_rng(3)
    field = draw_field(generator)
    risk = risk_of(field.moves, field.holes)
    for direction in range(len(MOVES)):
        cell = int(np.flatnonzero(~field.holes)[5 * direction])
        falls, tries = 0, 4000
        for _ in range(tries):
            place = cell
            for _ in range(HELD):
                place = int(generator.choice(CELLS, p=field.moves[direction, place]))
                if field.holes[place] or place == CELLS - 1:
                    break
            falls += bool(field.holes[place])
        assert risk[-1, direction, cell] == pytest.approx(falls / tries, abs=0.03)


def test_learned_risk_comes_near_the_true_one_and_the_reflex_falls_less_than_the_slow_critic() -> None:
    falls = []
    for seed in range(6):
        generator = np.random.default_rng([1, seed])
        field = draw_field(generator)
        true, learned = risk_of(field.moves, field.holes), learn_risk(field, generator, 100_000)
        assert np.abs(learned - true).max() < 0.12
        falls.append([cross(field, true, 0.3, fast)[1] for fast in (True, False)])
        done, fallen = cross(field, true, 0.3, True)
        assert done + fallen <= 1.0 + 1e-9
    fast, slow = np.mean(falls, axis=0)
    assert fast < slow - 0.03


def test_states_within_a_learned_region_come_upright_and_the_region_is_not_empty() -> None:
    system = regions.draw_system(np.random.default_rng([12, 1]))
    states = regions.draw_states(2000, 99)
    for region in (regions.learn_region(system.heavy, 0), regions.quadratic_region(system.heavy, 0)):
        with torch.no_grad():
            within = region(states) <= 1.0
            assert system.heavy.comes_upright(states[within]).float().mean() > 0.98
            assert float(within.float().mean()) > 0.1
            assert float(region(torch.zeros(2))) == pytest.approx(0.0, abs=1e-6)


def test_plan_stays_at_the_wanted_angle_where_the_region_holds_all_states_and_leaves_it_otherwise() -> None:
    system = regions.draw_system(np.random.default_rng([12, 0]))
    assert regions.plan(system, lambda state: state.sum(-1) * 0.0) == pytest.approx(system.wanted, abs=1e-3)
    narrow = regions.plan(system, lambda state: state[..., 0].abs() / 0.2)
    assert abs(narrow) < 0.35 < system.wanted


def test_controller_of_a_mode_holds_its_set_point_and_the_heavy_one_falls_far_from_upright() -> None:
    system = regions.draw_system(np.random.default_rng([12, 2]))
    state = torch.zeros(2)
    for _ in range(200):
        state = system.light.step(state, 0.3)
    assert state.tolist() == pytest.approx([0.3, 0.0], abs=0.02)
    assert not bool(system.heavy.comes_upright(torch.tensor([1.5, 3.0])))


def test_more_noised_actions_of_a_scene_leave_the_gradient_and_lower_its_variance() -> None:
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    policy = batches.make_policy()
    scenes, places = batches.draw_scenes(4, draw)

    def gradients(actions: int, same: bool) -> torch.Tensor:
        of = []
        for _ in range(300):
            policy.zero_grad()
            batches.diffusion_loss(policy, scenes, places, *batches.draw_noise(4, actions, same, draw)).backward()
            of.append(policy.head[-1].weight.grad.flatten().clone())
        return torch.stack(of)

    single, sixteen, copies = gradients(1, False), gradients(16, False), gradients(16, True)
    spread = single.var(0).sum()
    assert float(sixteen.var(0).sum() / spread) == pytest.approx(1 / 16, abs=0.03)
    assert float(copies.var(0).sum() / spread) == pytest.approx(1.0, abs=0.3)
    assert float((single.mean(0) - sixteen.mean(0)).square().sum() / spread) < 3 * (1 + 1 / 16) / 300


def test_brightest_spot_of_a_scene_is_at_its_place() -> None:
    scenes, places = batches.draw_scenes(50, torch.Generator().manual_seed(1))
    axis = torch.linspace(-1.0, 1.0, batches.SIDE)
    right = 0
    for scene, place in zip(scenes, places, strict=True):
        row, column = divmod(int(scene[0].argmax()), batches.SIDE)
        right += bool(((torch.stack([axis[row], axis[column]]) - place).abs() < 0.1).all())
    assert right >= 45


def test_values_of_logs_lead_to_the_goal_by_steps_that_were_logged() -> None:
    logs = replay.walk(24, np.random.default_rng(5))
    q = replay.learn_values(logs, 24)
    done = set(zip(logs.cells.tolist(), logs.actions.tolist(), strict=True))
    assert all((cell, action) in done for cell, action in np.argwhere(q > 0.0))
    assert q.max() <= replay.DISCOUNT
    sure = replay.Logs(np.array([21, 22, 23]), np.zeros(3, dtype=int), np.array([22, 23, 24]), np.zeros(3, dtype=int))
    assert replay.learn_values(sure, 24)[[21, 22, 23], 0] == pytest.approx([0.95**3, 0.95**2, 0.95])


def test_buffer_holds_transitions_of_the_policy_of_the_task() -> None:
    generator = np.random.default_rng(6)
    logs = replay.walk(24, generator)
    q = replay.learn_values(logs, 24)
    kept = replay.keep_by_model(logs, q, 24, generator)
    assert len(kept) == len(set(kept.tolist())) <= replay.KEPT
    agrees = logs.actions == q[logs.cells].argmax(1)
    assert agrees[kept].all()
    assert agrees.mean() < 0.7
    best = replay.keep_best(logs, 24)
    assert len(best) == replay.KEPT
    assert logs.after[best[np.flatnonzero(np.diff(logs.episodes[best]))]].tolist() == [24] * int(
        (np.diff(logs.episodes[best]) != 0).sum()
    )
