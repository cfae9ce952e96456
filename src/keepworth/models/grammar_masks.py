"""The tokens that a grammar allows next, by llguidance: a function of the grammar and of the ids before, so that the sampler and
the learner compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from keepworth.base.errors import KeepworthError
from keepworth.base.extras import require
from keepworth.records.model import Grammar

Bits = npt.NDArray[np.int32]
"""A bit for each id of the vocabulary, the lowest first: 1 where the id is allowed."""
_NEEDED = (*map(chr, range(32, 127)), "\n", "\t")
"""Characters that a tokenizer must have a token for, so that every text of a grammar can be written."""


class NoGrammar(KeepworthError, ValueError):
    """A model cannot draw under a grammar, or not under this one."""


class GrammarMasks:
    """The masks of one tokenizer. `vocabulary` is the number of the network's ids, and `name` the model's, for messages."""

    def __init__(self, tokenizer: Any, vocabulary: int, name: str) -> None:
        require("llm", "An answer of a required form", "llguidance")
        self._tokenizer, self._vocabulary, self._name = tokenizer, vocabulary, name
        self.width = -(-vocabulary // 32)
        """The numbers that hold the bits of one mask."""

    def check(self, grammar: Grammar) -> None:
        """Raises NoGrammar where the tokenizer cannot write each text of the grammar, or the grammar cannot be read."""
        ends = set(grammar.ends)
        if lacking := [character for character in _NEEDED if not self._written[character] - ends]:
            raise NoGrammar(
                f"{self._name} has no token for {lacking[0]!r} that does not end its answers, so not all can be written.",
                "Take a model whose tokenizer has a token for each byte, or ask for the form in words.",
            )
        self.begin(grammar)

    def begin(self, grammar: Grammar) -> GrammarState:
        """Returns the state of a text behind `grammar.begun`. Raises NoGrammar where that does not fit the grammar."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._read_tokenizer, grammar.text, log_level=0)
        if matcher.is_error() or not matcher.consume_tokens(list(grammar.begun)):
            raise NoGrammar(f"The grammar cannot be followed: {matcher.get_error().splitlines()[0]}.")
        return GrammarState(matcher, grammar, self._vocabulary, tuple(self._read_tokenizer.eos_tokens))

    def of(self, grammar: Grammar, ids: Sequence[int]) -> Bits:
        """Returns the masks [len(ids), width] from which a sample's ids were drawn. Raises NoGrammar where they were not.

        Args:
            grammar: The grammar that they were drawn under.
            ids: The sampled ids, up to the one that ended the sample.
        """
        state, masks = self.begin(grammar), np.empty((len(ids), self.width), dtype=np.int32)
        for place, identifier in enumerate(ids):
            masks[place] = state.allowed()
            if not masks[place, identifier // 32] >> identifier % 32 & 1:
                raise NoGrammar(f"The id {identifier} at place {place} is not of the grammar that it was drawn under.")
            state.add(identifier)
        return masks

    @cached_property
    def _read_tokenizer(self) -> Any:
        from llguidance.hf import from_tokenizer

        try:
            return from_tokenizer(self._tokenizer, n_vocab=self._vocabulary)
        except ValueError as error:
            raise NoGrammar(
                f"The tokenizer of {self._name} cannot be bound to a grammar: {error}.",
                "Ask for the form in words, or take a model with a tokenizer.json.",
            ) from error

    @cached_property
    def _written(self) -> dict[str, set[int]]:
        """The ids whose text is each of the needed characters."""
        tokens, ids = self._read_tokenizer, {character: set[int]() for character in _NEEDED}
        for identifier in range(tokens.vocab_size):
            text = bytes(tokens.decode_bytes([identifier])).decode("utf-8", "replace")
            if text in ids:
                ids[text].add(identifier)
        return ids


class GrammarState:
    """How far a text has come in its grammar."""

    def __init__(self, matcher: Any, grammar: Grammar, vocabulary: int, closing: Sequence[int]) -> None:
        self._matcher, self._ends = matcher, grammar.ends
        self._never = ~bits_of({*closing, *grammar.ends}, vocabulary)
        self._closing = bits_of(grammar.ends, vocabulary)

    def allowed(self) -> Bits:
        """Returns the mask of the next id. It is empty where the grammar has become too complex to be followed."""
        computed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.int32)  # it may be a number longer
        mask = computed[: len(self._never)] & self._never
        if self._matcher.is_error():
            return np.zeros_like(mask)
        return mask | self._closing if self._matcher.is_accepting() else mask

    def add(self, identifier: int) -> None:
        """Goes on by an id that is allowed."""
        if identifier not in self._ends:
            self._matcher.consume_token(identifier)


def bits_of(ids: Sequence[int] | set[int], vocabulary: int) -> Bits:
    """Returns the mask that allows these ids alone."""
    chosen = np.zeros(-(-vocabulary // 32) * 32, dtype=np.uint8)
    chosen[list(ids)] = 1
    return np.packbits(chosen, bitorder="little").view(np.int32)
