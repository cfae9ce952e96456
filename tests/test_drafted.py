"""Drafting, as the benchmark of drafters does it, leaves the model's distribution as it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from benchmarks.asynchrony.drafted import (
    CheckingStep,
    Decoded,
    Head,
    NGram,
    Proposals,
    decode,
    first_kept,
    loss_of,
    read,
    settled,
)
from benchmarks.asynchrony.drafter import new_head, states
from benchmarks.asynchrony.drafter_taught import copied, per_prompt
from keepworth.models.inprocess import InProcessModel
from tests.models.tiny import tiny_model

EVERY = torch.arange(5)
CASES = {
    "another order": ([0.1, 0.2, 0.3, 0.4, 0.0], EVERY, [0.4, 0.3, 0.2, 0.1, 0.0]),
    "what never comes is proposed": ([0.5, 0.5, 0.0, 0.0, 0.0], EVERY, [0.2, 0.2, 0.2, 0.2, 0.2]),
    "some are never proposed": ([0.2, 0.2, 0.2, 0.2, 0.2], torch.tensor([1, 3]), [0.5, 0.5]),
    "one alone is": ([0.25, 0.25, 0.25, 0.25, 0.0], torch.tensor([2]), [1.0]),
    "the same": ([0.1, 0.2, 0.3, 0.4, 0.0], EVERY, [0.1, 0.2, 0.3, 0.4, 0.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_over_all_proposals_and_numbers_the_next_token_has_the_model_s_probabilities(name: str) -> None:
    p, support, q = CASES[name]
    steps = 60  # a multiple of every denominator that min(1, p / q) and what is left of p have here
    numbers = [(each + 0.5) / steps for each in range(steps)]
    found = [0.0] * 5
    for token, share in zip(support.tolist(), q, strict=True):
        own = Proposals([token], [(support, torch.tensor(q, dtype=torch.float64))])
        for kept, drawn in itertools.product(numbers, numbers) if share else ():
            count, following = settled(torch.tensor([p, p], dtype=torch.float64), own, [kept, drawn])
            found[token if count else following] += share / steps**2
    assert found == pytest.approx(p, abs=1e-9)


@pytest.mark.slow
def test_of_a_hundred_thousand_draws_the_first_two_tokens_are_as_the_model_s() -> None:
    from scipy.stats import chisquare

    generator = np.random.default_rng(0)
    first = torch.from_numpy(generator.dirichlet(np.ones(5)))
    second = torch.from_numpy(generator.dirichlet(np.ones(5), 5))
    third = torch.from_numpy(generator.dirichlet(np.ones(5), (5, 5)))
    drafted = [torch.from_numpy(generator.dirichlet(np.ones(5))) for _ in range(2)]
    counts = np.zeros((5, 5))
    draws = 100_000
    proposed = [generator.choice(5, draws, p=each.numpy()).tolist() for each in drafted]
    numbers = generator.random((draws, 6))
    for a, b, own in zip(*proposed, numbers, strict=True):
        p = torch.stack([first, second[a], third[a, b]])
        kept, token = settled(p, Proposals([a, b], [(EVERY, drafted[0]), (EVERY, drafted[1])]), own[:3].tolist())
        text = [*[a, b][:kept], token]
        if len(text) < 2:  # a pass that keeps nothing draws one token: the next pass draws the other
            text.append(settled(second[text[0]][None], Proposals((), ()), own[3:4].tolist())[1])
        counts[text[0], text[1]] += 1
    expected = (first[:, None] * second).numpy() * draws
    assert chisquare(counts.flatten(), expected.flatten()).pvalue > 1e-3


@pytest.fixture
def model() -> InProcessModel:
    return tiny_model(0, hidden=64)


def test_a_pass_over_several_tokens_computes_what_a_whole_pass_does_and_takes_back_what_is_refused(
    model: InProcessModel,
) -> None:
    texts = [tuple(range(3, 23)), tuple(range(40, 57))]
    _, kept = read(model, [each[:-6] for each in texts])
    step = CheckingStep(model._causal_model(), model._packed)
    with torch.inference_mode():
        step.check(torch.tensor([[*each[-6:-4], 9, 9] for each in texts]), kept)
        kept.lengths = kept.lengths - 2
        found = step.check(torch.tensor([each[-4:] for each in texts]), kept)
        for row, text in enumerate(texts):
            whole = model.hidden_states(torch.tensor([text]), torch.arange(len(text))[None], None, None)
            torch.testing.assert_close(found[row], whole[0, -4:], rtol=1e-3, atol=1e-3)


def test_drafted_texts_have_what_was_drawn_and_no_more(model: InProcessModel) -> None:
    prompts = [tuple(range(3, 23)), tuple(range(40, 57))]
    step = CheckingStep(model._causal_model(), model._packed)
    done = decode(model, step, prompts, 2, NGram(), passes=5, seed=0)
    tried, right = zip(*done.kept, strict=True)
    assert [text[: len(prompt)] for text, prompt in zip(done.texts, prompts, strict=True)] == [list(p) for p in prompts]
    assert (tried[0], tried[1]) == (10, right[0])
    assert done.drawn == 10 + sum(right) == sum(len(t) - len(p) - 1 for t, p in zip(done.texts, prompts, strict=True))


def test_what_is_kept_is_counted_by_position_and_by_text() -> None:
    done = Decoded([], passes=3, drawn=12, k=3, right=[[0, 2, 1], [3, 0, 0]])
    assert done.kept == [(6, 3), (3, 2), (2, 1)]
    assert per_prompt(done, 3) == [2, 2]
    assert per_prompt(done, 1) == pytest.approx([5 / 3, 4 / 3])


def test_the_first_proposal_is_kept_as_often_as_both_distributions_share(model: InProcessModel) -> None:
    text, start = tuple(range(3, 23)), 15
    seen = states(model, [text])
    head = new_head(
        model, torch.arange(model.network.config.vocab_size)
    )  # not taught: it proposes from the state it was given
    p = torch.softmax(model.head(seen[0].hidden).float(), -1)
    shared = [float(torch.minimum(p[at], p[at - 1]).sum()) for at in range(start, len(text))]
    assert first_kept(head, model, seen, [start]) == pytest.approx([sum(shared) / len(shared)], rel=1e-4)


def test_where_only_what_is_kept_counts_what_is_never_proposed_teaches_nothing() -> None:
    # Two tokens. The model draws the second; the head proposes the first.
    head = Head(torch.arange(2), torch.tensor([[20.0, 0.0], [-20.0, 0.0]]), torch.zeros(2, 2), inner=4)
    hidden, ids = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 1])
    with torch.no_grad():
        both, kept = (loss_of(head, hidden, ids, torch.tensor([0]), 1, alone) for alone in (False, True))
    assert float(both) == pytest.approx(40, abs=1e-3)
    assert float(kept) == pytest.approx(0, abs=1e-3)


def test_the_reward_is_the_share_of_an_answer_that_stands_in_its_prompt() -> None:
    assert copied([1, 2, 3], [1, 1, 9, 8]) == 0.5
