"""Answers of a required form, in training: log-probabilities are of the distribution that was drawn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.models.drawing import unpack_bits
from keepworth.models.grammar_masks import GrammarMasks, NoGrammar
from keepworth.models.inprocess import InProcessModel, token_scores
from keepworth.records import Episode, Group, SamplingParams, Segment
from keepworth.records.episode import episode_from_json, episode_to_json
from keepworth.records.model import Grammar
from keepworth.serving.answer_forms import Schema, grammar_of
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.collect.sampler import DraftBatch
from keepworth.training.passes import row_scores
from keepworth.training.programs import Endpoint
from keepworth.training.reference import teacher_scores
from keepworth.training.rows import Rows, rows_of
from keepworth.training.run_folder import RunFolder
from tests.learning.intercepted import Scripted, rollouts, write_chat_model

openai = pytest.importorskip("openai")

WORDS = ["red", "green", "grey", "blue"]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": WORDS}, "sure": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
GRAMMAR = grammar_of(Schema("schema", SCHEMA), (), free=True)


def write_model(folder: Path) -> Path:
    write_chat_model(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> InProcessModel:
    return InProcessModel.load(write_model(tmp_path_factory.mktemp("model")), name="tiny", precision="fp32")


def asks(row: dict[str, Any]) -> str:
    """Two calls in one conversation, the first bound to a schema and the second free, and one for two answers at once."""
    client, messages = openai.OpenAI(), [{"role": "user", "content": row["prompt"]}]
    answer = client.chat.completions.create(model="any", messages=messages, response_format=FORMAT)
    text = str(answer.choices[0].message.content)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Why?"}]
    client.chat.completions.create(model="any", messages=messages, max_tokens=5)
    both = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "Again."}], response_format=FORMAT, n=2, stream=True
    )
    assert {chunk.choices[0].index for chunk in both} == {0, 1}
    return text


@pytest.fixture(scope="module")
def episode(model: InProcessModel) -> Episode:
    rows: Sequence[dict[str, Any]] = [{"prompt": "What?", "answer": "red"}]
    (episode,) = rollouts(model, asks, rows, lambda answer, row: float(json.loads(answer)["answer"] in WORDS))  # type: ignore[arg-type]
    return episode


def rows_in(episode: Episode) -> Rows:
    return rows_of([Group(episode.task, episode.memory_snapshot, (episode,))], ["policy"], 0)


def test_recorded_log_probabilities_are_computed_again_from_the_grammar(
    model: InProcessModel, episode: Episode
) -> None:
    bound = [call for call in episode.segments if call.grammar is not None]
    assert (episode.reward, len(bound), len(episode.segments)) == (1.0, 3, 4)
    for call in bound:
        assert json.loads(model.decode(call.ids))["answer"] in WORDS
    rows = rows_in(episode)
    lp, entropy = row_scores(model, rows, range(len(rows.contexts)), 1.0)
    drawn = rows.batch.mask > 0
    ratio = torch.exp(lp - rows.batch.lp_behaviour)[drawn]
    assert float((ratio - 1).abs().max()) <= 1e-5
    certain = drawn & (rows.batch.lp_behaviour == 0)
    assert int(certain.sum()) > 20, "keys and the rest of a word"
    assert float(lp[certain].abs().max()) == float(entropy[certain].abs().max()) == 0.0
    assert bool((entropy[drawn & ~certain] > 0).all())
    free, _ = row_scores(model, replace(rows, grammars=()), range(len(rows.contexts)), 1.0)
    assert float((free - lp)[drawn].abs().max()) > 1, "without the grammar they are others"


def test_tokens_that_were_certain_have_no_gradient(model: InProcessModel, episode: Episode) -> None:
    rows = rows_in(episode)
    certain = (rows.batch.mask > 0) & (rows.batch.lp_behaviour == 0)
    weights = [parameter.requires_grad_() for parameter in model.network.parameters()]
    try:
        for chosen, moves in ((certain, False), ((rows.batch.mask > 0) & ~certain, True)):
            lp, entropy = row_scores(model, rows, range(len(rows.contexts)), 1.0)
            gradients = torch.autograd.grad((lp + entropy)[chosen].sum(), weights)
            assert any(bool(gradient.any()) for gradient in gradients) == moves
    finally:
        model.network.requires_grad_(False)


def test_the_gradient_is_that_of_a_softmax_over_the_allowed_ids() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(5, 70, dtype=torch.float64)
    allowed, target = torch.rand(6, 70) < 0.3, torch.tensor([1, 5, 33, 64, 69, 7])
    allowed[torch.arange(6), target] = True
    padded = torch.nn.functional.pad(allowed, (0, 26)).long() << torch.arange(96) % 32
    bits = padded.view(6, 3, 32).sum(-1).to(torch.int32)
    how: Any = {"temperature": 0.7, "parameters": list(head.parameters()), "allowed": bits, "chunk": 4}
    lp, entropy = token_scores(head, hidden, target, **how)
    logits = head(hidden) / 0.7
    shares = [torch.log_softmax(row[chosen], 0) for row, chosen in zip(logits, allowed, strict=True)]
    places = [int(chosen[:id].sum()) for id, chosen in zip(target.tolist(), allowed, strict=True)]
    wanted = (
        torch.stack([share[place] for share, place in zip(shares, places, strict=True)]),
        torch.stack([-(share.exp() * share).sum() for share in shares]),
    )
    over = [hidden, *head.parameters()]
    for computed, expected in zip((lp, entropy), wanted, strict=True):
        assert torch.allclose(computed, expected, atol=1e-12)
        ours, theirs = (torch.autograd.grad(of.square().sum(), over, retain_graph=True) for of in (computed, expected))
        assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("slots", "interrupt_every"), [(8, 0), (3, 4), (None, 0)])
def test_an_interrupted_answer_goes_on_in_its_grammar(
    model: InProcessModel, slots: int | None, interrupt_every: int
) -> None:
    ends = model.chat.stop_ids
    params = SamplingParams(80, seed=7, stop_ids=ends, grammar=Grammar(GRAMMAR, tuple(ends)))
    prompts = [model.encode(text) for text in ("Which?", "And what else is there?")]
    drafts = [PartialSample(prompt, params, (index, 0), group=index) for index, prompt in enumerate(prompts)]
    batch = DraftBatch(model, slots=slots)
    for draft in drafts:
        batch.add(draft)
    while batch.busy:
        batch.step()
        if interrupt_every and batch.steps % interrupt_every == 0:
            batch.interrupt()
    for draft, (whole,) in zip(drafts, model.sample(prompts, params), strict=True):
        assert draft.sample().ids == whole.ids
        assert draft.sample().logprobs == pytest.approx(whole.logprobs, abs=1e-4)
        assert json.loads(model.decode(whole.ids))["answer"] in WORDS


def test_a_record_with_a_grammar_is_read_back_and_one_that_does_not_fit_it_is_an_error(
    model: InProcessModel, episode: Episode
) -> None:
    assert episode_from_json(episode_to_json(episode)) == episode
    call = next(call for call in episode.segments if call.grammar is not None)
    strange = replace(call, ids=(call.ids[1], *call.ids[1:]))
    with pytest.raises(NoGrammar, match="place 0 is not of the grammar"):
        row_scores(model, rows_in(replace(episode, segments=(strange,))), [0], 1.0)
    with pytest.raises(KeepworthError, match="scores tokens among all others"):
        teacher_scores(model, rows_in(episode), (), 1.0)


@pytest.mark.parametrize("vocabulary", [257, 288, 300])
def test_masks_fit_a_vocabulary_of_any_size(model: InProcessModel, vocabulary: int) -> None:
    masks = GrammarMasks(model.tokenizer, vocabulary, "tiny")
    ids = (*model.encode_continuation('{"answer": "red", "sure": 0.5}'), 0)
    made = masks.of(Grammar(GRAMMAR, (0,)), ids)
    assert made.shape == (len(ids), -(-vocabulary // 32))
    allowed = unpack_bits(torch.from_numpy(made), vocabulary)
    assert bool(allowed[torch.arange(len(ids)), torch.tensor(ids)].all())
    assert int(allowed[0].sum()) == 1
    assert allowed[-1].nonzero().flatten().tolist() == [0], "the end, where the text is complete"


def test_a_model_that_draws_under_no_grammar_refuses_the_call(tmp_path: Path) -> None:
    seen: list[httpx.Response] = []

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        for more in ({"response_format": FORMAT}, {}):
            body = {"messages": [{"role": "user", "content": "Hello."}], **more}
            seen.append(httpx.post(f"{endpoint.openai}/chat/completions", json=body, trust_env=False))
        return "7"

    (episode,) = rollouts(Scripted(tmp_path / "model", lambda prompt: "7"), agent)
    assert [answer.status_code for answer in seen] == [400, 200]
    assert "only a model in this process" in seen[0].json()["error"]["message"]
    assert (len(episode.segments), len(episode.errors)) == (1, 1)


COLOUR: Any = {"type": "object", "properties": {"answer": {"enum": WORDS}}, "required": ["answer"]}
COLOUR_FORMAT: Any = {
    "type": "json_schema",
    "json_schema": {"name": "colour", "schema": {**COLOUR, "additionalProperties": False}},
}


def chooses(row: dict[str, Any]) -> str:
    client = openai.OpenAI()
    asked: Any = [{"role": "user", "content": row["prompt"]}]
    return str(
        client.chat.completions.create(model="any", messages=asked, response_format=COLOUR_FORMAT)
        .choices[0]
        .message.content
    )


def is_blue(answer: str, row: dict[str, Any]) -> float:
    return float('"blue"' in answer)


@pytest.mark.parametrize("sampling", ["synchronous", "overlap"])
def test_training_raises_the_reward_of_answers_in_json(tmp_path: Path, sampling: str) -> None:
    how: dict[str, Any] = {
        "max_tokens": 60, "steps": 8, "tasks_per_step": 2, "group_size": 6, "questions": 4, "learning_rate": 1e-2,
        "precision": "fp32", "threads": 1, "patience": 0, "train": "full", "sampling": sampling,
    }  # fmt: skip
    rows = [{"prompt": f"Which colour? {number}"} for number in range(12)]
    model = str(write_model(tmp_path / "model"))
    run = RunFolder.open(train(rows, agent=chooses, reward=is_blue, model=model, runs=tmp_path / "runs", **how).path)
    calls: list[Segment] = [call for stored in run.episodes(arm="train") for call in stored.episode.segments]
    assert len(calls) == 8 * 12
    assert all(call.grammar is not None for call in calls)
    rewards = [stored.episode.reward for stored in run.episodes(arm="train")]
    assert sum(rewards[:24]) / 24 <= 0.5
    assert sum(rewards[-24:]) / 24 >= 0.7
    gaps = [step["mismatch_max"] for step in run.metrics() if "mismatch_max" in step]
    assert len(gaps) >= 4
    assert sampling == "overlap" or max(gaps) <= 1e-5, "with overlap some are of the weights before"
