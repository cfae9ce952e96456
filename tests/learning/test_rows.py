"""Rows: whatever an episode's segments are, exactly what was sampled is trained, and every episode counts once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepworth.methods.objectives.a_star_po import soft_values_of
from keepworth.models.attention import tree
from keepworth.records import Episode, FinishReason, Group, RewardScope, RewardTerm, Segment, VersionSpan
from keepworth.training.objective.advantage import advantages
from keepworth.training.objective.policy_loss import denominators, row_weights
from keepworth.training.objective.presets import preset
from keepworth.training.passes import BudgetTooSmall, MicroBatch, PassRoom, micro_batches
from keepworth.training.rows import BadEpisode, Texts, require_credit, rows_of, stretches
from tests.episode_of import episode_of

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
    return episode_of(f"e{number}", segments, rewards, task=task)


def group_of(made: list[list[Call]]) -> Group:
    return Group("t", "", tuple(episode(i, each, float(i % 2)) for i, each in enumerate(made)))


def drawn(batch: Any, row: int) -> list[int]:
    return batch.ids[row][batch.mask[row] > 0].tolist()


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
    batch: Any = rows.batch
    assert [i for row in range(len(rows.contexts)) for i in drawn(batch, row)] == [i for s in sampled for i in s.ids]
    inside = batch.mask > 0
    drawn_with = torch.tensor([p for s in sampled for p in s.logprobs])
    torch.testing.assert_close(batch.lp_behaviour[inside], drawn_with, check_dtype=False)
    assert not batch.lp_behaviour[~inside].any()
    lag = torch.tensor([float(7 - s.spans[0].version) for s in sampled for _ in s.ids])
    torch.testing.assert_close(batch.version_lag[inside], lag)
    assert len(batch.steps.index) == len(sampled)
    assert (batch.step[inside] >= 0).all()
    assert (batch.step[~inside] == -1).all()


@quick
@given(st.lists(calls, min_size=1, max_size=4))
def test_rewritten_context_begins_a_new_row(made: list[list[Call]]) -> None:
    for one in group_of(made).episodes:
        own = [s for s in one.segments if s.role == "a"]
        found = stretches(one, ["a"])
        assert [s for stretch in found for s in stretch.segments] == own
        for stretch in found:
            whole = stretch.context + stretch.answer
            for segment in stretch.segments:
                at = len(segment.context)
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


def test_oversized_answer_is_refused_with_its_memory_need() -> None:
    """Of a group of 16 answers of 1,024 tokens each fits alone; a longer answer does not."""
    answers = [(3,) * 1024] * 16
    plain = micro_batches(Texts([(1, 2)] * 16, answers), range(16), PassRoom(2048))
    assert [len(part.rows) for part in plain] == [1] * 16
    assert micro_batches(Texts([(1, 2)] * 16, answers), range(16), PassRoom(16400)) == [MicroBatch(tuple(range(16)))]
    too_small = "token_budget = 1024, and one answer of 1024 tokens behind a prompt of 2 "
    with pytest.raises(BudgetTooSmall, match=too_small) as error:
        micro_batches(Texts([(1, 2)], answers), range(1), PassRoom(1024))
    assert "needs a budget of 1280." in error.value.message
    assert error.value.fix.startswith("Set checkpointing to auto, or token_budget to 1280 or more")
    assert micro_batches(Texts([(1, 2)], answers), range(1), PassRoom(1024, "auto", 0.1)) == [MicroBatch((0,), True)]
    with pytest.raises(BudgetTooSmall, match="even if its layers are computed again") as error:
        micro_batches(Texts([(1, 2)], [(3,) * 20000]), range(1), PassRoom(1024, "auto", 0.1))
    needed = int(error.value.fix.split("token_budget to ")[1].split()[0])
    assert micro_batches(Texts([(1, 2)], [(3,) * 20000]), range(1), PassRoom(needed, "auto", 0.1))


def test_cheaper_batching_is_chosen() -> None:
    kept = 0.1
    short = micro_batches(Texts([(1,) * 400] * 8, [(3,) * 256] * 8), range(8), PassRoom(2048, "auto", kept))
    assert [(len(part.rows), part.recompute) for part in short] == [(6, False), (2, False)]  # the prompt is a fifth
    long = micro_batches(Texts([(1,) * 1600] * 8, [(3,) * 256] * 8), range(8), PassRoom(2048, "auto", kept))
    assert [(len(part.rows), part.recompute) for part in long] == [(8, True)]  # eight times the prompt is more
    uneven = Texts([(1,) * 100] * 9, [(3,) * 100] * 8 + [(3,) * 4000])
    mixed = micro_batches(uneven, range(9), PassRoom(2048, "auto", kept))
    assert sorted((part.rows, part.recompute) for part in mixed) == [(tuple(range(8)), False), ((8,), True)]
    always = micro_batches(Texts([(1,)] * 2, [(3,)] * 2), range(2), PassRoom(2048, "on", kept))
    assert always == [MicroBatch((0, 1), True)]


@quick
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300), st.integers(1, 90)), min_size=1, max_size=12),
    st.integers(32, 400),
    st.sampled_from(["auto", "on", "off"]),
    st.floats(1.0, 20.0),
)
def test_micro_batches_cover_every_row_once_and_hold_no_more_than_they_may(
    made: list[tuple[int, int, int]], budget: int, checkpointing: Any, ratio: float
) -> None:
    """Rows of four prompts, whose lengths are those of their first rows."""
    lengths = {prompt: length for prompt, length, _ in reversed(made)}
    contexts = [(prompt,) * lengths[prompt] for prompt, _, _ in made]
    answers = [(9,) * length for _, _, length in made]
    room = PassRoom(budget, checkpointing, 1 / ratio)
    try:
        parts = micro_batches(Texts(contexts, answers), range(len(made)), room)
    except BudgetTooSmall as error:
        needed = int(error.fix.split("token_budget to ")[1].split()[0])
        assert needed > budget
        return
    assert sorted(row for part in parts for row in part.rows) == list(range(len(made)))
    for part in parts:
        prompts = dict.fromkeys(contexts[row] for row in part.rows)
        shared = {prompt: [row for row in part.rows if contexts[row] == prompt] for prompt in prompts}
        branches = [[answers[row] for row in members] for members in shared.values()]
        whole = tree(list(shared), branches)
        held = whole.ids.numel() / ratio if part.recompute else whole.ids.numel()
        assert held <= budget + 1e-6
        assert part.recompute is {"on": True, "off": False}.get(checkpointing, part.recompute)
        assert list(part.rows) == [row for members in shared.values() for row in members]  # side by side, in order


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
    batch: Any = rows_of([Group("t", "", (one, replace(one, id="e1")))], ["a"], 0).batch
    assert batch.steps.reward.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert batch.steps.index.tolist() == [0, 1, 0, 1]
    state = batch.steps.state.tolist()
    assert state[0] == state[1] == state[2] == state[3] >= 0
    assert batch.rewards.tolist() == [2.0] * 4


def test_turns_carry_their_seconds() -> None:
    one = episode(0, [Call("a", (1,), (), (2,)), Call("b", (4,), (), (5,)), Call("a", (7,), (), (1,))])
    assert (steps := rows_of([Group("t", "", (one,))], ["a"], 0).batch.steps) is not None
    assert steps.duration is None
    measured = (replace(one.segments[0], seconds=0.5), *one.segments[1:])
    assert (steps := rows_of([Group("t", "", (replace(one, segments=measured),))], ["a"], 0).batch.steps) is not None
    assert steps.duration is not None
    assert (float(steps.duration[0]), steps.duration.isnan().tolist()) == (0.5, [False, True])


def test_episodes_that_contradict_themselves_are_named() -> None:
    good = episode(0, [Call("a", (1,), (), (2, 3))])
    for broken, words in (
        (replace(good.segments[0], logprobs=(-0.1,)), "2 sampled ids but 1 log-probabilities"),
        (replace(good.segments[0], context=()), "empty context"),
        (replace(good.segments[0], spans=(VersionSpan(0, 0, 5),)), "version span"),
    ):
        with pytest.raises(BadEpisode, match=words):
            rows_of([Group("t", "", (replace(good, segments=(broken,)),))], ["a"], 0)


def test_rows_need_the_fields_of_their_credit_rule() -> None:
    group = Group("t", "", (episode(0, [Call("a", (1,), (), (2,))]),))
    rows = rows_of([group], ["a"], 0)
    needed = {"gigpo": "Segment.state", "fine_mem": "its segment", "memory_r_plus": "'episodic'"}
    for name, words in {**needed, "duration": "Segment.seconds"}.items():
        with pytest.raises(BadEpisode, match=words):
            require_credit(rows, [group], preset(name))
    with pytest.raises(BadEpisode, match="value of task 't'"):
        soft_values_of(rows, {"other": 1.0}, "a_star_po")
    assert soft_values_of(rows, {"t": 0.25}, "a_star_po").tolist() == [0.25]
