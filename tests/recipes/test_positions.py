"""Tasks at positions of a training: a position's task is the one it always had."""

from __future__ import annotations

from keepworth.learning.collect.curriculum import CANDIDATES, SPAN, batch, draw_seed, drawn_task, group_at


def test_a_positions_own_task_is_the_one_it_always_had_and_others_are_others() -> None:
    items = list(range(20))
    passed = [item for step in range(5) for item in batch(items[:10], 4, step, 3)]
    assert sorted(passed[:10]) == sorted(passed[10:]) == items[:10]

    def kind_of(item: int) -> str:
        return "rare" if item < 2 else "common"

    own = [drawn_task(items, None, 3, position) for position in range(32, 40)]
    assert own == batch(items, 8, 4, 3)
    others = [drawn_task(items, None, 3, group_at(position, 4)) for position in range(32, 40)]
    assert others != own
    assert others == [drawn_task(items, None, 3, group_at(position, 4)) for position in range(32, 40)]
    even = [drawn_task(items, kind_of, 3, position) for position in range(32, 40)]
    assert sum(item < 2 for item in even) == 4
    assert draw_seed(3, 4, 32) == 3 * 1_000_003 + 4
    retried = [group_at(8 * step, CANDIDATES * retry) for step in range(50) for retry in range(9)]
    assert len({draw_seed(3, group % SPAN // 8, group) for group in retried}) == 450
