"""The text side of a model: its tokenizer and settings, without its weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from keepworth.base import extras
from keepworth.base.json_values import parse
from keepworth.base.model_errors import ContextOverflow, CorruptModel
from keepworth.models.chat_format import TokenizerChat, ids_of
from keepworth.models.grammar_masks import NoGrammar
from keepworth.records.model import Grammar, Tokens, beginning

_ROPE_BY_LENGTH = ("longrope", "dynamic")


class TextSide:
    """A tokenizer, and the parts of a model's configuration that concern text. Engines derive from it. `vocabulary` is the number
    of the network's ids, which may be more than the tokenizer names; None for the tokenizer's. `ends` are ids that end a text
    besides the tokenizer's own. `version` is that of the weights."""

    def __init__(
        self, tokenizer: Any, name: str, vocabulary: int | None = None, context_limit: int = 0, ends: Sequence[int] = ()
    ) -> None:
        self.tokenizer, self.name, self.context_limit = tokenizer, name, context_limit
        self.version = 0
        self._vocabulary, self._ends = vocabulary, tuple(ends)
        self._stops: dict[str, frozenset[int]] = {}

    @classmethod
    def load(cls, folder: Path | str, name: str = "") -> TextSide:
        """Loads the text side of the checkpoint in `folder`. Raises CorruptModel where its files cannot be read."""
        extras.require("llm", "A model's tokenizer", "transformers")
        from transformers import AutoConfig, AutoTokenizer

        folder = Path(folder)
        try:
            config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
            tokenizer("a")  # some of its settings are first read here
            generation = folder / "generation_config.json"
            settings = parse(generation.read_text(encoding="utf-8")) if generation.is_file() else config.to_dict()
            ends = ids_of(settings.get("eos_token_id"))
        except Exception as error:  # the libraries raise their own types besides OSError and ValueError
            raise CorruptModel(f"The tokenizer in {folder} cannot be read: {error}") from error
        return cls(tokenizer, name or folder.name, int(config.vocab_size), context_limit(config), ends)

    @cached_property
    def _beginning(self) -> Tokens:
        return beginning(self.tokenizer)

    def encode(self, text: str) -> Tokens:
        ids, first = self.encode_continuation(text), self._beginning
        return ids if ids[: len(first)] == first else first + ids  # a chat template writes the BOS itself

    def encode_continuation(self, text: str) -> Tokens:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def stop_ids_for(self, prefix: str) -> frozenset[int]:
        if prefix not in self._stops:
            ids = range(len(self.tokenizer) if self._vocabulary is None else self._vocabulary)
            texts = self.tokenizer.batch_decode([[identifier] for identifier in ids])
            special = set(self.tokenizer.all_special_ids)
            self._stops[prefix] = frozenset(
                token for token, text in zip(ids, texts, strict=True) if token in special or text.startswith(prefix)
            )
        return self._stops[prefix]

    def check_length(self, index: int, prompt: Tokens, growth: int) -> None:
        """Raises ValueError for a prompt that is empty, and ContextOverflow for one that could exceed the model's window.

        Args:
            index: The place of the prompt in the request, for the message.
            prompt: The ids of the prompt.
            growth: The most tokens that may follow it.
        """
        if not prompt:
            raise ValueError(f"prompt {index} is empty: there is nothing to continue")
        if len(prompt) + growth > self.context_limit:
            raise ContextOverflow(
                f"Prompt {index} has {len(prompt)} tokens and may grow by {growth}, past the {self.context_limit} that "
                f"{self.name} reads.",
                "Show fewer or shorter memories.",
            )

    def check_grammar(self, grammar: Grammar) -> None:
        """Raises KeepworthError where samples cannot be drawn under a grammar, or not under this one."""
        raise NoGrammar(
            f"{self.name} draws under no grammar: only a model in this process does.",
            "Ask for the form in words, and check what comes.",
        )

    @cached_property
    def chat(self) -> TokenizerChat:
        """The model's chat template. Raises NoChatTemplate."""
        return TokenizerChat(self.tokenizer, self.name, self._ends)


UNBOUNDED = 1 << 20
"""The context limit of a network whose configuration names none, such as a recurrent one."""


def context_limit(config: Any) -> int:
    """Returns the length of the longest text that the engine computes correctly for this network, in tokens. That is
    `max_position_embeddings`, or less for rope of the kinds longrope and dynamic: past the length of the first training its
    frequencies depend on the longest text of a batch, so that a token's probability would depend on later tokens."""
    named = getattr(config, "max_position_embeddings", None)
    limit = named if isinstance(named, int) else UNBOUNDED
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    # The config holds one set of settings, or one for each kind of layer.
    ropes = [part for part in (rope, *rope.values()) if isinstance(part, dict)] if isinstance(rope, dict) else []
    for rope in ropes:
        if rope.get("rope_type", rope.get("type")) in _ROPE_BY_LENGTH:
            limit = min(limit, int(rope.get("original_max_position_embeddings") or limit))
    return limit
