"""Whose credit: sets of notes that are shown on purpose, and items that are tested together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from keepworth import Memory
from keepworth.memory.choose.joint import fit
from keepworth.memory.choose.ledger import ALPHA
from keepworth.memory.choose.propensity import Independent
from keepworth.methods.policies.default.subsets import COST, SetRewards, find_need

QUESTION = "how do I reset the router"


def router_notes(memory: Memory, number: int) -> list[str]:
    return [item.id for item in memory.add_many([f"To reset the router mind step{n}x{n}." for n in range(number)])]


def ask_often(memory: Memory, needed: set[str], tasks: int, seed: int) -> list[float]:
    """Ask with rewards, and return the propensities."""
    world, propensities = np.random.default_rng(seed), []
    for _ in range(tasks):
        hits = memory.search(QUESTION, top_k="auto")
        propensities.append(hits.propensity)
        memory.reward(hits.decision, float(world.random() < (0.9 if needed <= {hit.id for hit in hits} else 0.2)))
    return propensities


def shown_in_the_end(memory: Memory) -> set[str]:
    return {hit.id for hit in memory.search(QUESTION, top_k="auto", explore=False)}


@pytest.mark.parametrize("places", [(4,), (2, 5)])
def test_notes_that_matter_are_shown_alone_in_the_end(places: tuple[int, ...]) -> None:
    with Memory(encoder="hashing", seed=1, writer=None) as memory:
        ids = router_notes(memory, 7)
        needed = {ids[place] for place in places}
        propensities = ask_often(memory, needed, 100 * len(places), seed=3)
        assert shown_in_the_end(memory) == needed
        assert len(memory.search(QUESTION, top_k=7)) == 7, "a number stays a number"
    assert any(propensity < 1.0 for propensity in propensities), "notes were left out by chance"


def test_deleting_a_needed_note_leaves_the_credit_with_the_others() -> None:
    with Memory(encoder="hashing", seed=1, writer=None) as memory:
        ids = router_notes(memory, 6)
        ask_often(memory, {ids[1], ids[4]}, 100, seed=2)
        memory.delete(ids[1])
        after = memory.search(QUESTION, top_k="auto")
        assert ids[1] not in {hit.id for hit in after}
        assert memory.reward(after.decision, 1.0).applied
        assert memory.worth(ids[4], QUESTION).times > 10


def rewards_of(*rows: tuple[int, int, int]) -> SetRewards:
    """Rewards (subset, how often, how often it was right) of sets that are shown in the order of their notes."""
    subsets = np.array([subset for subset, *_ in rows])
    counts = np.array([times for _, times, _ in rows], dtype=np.float64)
    first = np.array([(subset & -subset).bit_length() - 1 for subset, *_ in rows])
    return SetRewards(subsets, first, counts, np.array([right for *_, right in rows]) / counts)


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        (((0b111, 20, 18), (0b011, 20, 18), (0b100, 20, 3), (0b001, 20, 18)), (0,)),
        (((0b111, 20, 18), (0b110, 20, 3), (0b101, 20, 3), (0b011, 20, 18)), (0, 1)),
        (((0b111, 100, 60), (0b011, 100, 60), (0b100, 100, 60), (0b010, 100, 60), (0b000, 300, 180)), ()),
        (((0b111, 20, 18), (0b010, 20, 18), (0b100, 20, 18), (0b001, 20, 3)), (1,)),
    ],
)
def test_need_is_the_smallest_set_that_keeps_the_reward(
    rows: tuple[tuple[int, int, int], ...], notes: tuple[int, ...]
) -> None:
    need = find_need(rewards_of(*rows), [0, 1, 2], [0.4, 0.3, 0.3], 0.1)
    assert need.notes == notes


def test_tests_of_a_search_cost_at_most_their_bound() -> None:
    world = np.random.default_rng(4)
    for _ in range(50):
        rows = [(int(subset), 3, int(world.integers(4))) for subset in world.integers(1, 256, 6)]
        need = find_need(rewards_of(*rows), list(range(8)), [0.1] * 8, 0.1)
        assert 0.0 <= need.cost <= COST + 1e-9
        assert {note for note, _ in need.tests} <= set(need.notes)


def test_sets_are_drawn_with_their_stated_probability() -> None:
    choice = Independent((2, 0, 1, 3), 3, ((2, 0.5), (1, 0.2)), together=2, fills=False)
    draw, draws = np.random.default_rng(0), 20_000
    seen = Counter(choice.draw(draw)[0] for _ in range(draws))
    assert set(seen) == {(2, 0, 1), (0, 1), (2, 0), (0,)}
    assert sum(choice.probability(slate) for slate in seen) == pytest.approx(1.0)
    for slate, count in seen.items():
        assert count / draws == pytest.approx(choice.probability(slate), abs=0.02)


# Items that are tested together.


def test_joint_effects_are_not_biased_by_hard_questions() -> None:
    """A useless item is tested at hard questions alone, and mostly shown there."""
    draw = np.random.default_rng(1)
    n = 1500
    hard = draw.random(n) < 0.5
    p = np.column_stack([np.full(n, 0.5), np.where(hard, 0.9, 0.5)])
    a = (draw.random((n, 2)) < p).astype(float)
    a[~hard, 1] = 0.5
    y = (draw.random(n) < np.where(hard, 0.3, 0.7) + 0.2 * (a[:, 0] - 0.5)).astype(float)
    effects = fit(a, p, y, 1.0)
    low, high = (effects.effect + sign * effects.half_widths(1.0, ALPHA) for sign in (-1.0, 1.0))
    assert 0.0 < low[0] < 0.2 < high[0]
    assert low[1] < 0.0 < high[1]
    assert effects.chance[0] > 0.95 > 0.5 > effects.chance[1]


def verdicts_on_lines(path: Path | str, turns: int, lowest: float) -> list[str]:
    """Test eight lines together, of which the first helps and the second harms, and return what a review says of each."""
    world = np.random.default_rng(5)
    with Memory(path, encoder="hashing", seed=2, writer=None, reward_range=(lowest, 1.0)) as memory:
        ids = [item.id for item in memory.add_many([f"In the project heed rule{n}x{n}." for n in range(8)])]
        for id in ids:
            memory.update(id, metadata={"tested": 0.25})
        for turn in range(turns):
            hits = memory.search(f"project work on module {turn}", top_k=8)
            shown = {hit.id for hit in hits}
            right = world.random() < 0.5 + 0.4 * (ids[0] in shown) - 0.4 * (ids[1] in shown)
            memory.reward(hits.decision, 1.0 if right else lowest)
        groups = {one.item.id: one.group for one in memory.review().items}
        return [groups[id] for id in ids]


@pytest.mark.parametrize("lowest", [0.0, -1.0])
def test_lines_tested_together_get_their_verdicts_at_once(lowest: float) -> None:
    groups = verdicts_on_lines(":memory:", 160, lowest)
    assert groups[:2] == ["earns", "costs"]
    assert set(groups[2:]) <= {"undecided", "makes no difference"}


def test_accounts_of_lines_tested_together_are_equal_after_reopening(tmp_path: Path) -> None:
    groups = verdicts_on_lines(tmp_path / "lines.mem", 160, 0.0)
    with Memory(tmp_path / "lines.mem", encoder="hashing") as memory:
        again = {one.item.id: one.group for one in memory.review().items}
        accounts = memory.ledger().accounts
    assert sorted(again.values()) == sorted(groups)
    assert all(account.chance > 0.0 for account in accounts)
