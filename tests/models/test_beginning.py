"""A text begins as the tokenizer begins one; what follows it gets no second beginning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keepworth.base.model_files import ModelKind, path_of
from keepworth.models.adapter import attach_lora
from keepworth.models.inprocess import InProcessModel
from keepworth.models.text_side import TextSide
from keepworth.records import Task
from keepworth.records.episode import Observation
from keepworth.records.model import beginning
from keepworth.training.learner import Learner, Optimisation
from keepworth.training.rows import rows_of
from keepworth.training.settings import GROUP_RELATIVE
from keepworth.worlds.driver import Limits, Play, play
from keepworth.worlds.environment import Step
from keepworth.worlds.tool_caller import ToolCaller
from tests.models.tiny import ByteTokenizer, tiny_network
from tests.rollouts.scripted_model import ScriptedModel

BOS, EOS = 256, 255


class Beginning(ByteTokenizer):
    """As Llama's: a BOS before every text; and, as some have it, an EOS behind."""

    def __init__(self, eos: bool = False) -> None:
        self.eos = eos

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        plain = [BOS if letter == "^" else ord(letter) for letter in text]  # "^" spells the BOS out
        whole = [BOS, *plain, *([EOS] if self.eos else [])]
        return {"input_ids": whole if add_special_tokens else plain}


def model_of(tokenizer: Any) -> InProcessModel:
    return InProcessModel(tiny_network(), tokenizer, "tiny")


@pytest.mark.parametrize("eos", [False, True])
def test_a_prompt_gets_the_bos_of_its_tokenizer_once(eos: bool) -> None:
    model = model_of(Beginning(eos))
    assert model.encode("hi") == (BOS, *b"hi")
    assert model.encode_continuation("hi") == tuple(b"hi")
    assert model.encode("^hi") == (BOS, *b"hi")  # a chat template has written it
    assert model.encode("") == (BOS,)


def test_a_real_tokenizer_s_own_convention() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<bos>": 0, "hi": 1, "a": 2, "<unk>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    plain = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<bos>")
    assert beginning(plain) == ()  # a BOS that is defined and not put anywhere
    words.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    adds = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<bos>")
    assert model_of(adds).encode("hi") == (0, 1) == tuple(adds("hi")["input_ids"])
    assert model_of(adds).encode("<bos> hi") == (0, 1)


class Scripted(ScriptedModel):
    def encode(self, text: str) -> tuple[int, ...]:
        return (BOS, *self.encode_continuation(text))


class Echo:
    async def reset(self, task: Task, seed: int) -> Observation:
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        return Step(Observation(f"you said {action}"))

    async def close(self) -> None: ...


def test_turns_of_an_episode_stay_one_sequence_with_one_bos() -> None:
    """A BOS before a tool's result would stand in the middle of the text."""
    how = Play(lambda task: Echo(), lambda task, memory: ToolCaller(max_tokens=8))
    task = Task("t/1", "t", "Shout hello.", ("HELLO",), verifier="exact_match")
    groups = play(Scripted(lambda prompt, j: " hey\n"), [task], how, n=2, limits=Limits(max_turns=3))
    rows = rows_of(groups, ("policy",), 0)
    assert len(rows.contexts) == 2  # three turns each
    for context, answer in zip(rows.contexts, rows.answers, strict=True):
        assert context[0] == BOS
        assert (context + answer).count(BOS) == 1


def test_imitation_puts_the_bos_before_the_prompt_alone() -> None:
    model = model_of(Beginning())
    pair = (model.encode("say:"), model.encode_continuation(" yes"))
    learner = Learner(model, attach_lora(model, rank=2), GROUP_RELATIVE, Optimisation(), "r")
    loss = learner.imitate([pair])["loss"]
    plain = tiny_network(attn="sdpa")
    ids = torch.tensor([[BOS, *b"say: yes"]])
    logprobs = torch.log_softmax(plain(input_ids=ids).logits[0, 4:-1], -1)
    assert loss == pytest.approx(-float(logprobs.gather(1, ids[0, 5:, None]).mean()), abs=1e-5)


@pytest.mark.model
def test_default_model_adds_no_beginning_token() -> None:
    from transformers import AutoTokenizer

    folder = path_of("smollm2-135m-instruct", kind=ModelKind.LANGUAGE)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert beginning(tokenizer) == ()
    text = "Question: where does Ana live?\nAnswer:"
    model = TextSide.load(folder)
    assert model.encode(text) == model.encode_continuation(text) == tuple(tokenizer(text)["input_ids"])
