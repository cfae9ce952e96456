"""Credit that is fed from episodes: conservation, fairness of branches, order of scoring and remembering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.episodes import Decision, DecisionKind, Episode, FinishReason, Group, Segment, StopReason
from keepworth.learning.collect.episode_credit import (
    MemoryQuestion,
    NoProvenance,
    with_attribution,
    writers,
)
from keepworth.learning.rows import rows_of


def segment(before: str = "") -> Segment:
    return Segment("a", "p", (1,), (2,), (-0.5,), 1.0, FinishReason.STOP, (), "", memory_before=before)


def episode(number: int, steps: int, wrote: Sequence[tuple[int, str]] = (), **changes: object) -> Episode:
    decisions = tuple(
        Decision(f"d{n}", DecisionKind.WRITE, "", (), (item,), 1.0, "", step) for n, (step, item) in enumerate(wrote)
    )
    bare = Episode(
        f"e{number}",
        "t",
        "a",
        "q",
        (segment(),) * steps,
        f"answer {number}",
        (),
        (),
        StopReason.COMPLETED,
        "",
        0,
        decisions=decisions,
    )
    return replace(bare, **changes)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda steps: st.tuples(
            st.just(steps),
            st.lists(st.tuples(st.integers(0, steps - 1), st.sampled_from("xyz")), min_size=3, max_size=6),
        )
    ),
    st.lists(
        st.tuples(st.floats(0, 1), st.lists(st.sampled_from("xyz"), min_size=1, max_size=3)), min_size=1, max_size=4
    ),
    st.floats(0, 1),
)
def test_attribution_conserves_the_score(
    made: tuple[int, list[tuple[int, str]]], questions: list[tuple[float, list[str]]], share: float
) -> None:
    steps, wrote = made
    own = {item for _, item in wrote}
    asked = [MemoryQuestion(score, tuple(item for item in items if item in own)) for score, items in questions]
    asked = [each for each in asked if each.retrieved]
    if not asked:
        return
    credited = with_attribution(episode(0, steps, wrote), asked, share=share)
    assert credited.reward == pytest.approx(sum(each.score for each in asked) / len(asked))
    rows = rows_of([Group("t", "", (credited,))], ["a"], 0)
    assert rows.batch.steps is not None
    assert rows.batch.steps.reward.tolist() == [term.value for term in credited.rewards]


def test_the_step_that_wrote_the_evidence_gets_the_credit() -> None:
    one = episode(0, 2, [(0, "x"), (1, "y"), (1, "x")])
    assert writers(one) == {"x": (0, 1), "y": (1,)}
    credited = with_attribution(one, [MemoryQuestion(1.0, ("y",)), MemoryQuestion(1.0, ("x",))], share=1.0)
    assert [term.value for term in credited.rewards] == pytest.approx([0.25, 0.75])
    with pytest.raises(NoProvenance, match="names step 5"):
        writers(episode(0, 2, [(5, "x")]))
