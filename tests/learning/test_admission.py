"""The admission rule as a game: whatever the order in which groups finish, no update trains a token that is too old."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepworth.learning.collect.asynchrony import Staleness


@given(
    groups=st.integers(1, 4),
    max_staleness=st.integers(0, 4),
    share=st.floats(0, 1),
    picks=st.lists(st.integers(0, 10**6), min_size=40, max_size=160),
    failing=st.sets(st.integers(0, 60)),
)
def test_waiting_for_what_is_due_keeps_the_bound_in_any_order(
    groups: int, max_staleness: int, share: float, picks: list[int], failing: set[int]
) -> None:
    """Play: start what may be started, finish a group picked at random (or let it fail), train when the rule allows it."""
    rule = Staleness(groups, max_staleness, pipeline_depth=1 + share * max_staleness)
    version = consumed = index = 0
    running: dict[int, int] = {}
    finished: dict[int, int] = {}
    trained: set[int] = set()
    for pick in picks:
        for _ in range(
            rule.capacity(version=version, accepted=consumed + len(finished), running=len(running), consumed=consumed)
        ):
            running[index] = version
            index += 1
        assert len(running) + len(finished) <= (max_staleness + 1) * groups
        if running:
            chosen = sorted(running)[pick % len(running)]
            born = running.pop(chosen)
            if chosen not in failing:
                finished[chosen] = born
        batch = rule.choose(version, finished, running)
        if batch is None:
            assert running or len(finished) < groups, "nothing runs that could be waited for"
            continue
        for each in batch:
            assert version - finished.pop(each) <= max_staleness
            assert each not in trained
            trained.add(each)
        version, consumed = version + 1, consumed + groups
