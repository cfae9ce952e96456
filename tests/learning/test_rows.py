"""Rows: whatever an episode's segments are, exactly what was sampled is trained, and every episode counts once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.episodes import Episode, FinishReason, Group, RewardScope, RewardTerm, Segment, StopReason, VersionSpan
from keepworth.learning.objective.advantage import advantages
from keepworth.learning.objective.batch import (
    BadEpisode,
    BudgetTooSmall,
    Rows,
    micro_batches,
    require_credit,
    rows_of,
    soft_values_of,
    stretches,
)
from keepworth.learning.objective.policy_loss import denominators, row_weights
from keepworth.learning.objective.presets import preset
from keepworth.models.attention import round_up

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
token = st.integers(0, 5)  # few, so that contexts often agree by accident


def tokens(least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(token, min_size=least, max_size=most).map(tuple)


@dataclass(frozen=True)
class Call:
    """rewrite: None where the context continues the call before with `seen` written in between."""

    role: str
    rewrite: tuple[int, ...] | None
    seen: tuple[int, ...]
    ids: tuple[int, ...]


calls = st.lists(
    st.builds(Call, st.sampled_from(["a", "b"]), st.none() | tokens(1, 3), tokens(0, 3), tokens(1, 3)),
    min_size=1,
    max_size=5,
)


def episode(number: int, made: list[Call], reward: float = 1.0, task: str = "t") -> Episode:
    segments: list[Segment] = []
    for index, call in enumerate(made):
        if call.rewrite is None and segments:
            context = segments[-1].context + segments[-1].ids + call.seen
        else:
            context = call.rewrite or (1, 2)
        logprobs = tuple(-0.01 * (10 * index + k + 1) for k in range(len(call.ids)))
        spans = (VersionSpan(index, 0, len(call.ids)),)
        segments.append(Segment(call.role, "p", context, call.ids, logprobs, 1.0, FinishReason.STOP, spans, ""))
    rewards = (RewardTerm("r", reward),)
    return Episode(
        f"e{number}", task, "a", "", tuple(segments), "", (), rewards, StopReason.COMPLETED, "", policy_version=0
    )


def group_of(made: list[list[Call]]) -> Group:
    return Group("t", "", tuple(episode(i, each, float(i % 2)) for i, each in enumerate(made)))


def drawn(rows: Rows, row: int) -> list[int]:
    assert rows.batch.ids is not None
    return rows.batch.ids[row][rows.batch.mask[row] > 0].tolist()


@quick
@given(st.lists(calls, min_size=1, max_size=4), st.booleans(), st.sampled_from([("a",), ("b",), ("a", "b")]))
def test_exactly_the_sampled_tokens_are_trained(made: list[list[Call]], merge: bool, roles: tuple[str, ...]) -> None:
    group = group_of(made)
    sampled = [s for e in group.episodes for s in e.segments if s.role in roles]
    if not sampled:
        with pytest.raises(BadEpisode, match="sampled token"):
            rows_of([group], roles, 7, merge=merge)
        return
    rows = rows_of([group], roles, 7, merge=merge)
    assert [i for row in range(len(rows.contexts)) for i in drawn(rows, row)] == [i for s in sampled for i in s.ids]
    inside = rows.batch.mask > 0
    torch.testing.assert_close(
        rows.batch.lp_behaviour[inside], torch.tensor([p for s in sampled for p in s.logprobs]), check_dtype=False
    )
    assert not rows.batch.lp_behaviour[~inside].any()
    assert rows.batch.version_lag is not None
    lag = torch.tensor([float(7 - s.spans[0].version) for s in sampled for _ in s.ids])
    torch.testing.assert_close(rows.batch.version_lag[inside], lag)
    assert rows.batch.step is not None
    assert rows.batch.steps is not None
    assert len(rows.batch.steps.index) == len(sampled)
    assert (rows.batch.step[inside] >= 0).all()
    assert (rows.batch.step[~inside] == -1).all()


@quick
@given(st.lists(calls, min_size=1, max_size=4))
def test_a_row_is_what_the_model_saw_and_a_rewritten_context_begins_another(made: list[list[Call]]) -> None:
    for one in group_of(made).episodes:
        own = [s for s in one.segments if s.role == "a"]
        found = stretches(one, ["a"])
        assert [s for stretch in found for s in stretch.segments] == own
        for stretch in found:
            whole = stretch.context + stretch.answer
            for segment, start in zip(stretch.segments, stretch.starts, strict=True):
                at = len(stretch.context) + start
                assert whole[:at] == segment.context
                assert whole[at : at + len(segment.ids)] == segment.ids
        for before, after in pairwise(found):
            known = before.context + before.answer
            assert after.context[: len(known)] != known
        assert len(stretches(one, ["a"], merge=False)) == len(own)


@quick
@given(st.lists(calls.filter(lambda made: any(c.role == "a" for c in made)), min_size=2, max_size=4))
def test_each_episode_counts_once_however_many_rows_it_has(made: list[list[Call]]) -> None:
    """Statistics and weights see episodes: splitting rows, or repeating one, changes no other episode's."""
    group = group_of(made)
    merged, split = rows_of([group], ["a"], 0), rows_of([group], ["a"], 0, merge=False)
    for name in ("grpo", "rloo", "lite_ppo"):
        objective = preset(name)
        one, other = advantages(merged.batch, objective), advantages(split.batch, objective)
        torch.testing.assert_close(one[merged.batch.mask > 0], other[split.batch.mask > 0])
        for rows in (merged, split):
            weight = row_weights(rows.batch, objective, denominators(rows.batch, objective))
            if objective.aggregation == "seq-mean-token-mean":
                share = torch.zeros(len(group.episodes), dtype=torch.float64)
                share.index_add_(0, rows.batch.episode, weight * rows.batch.mask.sum(1))
                torch.testing.assert_close(share, torch.full_like(share, 1 / len(group.episodes)))


def within_budget(rows: Rows, chosen: list[int], budget: int, whole: bool) -> tuple[int, list[list[int]]]:
    """The budget, raised to what each refusal says is needed, and the micro-batches."""
    while True:
        try:
            return budget, micro_batches(rows, chosen, budget, whole)
        except BudgetTooSmall as error:
            needed = int(str(error).split(" padded tokens")[0].rsplit(" ", 1)[1])
            assert needed > budget
            budget = needed


def test_a_budget_that_one_group_exceeds_is_refused_with_what_it_needs() -> None:
    """16 answers of 1,024 tokens to one prompt were one micro-batch of 16,400 tokens under a budget of 2,048."""
    made = [[Call("a", (1, 2), (), (3,) * 1024)] for _ in range(16)]
    rows = rows_of([group_of(made)], ["a"], 0)
    with pytest.raises(
        BudgetTooSmall, match=r"token_budget = 2048, and 16 answers .* are 16400 padded tokens"
    ) as error:
        micro_batches(rows, range(16), 2048, False)
    assert "Set token_budget to 16640 or more" in error.value.fix
    assert micro_batches(rows, range(16), 16400, False) == [list(range(16))]
    assert micro_batches(rows, range(2), 2080, False) == [[0, 1]]  # rows without a gradient need no room


@quick
@given(st.lists(calls, min_size=1, max_size=5), st.integers(16, 200), st.booleans())
def test_micro_batches_cover_every_row_once_and_keep_together_what_belongs_together(
    made: list[list[Call]], budget: int, whole: bool
) -> None:
    group = group_of(made)
    rows = rows_of([group], ["a", "b"], 0)
    chosen = list(range(len(rows.contexts)))
    budget, batches = within_budget(rows, chosen, budget, whole)
    for batch in batches:
        shared = {context: [row for row in batch if rows.contexts[row] == context] for context in rows.contexts}
        sizes = [
            round_up(len(context), 16) + round_up(sum(len(rows.answers[row]) for row in members), 16)
            for context, members in shared.items()
            if members
        ]
        assert max(sizes) * len(sizes) <= budget
    assert sorted(row for batch in batches for row in batch) == chosen
    place = {row: number for number, batch in enumerate(batches) for row in batch}
    episode_of = rows.batch.episode.tolist()
    for one in chosen:
        for other in chosen:
            if rows.contexts[one] == rows.contexts[other] or (whole and episode_of[one] == episode_of[other]):
                assert place[one] == place[other]


def test_manager_then_answerer_are_rows_of_their_own() -> None:
    made = [Call("a", (1,), (), (2, 3)), Call("b", (4, 4), (), (5,)), Call("a", None, (0,), (1,))]
    made[2] = Call("a", (1, 2, 3, 9), (), (1,))  # goes on where the first call ended
    group = Group("t", "", (episode(0, made), episode(1, made, 0.0)))
    rows = rows_of([group], ["a", "b"], 0)
    assert [rows.contexts[row] for row in range(3)] == [(1,), (4, 4), (1, 2, 3, 9)]
    only = rows_of([group], ["a"], 0)
    assert only.contexts[0] == (1,)
    assert only.answers[0] == (2, 3, 9, 1)
    assert only.batch.mask[0].tolist() == [1, 1, 0, 1]


def test_turns_carry_their_rewards_and_states() -> None:
    made = [Call("a", (1,), (), (2,)), Call("b", (4,), (), (5,)), Call("a", (7,), (), (1,))]
    one = episode(0, made)
    one = replace(
        one,
        segments=tuple(replace(s, state=state) for s, state in zip(one.segments, ("x", "y", "x"), strict=True)),
        rewards=(RewardTerm("r", 1.0), RewardTerm("turn", 0.5, 2.0, RewardScope.SEGMENT, segment=2)),
    )
    rows = rows_of([Group("t", "", (one, replace(one, id="e1")))], ["a"], 0)
    assert rows.batch.steps is not None
    assert rows.batch.steps.reward.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert rows.batch.steps.index.tolist() == [0, 1, 0, 1]
    state = rows.batch.steps.state.tolist()
    assert state[0] == state[1] == state[2] == state[3] >= 0
    assert rows.batch.rewards.tolist() == [2.0] * 4


def test_episodes_that_contradict_themselves_are_named() -> None:
    good = episode(0, [Call("a", (1,), (), (2, 3))])
    for broken, words in (
        (replace(good.segments[0], logprobs=(-0.1,)), "2 sampled ids but 1 log-probabilities"),
        (replace(good.segments[0], context=()), "empty context"),
        (replace(good.segments[0], spans=(VersionSpan(0, 0, 5),)), "version span"),
    ):
        with pytest.raises(BadEpisode, match=words):
            rows_of([Group("t", "", (replace(good, segments=(broken,)),))], ["a"], 0)


def test_what_an_objective_credits_by_must_be_there() -> None:
    group = Group("t", "", (episode(0, [Call("a", (1,), (), (2,))]),))
    rows = rows_of([group], ["a"], 0)
    for name, words in (("gigpo", "Segment.state"), ("fine_mem", "names its segment"), ("memory_r_plus", "'episodic'")):
        objective = preset(name)
        with pytest.raises(BadEpisode, match=words):
            require_credit(rows, [group], objective)
    with pytest.raises(BadEpisode, match="value of task 't'"):
        soft_values_of(rows, {"other": 1.0}, "a_star_po")
    assert soft_values_of(rows, {"t": 0.25}, "a_star_po").tolist() == [0.25]
