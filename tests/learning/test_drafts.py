"""Drafts that are drawn together: the model's own draws in any company, through interruptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from keepworth.base.model_errors import ContextOverflow, DeliveryFailed
from keepworth.models.adapter import attach_lora, unfreeze
from keepworth.records import FinishReason, SamplingParams, VersionSpan
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.collect.sampler import DraftBatch
from keepworth.training.replica import Replica
from tests.models.tiny import tiny_model

PROMPTS = [tuple(b"a"), tuple(b"hello there, " * 4), tuple(b"one two three")]
STOPS = frozenset(range(60))
MODEL = tiny_model(precision="fp64")


def run(batch: DraftBatch, made: Iterable[PartialSample] = (), interrupt_every: int = 0) -> list[PartialSample]:
    for each in made:
        batch.add(each)
    finished: list[PartialSample] = []
    while batch.busy:
        finished += batch.step()
        if interrupt_every and batch.steps % interrupt_every == 0:
            batch.interrupt()
    return finished


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("slots", "interrupt_every"), [(32, 0), (4, 0), (5, 2), (1, 3), (None, 0)])
def test_draft_batch_samples_equal_the_model(slots: int | None, interrupt_every: int, temperature: float) -> None:
    params = SamplingParams(11, n=3, temperature=temperature, seed=7, stop_ids=STOPS)
    own = replace(params, n=1)
    made = [PartialSample(prompt, own, (i, j)) for i, prompt in enumerate(PROMPTS) for j in range(3)]
    finished = run(DraftBatch(MODEL, slots=slots), made, interrupt_every)
    assert {id(each) for each in finished} == {id(each) for each in made}
    expected = [sample for samples in MODEL.sample(PROMPTS, params) for sample in samples]
    assert any(each.finish is FinishReason.STOP for each in expected)
    for draft, sample in zip(made, expected, strict=True):
        ours = draft.sample()
        assert (ours.ids, ours.finish) == (sample.ids, sample.finish)
        assert ours.logprobs == pytest.approx(sample.logprobs, abs=1e-9)


@pytest.mark.parametrize("slots", [None, 32])
def test_a_prompt_that_a_group_shares_is_read_once(slots: int | None) -> None:
    batch, params = DraftBatch(MODEL, slots=slots), SamplingParams(3, seed=7)
    # Two groups of the same task: each is its own.
    run(batch, (PartialSample(PROMPTS[0], params, (i, j), group=i) for i in range(2) for j in range(4)))
    assert (batch.read, batch.steps, batch.drawn) == (2 * len(PROMPTS[0]), 3, 8 * 3)


@settings(max_examples=15, deadline=None)
@given(
    slots=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    pauses=st.sets(st.integers(0, 20)),
    removed=st.integers(0, 9),
)
def test_every_draft_ends_once_with_spans_that_cover_it(
    slots: int, lengths: list[int], pauses: set[int], removed: int
) -> None:
    batch = DraftBatch(MODEL, slots=slots)
    version = MODEL.version
    made = [PartialSample(PROMPTS[i % 3], SamplingParams(n, seed=i), (i,)) for i, n in enumerate(lengths)]
    for each in made:
        batch.add(each)
    finished: list[PartialSample] = []
    try:
        while batch.busy:
            assert len(batch.live) <= slots
            finished += batch.step()
            if removed < len(made) and batch.steps == 3:
                batch.remove(made[removed])
            if batch.steps in pauses:
                batch.interrupt()
                MODEL.version += 1
        gone = [made[removed]] if removed < len(made) and made[removed].finish is None else []
        assert sorted(map(id, (*finished, *gone))) == sorted(map(id, made))
        for each in finished:
            sample = each.sample()
            assert len(sample.ids) == len(sample.logprobs) == each.params.max_tokens
            edges = [0, *(span.end for span in sample.spans)]
            assert [(s.start, s.end) for s in sample.spans] == list(pairwise(edges))
            assert edges[-1] == len(sample.ids)
            assert list(sample.spans) == sorted(sample.spans, key=lambda s: s.version)
    finally:
        MODEL.version = version


def test_unsampleable_drafts_are_refused() -> None:
    batch = DraftBatch(MODEL, slots=32)
    with pytest.raises(ContextOverflow, match="past the 512"):
        batch.add(PartialSample((1,) * 500, SamplingParams(13), (0,)))
    with pytest.raises(ValueError, match="at least one token"):
        batch.add(PartialSample((), SamplingParams(13), (0,)))
    for wrong, said in (
        ({"temperature": -1.0}, "temperature must be a number of at least 0"),
        ({"top_k": -1}, "top_k must be at least 0"),
        ({"top_p": 0.0}, "top_p in"),
        ({"stop_ids": frozenset({-1})}, "stop ids must be tokens of .* not -1"),
        ({"stop_ids": frozenset({10**6})}, "stop ids must be tokens"),
    ):
        params = SamplingParams(13, **wrong)
        with pytest.raises(ValueError, match=said):
            batch.add(PartialSample((1,), params, (0,)))
        with pytest.raises(ValueError, match=said):
            MODEL.sample([(1,)], params)


@pytest.mark.parametrize("lora", [True, False])
def test_an_interrupted_draft_goes_on_under_the_new_weights(lora: bool) -> None:
    """Its later tokens are scored as the new weights score them behind its earlier ones; each keeps its version."""
    learner = tiny_model(precision="fp64")
    named = attach_lora(learner, 4) if lora else unfreeze(learner)
    replica = Replica(learner, named)
    batch = DraftBatch(replica.model, slots=32)
    draft = PartialSample(PROMPTS[1], SamplingParams(10, seed=3), (0, 0))
    batch.add(draft)
    for _ in range(4):
        batch.step()
    batch.interrupt()
    (before,) = learner.score([draft.prompt], [[tuple(draft.ids)]])
    with torch.no_grad():
        for value in named.values():
            value += 0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    (unmoved,) = replica.model.score([draft.prompt], [[tuple(draft.ids)]])
    assert unmoved[0] == pytest.approx(before[0], abs=1e-9), "the learner's update was seen before it was published"
    learner.version = 1
    receipt = replica.publish(replica.outgoing())
    assert (receipt.version, receipt.probe_gap) == (1, pytest.approx(0.0, abs=1e-12))
    run(batch)
    sample = draft.sample()
    assert sample.spans == (VersionSpan(0, 0, 4), VersionSpan(1, 4, 10))
    (after,) = learner.score([draft.prompt], [[sample.ids]])
    assert sample.logprobs[:4] == pytest.approx(before[0], abs=1e-5)
    assert sample.logprobs[4:] == pytest.approx(after[0][4:], abs=1e-5)
    assert sample.logprobs[:4] != pytest.approx(after[0][:4], abs=1e-4)


def test_replica_with_other_unpublished_weights_is_refused() -> None:
    learner = tiny_model()
    named = attach_lora(learner, 4)
    replica = Replica(learner, named)
    other = next(iter(named))
    replica.publish(replica.outgoing())
    with torch.no_grad():
        named[next(n for n in named if "lora_B" in n)].add_(1.0)
    replica._named = {other: named[other]}
    with pytest.raises(DeliveryFailed, match="differ by"):
        replica.publish(replica.outgoing())


def test_frozen_weights_are_shared_and_trained_ones_are_not() -> None:
    learner = tiny_model()
    named = attach_lora(learner, 4)
    other = dict(Replica(learner, named).model.network.named_parameters())
    for name, value in learner.network.named_parameters():
        assert (value.data_ptr() == other[name].data_ptr()) == (name not in named), name
        assert name not in named or not other[name].requires_grad
