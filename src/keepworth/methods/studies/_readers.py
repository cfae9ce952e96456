"""Readers of a study: a model in this process, or one at an OpenAI-compatible URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepworth.models.inprocess import InProcessModel
    from keepworth.records.model import Sample, Tokens
    from keepworth.training.learner import Learner


def learning_reader(name: str, rate: float, seed: int) -> tuple[InProcessModel, Learner]:
    """Returns a model by its name or folder, and a learner of its adapter, for imitation. `seed` initialises the adapter."""
    from keepworth.base.extras import require

    require("train", "weights that learn")
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.adapter import attach_lora
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.learner import Learner, Optimisation
    from keepworth.training.objective.presets import preset

    model = InProcessModel.load(path_of(name, kind=ModelKind.LANGUAGE), name=name)
    named = attach_lora(model, seed=seed)
    return model, Learner(model, named, preset("reinforce"), Optimisation(learning_rate=rate), "reader")


def imitate(model: InProcessModel, learner: Learner, pairs: Iterable[tuple[str, str]]) -> None:
    """Takes one update on prompts with their completions."""
    learner.imitate([(model.encode(prompt), model.encode_continuation(completion)) for prompt, completion in pairs])


def complete(model: InProcessModel, prompts: Iterable[str], tokens: int) -> list[str]:
    """Returns the likeliest completion of each prompt, of at most `tokens` tokens."""
    from keepworth.records.model import SamplingParams

    drawn = model.sample([model.encode(prompt) for prompt in prompts], SamplingParams(tokens, temperature=0.0))
    return [model.decode(samples[0].ids) for samples in drawn]


def reinforce(
    learner: Learner, prompts: Sequence[Tokens], drawn: Sequence[Sequence[Sample]], rewards: Iterable[float], key: str
) -> None:
    """Takes one update on sampled completions. `rewards` has one for each completion, prompt by prompt."""
    from keepworth.records import Episode, Group, RewardTerm, Segment, StopReason

    given, groups = iter(rewards), []
    for number, (prompt, samples) in enumerate(zip(prompts, drawn, strict=True)):
        of, episodes = f"{key}/{number}", []
        for place, one in enumerate(samples):
            call = Segment("reader", "", prompt, one.ids, one.logprobs, 1.0, one.finish, one.spans, "")
            terms = (RewardTerm("right", next(given)),)
            name = f"{of}/{place}"
            episodes.append(Episode(name, of, "reader", of, (call,), "", (), terms, StopReason.COMPLETED, "", 0))
        groups.append(Group(of, "", tuple(episodes)))
    learner.update(groups)


class WholeWords:
    """A tokenizer whose tokens are the words and signs of some texts; an unknown word is the end of text."""

    all_special_ids = (0,)

    def __init__(self, texts: Iterable[str]) -> None:
        self.words = ["", *dict.fromkeys(word for text in texts for word in self._split(text))]
        self._ids = {word: place for place, word in enumerate(self.words)}

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        return {"input_ids": [self._ids.get(word, 0) for word in self._split(text)]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return " ".join(self.words[place] for place in ids)

    def _split(self, text: str) -> list[str]:
        return re.findall(r"\w+|[^\w\s]", text)


def tiny_reader(texts: Iterable[str], rate: float, seed: int) -> tuple[InProcessModel, Learner]:
    """Returns a network of two layers with random weights, with the words of `texts` as tokens, and a learner of all weights."""
    from keepworth.base.extras import require

    require("train", "weights that learn")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from keepworth.models import attention
    from keepworth.models.adapter import unfreeze
    from keepworth.models.inprocess import InProcessModel
    from keepworth.training.learner import Learner, Optimisation
    from keepworth.training.objective.presets import preset

    tokenizer = WholeWords(texts)
    torch.manual_seed(seed)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer.words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.1,
            attn_implementation=attention.register(),
        )
    )
    model = InProcessModel(network.eval().requires_grad_(False), tokenizer, "tiny")
    named = unfreeze(model, embeddings=True)
    return model, Learner(model, named, preset("reinforce"), Optimisation(learning_rate=rate), "reader")
